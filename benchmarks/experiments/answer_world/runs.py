"""Simulated studies as JSON lines, in chunks by several processes: what is stored
is not simulated again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from benchmarks.experiments.answer_world.simulate import Plain
from benchmarks.experiments.answer_world.world import Truth

# Of kind, samples, number and the file of the truth.
MakeStudy = Callable[[str, int, int, Path], Plain]
Cell = tuple[str, int]  # kind and samples


def stored(path: Path) -> list[Plain]:
    """The studies of a file, by number; a line that an interruption tore is none."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}\n")]
    return sorted(found, key=lambda one: one["number"])


def append(path: Path, studies: Sequence[Plain]) -> None:
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + "".join(json.dumps(one) + "\n" for one in studies))


def chunk(study: MakeStudy, cell: Cell, numbers: Sequence[int], truth: Path) -> list[Plain]:
    return [study(*cell, number, truth) for number in numbers]


def simulated(
    study: MakeStudy,
    cells: Sequence[Cell],
    directory: Path,
    prefix: str,
    studies: int,
    processes: int,
    at_once: int,
) -> dict[Cell, list[Plain]]:
    """The first studies of each cell, those that its file lacks simulated first;
    cells advance together."""
    truth = directory / "truth.npz"
    Truth.load(truth)
    paths = {cell: directory / f"{prefix}{cell[0]}_{cell[1]}.jsonl" for cell in cells}
    done = {cell: {one["number"] for one in stored(path)} for cell, path in paths.items()}
    with ProcessPoolExecutor(processes) as pool:
        waiting = {}
        for start in range(0, studies, at_once):
            for cell in cells:
                if lacking := [
                    k for k in range(start, min(start + at_once, studies)) if k not in done[cell]
                ]:
                    waiting[pool.submit(chunk, study, cell, lacking, truth)] = cell
        for count, job in enumerate(as_completed(waiting), 1):
            append(paths[waiting[job]], job.result())
            print(f"{prefix}{count} of {len(waiting)}", end="\r", file=sys.stderr, flush=True)
    return {
        cell: [one for one in stored(path) if one["number"] < studies]
        for cell, path in paths.items()
    }
