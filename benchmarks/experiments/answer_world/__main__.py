"""Rules that choose a model, and what an answer says, in a world whose truth is known:
Markdown for benchmarks/results/answer.md.

    python -m benchmarks.experiments.answer_world  # 1,000 studies a cell, half an hour
    python -m benchmarks.experiments.answer_world --studies 50  # two minutes
    python -m benchmarks.experiments.answer_world --only seeds  # how many seeds make a row as good

Five methods of eight settings each, 500 or 2,000 validation samples, settings that vary
much (`spread`) or little (`close`). Every rule sees the same studies, served as trained or
with a temperature. Studies that --directory has are not simulated again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: the processes have the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.experiments.answer_world import runs, seeds, simulate, tables
from benchmarks.experiments.answer_world.world import KINDS, Truth

SAMPLES = (500, 2000)
AT_ONCE = 10  # studies a process simulates before it hands them over
RESULTS = Path(__file__).parents[1] / "results" / "answer_world.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1000, help="in each cell")
    parser.add_argument(
        "--directory", type=Path, default=Path(tempfile.gettempdir()) / "answer_world"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=["rules", "seeds"], help="one part of two")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    if asked.only != "seeds":
        cells = [(kind, samples) for samples in SAMPLES for kind in KINDS]
        found = runs.simulated(
            simulate.simulated, cells, asked.directory, "", asked.studies, asked.processes, AT_ONCE
        )
        lines += tables.every(found, Truth.load(asked.directory / "truth.npz"))
    if asked.only != "rules":
        lines += seeds.report(asked.directory, max(2, asked.studies // 50), asked.processes)
    text = "\n".join(lines).strip() + "\n"
    asked.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
