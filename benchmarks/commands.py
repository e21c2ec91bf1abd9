"""What each command costs, beside another commit's checkout, in turn.

    python -m benchmarks.commands ../before            # medians of five, on studies of both
    python -m benchmarks.commands ../before --times 9 --only status,answer

Each checkout trains, confirms and exports the study of SPEC in a folder of its own under --out,
once (what is there is not trained again), by this Python: both use the packages it has. Then its
commands run in turn, one after another, `--times` each. CPU seconds are user and system of the
process and its children, with the start of Python; of `run` and `confirm` those of Ray's processes
that they wait for. Memory is the largest resident set of one process. The ratio is that of medians.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
SPEC = "study/specs/noisy_digits.yaml"
NAME = "noisy_digits"
MADE = "made"  # in a folder whose study is whole
# Of a whole study: they change no trial.
COMMANDS = {
    "status": f"status {NAME}",
    "trials": f"trials {NAME}",
    "pareto": f"pareto {NAME}",
    "pareto --bootstrap 1000": f"pareto {NAME} --bootstrap 1000",
    "answer": f"answer {NAME}",
    "plan": f"plan {SPEC}",
    "report": f"report {NAME}",
    "figures": f"figures {NAME}",
    "export": f"export {NAME} --name digits",
    "verify": "verify models:/digits/1",
}
# They make it, one after another, once.
MAKING = {
    "run": f"run {SPEC}",
    "confirm": f"confirm {NAME}",
    "export, the first": f"export {NAME} --name digits",
}


class Cost(NamedTuple):
    """Of one call of a command."""

    cpu: float  # s
    memory: float  # MiB


def main() -> None:
    parser = argparse.ArgumentParser(description="What each command costs, beside another commit.")
    parser.add_argument("before", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--times", type=int, default=5, help="calls of each command (5)")
    parser.add_argument("--only", default="", help="of the commands: status,answer")
    parser.add_argument("--out", type=Path, default=HERE / "build" / "commands")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(COMMANDS)
    if unknown := [name for name in wanted if name not in COMMANDS]:
        parser.error(f"--only: no command '{unknown[0]}'; there are {', '.join(COMMANDS)}")
    if options.times < 1:
        parser.error(f"--times: {options.times} is below 1")
    checkouts = {"before": options.before.resolve(), "now": HERE}
    for checkout in checkouts.values():
        if not (checkout / "study" / "cli.py").is_file():
            parser.error(f"{checkout} has no study/cli.py: give a checkout")
    folders = {side: options.out.resolve() / side for side in checkouts}
    print(
        "| command | before: CPU s | now | ratio | before: MiB | now |\n|---|---|---|---|---|---|"
    )
    if not all((folder / MADE).exists() for folder in folders.values()):
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        for name, words in MAKING.items():
            found = {side: cost(checkouts[side], words, folders[side]) for side in checkouts}
            print(row(name, {side: [one] for side, one in found.items()}), flush=True)
        for folder in folders.values():
            (folder / MADE).touch()
    for name in wanted:
        calls: dict[str, list[Cost]] = {side: [] for side in checkouts}
        for side, one in in_turn(checkouts, folders, COMMANDS[name], options.times):
            calls[side].append(one)
        print(row(name, calls), flush=True)


def in_turn(
    checkouts: dict[str, Path], folders: dict[str, Path], words: str, times: int
) -> Iterator[tuple[str, Cost]]:
    """Each side's calls; who begins changes."""
    for time in range(times):
        for side in sorted(checkouts, reverse=bool(time % 2)):
            yield side, cost(checkouts[side], words, folders[side])


def cost(checkout: Path, words: str, folder: Path) -> Cost:
    """Call a command of a checkout on the studies in a folder; it has to succeed."""
    command = [sys.executable, "-m", "study.cli", *words.split(), "--storage", str(folder)]
    log = folder / "log.txt"
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("w") as shown:
        process = subprocess.Popen(command, cwd=checkout, stdout=shown, stderr=shown)
        _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"calstudy {words} of {checkout} ended with {code}:\n{log.read_text()}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def row(name: str, calls: dict[str, list[Cost]]) -> str:
    """A line of the table: medians."""
    cpu, memory = (
        {side: statistics.median(one[field] for one in found) for side, found in calls.items()}
        for field in (0, 1)
    )
    ratio = cpu["now"] / cpu["before"]
    return (
        f"| `calstudy {name}` | {cpu['before']:.2f} | {cpu['now']:.2f} | {ratio:.2f} |"
        f" {memory['before']:.0f} | {memory['now']:.0f} |"
    )


if __name__ == "__main__":
    main()
