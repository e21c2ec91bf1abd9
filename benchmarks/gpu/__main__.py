"""Everything that must be seen on a GPU, in order, in the time there is.

    python -m benchmarks.gpu --data cifar10.parquet --state STATE --out OUT --seconds 570
    python -m benchmarks.gpu --stages equal study ...  # these alone, in this order
    python -m benchmarks.gpu --table OUT/gpu.jsonl  # Markdown for benchmarks/results/gpu.md
    python -m benchmarks.gpu --verify OUT  # at home: the trained model's files, on this machine
    python -m benchmarks.gpu --data digits --device cpu --small --state STATE --out OUT

Each stage is a process of its own, ended after eight minutes, and leaves one line of JSON in
OUT/gpu.jsonl, with what was expected of it; each of its cases leaves one in OUT/cases.jsonl as it
comes. Begun again with the same STATE it goes on where it stopped: a stage that failed is not
tried again, one for which there was too little time is, without the cases it has. All but `study`
need torch, torchvision, NumPy, SciPy, pyarrow and Pillow only, not Ray, Optuna or MLflow; the stage
`airbench` that package too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu import cases, stages
from benchmarks.gpu.cases import lines
from benchmarks.gpu.expected import judged

LONGEST = 480.0  # seconds of a stage
GRACE = 20.0  # seconds in which one that is interrupted may end
FILE = "gpu.jsonl"


def run(options: argparse.Namespace) -> int:
    """The stages that STATE has no line of, while there is time. 0 if none of all has failed."""
    for folder in (options.state, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    begun, state = time.monotonic(), options.state / FILE
    done = {line["stage"] for line in lines(state)}
    for name in options.stages or stages.STAGES:
        left = options.seconds - (time.monotonic() - begun)
        if name in done:
            continue
        if left < 30:
            print(f"{name}: no time left", flush=True)
            break
        found = played(name, options, min(LONGEST, left))
        if found is None:
            print(f"{name}: too little time left", flush=True)
            _copy_lines(options)
            break
        line = json.dumps(found)
        with state.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        _copy_lines(options)
    return int(any("failed" in line for line in lines(state)))


def _copy_lines(options: argparse.Namespace) -> None:
    """After each stage: what is written under OUT comes back though the command is ended."""
    for name in (FILE, cases.FILE):
        if (options.state / name).exists():
            shutil.copyfile(options.state / name, options.out / name)


def played(name: str, options: argparse.Namespace, limit: float) -> dict[str, Any] | None:
    """A stage in a process of its own; what it found, or why it failed. None if it was cut short:
    it had less than LONGEST seconds, and needed more."""
    words = [
        "--data",
        options.data,
        "--device",
        options.device,
        "--state",
        options.state,
        "--out",
        options.out,
    ]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.gpu",
        "--stage",
        name,
        *map(str, words),
    ]
    started = time.monotonic()
    command += ["--small"] if options.small else []
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as stage:
        try:
            said, errors = stage.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(stage)
            if limit < LONGEST:
                return None
            found: dict[str, Any] = {"failed": f"longer than {limit:.0f} s"}
        else:
            last = (said.strip().splitlines() or [""])[-1]
            found = (
                json.loads(last) if stage.returncode == 0 else {"failed": errors.strip()[-2000:]}
            )
    return {
        "stage": name,
        "device": options.device,
        "seconds": round(time.monotonic() - started, 1),
        **found,
        "as expected": judged(name, found),
    }


def _end(stage: subprocess.Popen[str]) -> None:
    """With all that it started: interrupted, so that it ends a daemon of its own; then killed."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(stage.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            stage.communicate(timeout=GRACE)


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: a row a stage, its numbers in words."""
    rows = ["| stage | s | found |", "|---|---|---|"]
    for line in found:
        values = {
            key: value for key, value in line.items() if key not in ("stage", "seconds", "device")
        }
        rows.append(f"| {line['stage']} | {line['seconds']:g} | {_in_words(values)} |")
    return "\n".join(rows)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_in_words(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_in_words, value)) or "none"
    return (
        f"{value:.4g}"
        if isinstance(value, float)
        else str(value).replace("\n", " ").replace("|", "/")
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="digits", help="a parquet file with images and labels, or `digits`"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--small", action="store_true", help="few steps of small networks: that every stage runs"
    )
    parser.add_argument("--state", type=Path, default=Path("gpu-state"))
    parser.add_argument("--out", type=Path, default=Path("gpu-out"))
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument(
        "--stages", nargs="+", choices=stages.STAGES, metavar="STAGE", help="these alone, in order"
    )
    parser.add_argument("--table", type=Path, help="a gpu.jsonl to print")
    parser.add_argument("--verify", type=Path, help="a folder OUT of another machine")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(lines(options.table)))
        return 0
    if options.verify:
        print(json.dumps(stages.verified(options.verify, options)))
        return 0
    if options.stage:
        stage = {**stages.STAGES, "actor": stages.actor}[options.stage]
        print(json.dumps(stage(options)))
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
