"""What `calstudy plan --probe` predicts, against the run it predicts: CPU seconds of all processes.

    python benchmarks/experiments/probe.py cifar10.parquet  # half an hour on two cores; a table
    python benchmarks/experiments/probe.py --study digits --repeats 1

- digits: study/specs/digits.yaml, 144 trials of a fifth of a second: a third
  of the time is the driver's;
- cifar10: 2,500 training images, `cnn` of width 12 in bfloat16, four methods, five
  trials, a batch size to search;
- packed: digits, trials of a quarter of a CPU, four to each.

CPU seconds are read from /proc every tenth of a second, of the run and all that it starts:
of a process that ends, what it did since the last look is lost. `trials` are the workers,
less their start; `driver` the driver and Ray's processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml

ROOT = Path(__file__).resolve().parents[2]
TICK, LOOK_SECONDS = os.sysconf("SC_CLK_TCK"), 0.1
CALSTUDY = [sys.executable, "-m", "study.cli"]


def digits(parquet: Path | None) -> dict[str, Any]:
    return dict(strict_yaml.read(ROOT / "study/specs/digits.yaml"))


def packed(parquet: Path | None) -> dict[str, Any]:
    return {
        **digits(parquet),
        "name": "packed",
        "trials": 8,
        "epochs": 60,
        "resources": {"cpu": 0.25},
    }


def cifar10(parquet: Path | None) -> dict[str, Any]:
    assert parquet is not None, "give the CIFAR-10 parquet file"
    data = {
        "name": "parquet",
        "path": str(parquet.absolute()),
        "limit": 3200,
        "validation": 0.21875,
    }
    return {
        "name": "cifar10",
        "data": {**data, "augment": "crop_flip"},
        "model": {"name": "cnn", "width": 12},
        "methods": ["cross_entropy", "focal", "mixup", "sample_prioritization"],
        "search_space": {"batch_size": {"low": 32, "high": 128, "int": True, "log": True}},
        "precision": "bfloat16",
        "epochs": 10,
        "trials": 5,
    }


STUDIES = {"digits": digits, "cifar10": cifar10, "packed": packed}


def processes() -> dict[int, tuple[int, int, float, str]]:
    """By process id: its parent, its start, CPU seconds, its command line."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            values = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{name}/cmdline").read_text()
        except OSError:  # it has ended
            continue
        found[int(name)] = (
            int(values[1]),
            int(values[19]),
            (int(values[11]) + int(values[12])) / TICK,
            words,
        )
    return found


def cpu_seconds(command: list[str], directory: Path) -> dict[str, float]:
    """Run it to its end; CPU seconds of Ray's workers that train, and of the rest."""
    with (directory / "output").open("wb") as output:
        run = subprocess.Popen(command, stdout=output, stderr=output)
        ours, seconds, workers = {run.pid}, {}, set()
        while run.poll() is None:
            rows = processes()
            while new := {number for number, row in rows.items() if row[0] in ours} - ours:
                ours |= new
            for number in ours & rows.keys():
                _, start, used, words = rows[number]
                seconds[number, start] = used
                if words.startswith("ray::CalibrationTrainable"):
                    workers.add((number, start))
            time.sleep(LOOK_SECONDS)
    assert run.returncode == 0, (directory / "output").read_text()[-2000:]
    trained = sum(seconds[each] for each in workers)
    return {"workers": trained, "driver": sum(seconds.values()) - trained}


def repeat(name: str, parquet: Path | None) -> dict[str, float]:
    """Predict a study, then run it."""
    with tempfile.TemporaryDirectory(prefix="calstudy-probe-benchmark-") as folder:
        directory = Path(folder)
        spec = directory / f"{name}.yaml"
        spec.write_text(strict_yaml.dump(STUDIES[name](parquet)))
        options = ["--storage", folder]
        # The data's cache.
        subprocess.run([*CALSTUDY, "plan", str(spec), *options], check=True, capture_output=True)
        began = time.monotonic()
        shown = subprocess.run(
            [*CALSTUDY, "plan", str(spec), "--probe", "--json", *options],
            check=True,
            stdout=subprocess.PIPE,
        )
        probe, taken = json.loads(shown.stdout)["probe"], time.monotonic() - began
        real = cpu_seconds([*CALSTUDY, "run", str(spec), *options], directory)
    trials = sum(method["process_seconds"] for method in probe["methods"])
    return {
        "probe": taken,
        "trials": trials,
        "real_trials": real["workers"] - probe["workers"],
        "driver": probe["driver"],
        "real_driver": real["driver"],
        "whole": probe["process_seconds"],
        "real_whole": sum(real.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parquet", type=Path, nargs="?", help="CIFAR-10: columns label, image, split"
    )
    parser.add_argument("--study", choices=STUDIES, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(
        "| study | probe took | trials: predicted / real | driver and Ray | whole run | predicted /"
        " real |"
    )
    print("|---|---|---|---|---|---|")
    # In turn: the machine may be busier at one time than at another.
    for _ in range(options.repeats):
        for name in options.study or STUDIES:
            found = repeat(name, options.parquet)
            print(
                f"| {name} | {found['probe']:.0f} s | {found['trials']:.1f} /"
                f" {found['real_trials']:.1f} s | {found['driver']:.1f} /"
                f" {found['real_driver']:.1f} s | {found['whole']:.1f} / {found['real_whole']:.1f}"
                f" s | **{found['whole'] / found['real_whole']:.2f}** |",
                flush=True,
            )


if __name__ == "__main__":
    main()
