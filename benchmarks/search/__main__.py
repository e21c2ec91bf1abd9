from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.search import curves


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    record = commands.add_parser("record")
    record.add_argument("--data", type=Path, required=True)
    record.add_argument("--out", type=Path, default=curves.FILE)
    record.add_argument("--settings", type=int, nargs=3, default=(64, 60, 30))
    options = parser.parse_args()
    curves.record(options.data, options.out, options.settings)


if __name__ == "__main__":
    main()
