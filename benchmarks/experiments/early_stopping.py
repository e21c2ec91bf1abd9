"""Early stopping under SIGKILL: what is decided, and that every decision can be made again.

One slot, the random sampler, two kills: parameters, decisions and predictions must be those
of a run left alone. Four slots, ten kills: the audit recomputes every decision, and no trial
is lost or counted twice. Run: python -m benchmarks.experiments.early_stopping
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from study.store.study import open_study

SPEC: dict[str, Any] = {
    "name": "early",
    "data": "digits",
    "model": "mlp",
    "methods": ["focal", "mbls"],
    "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
    "epochs": 12,
    "trials": 16,
    "checkpoint_seconds": 0,
    "sampler": {"name": "random", "seed": 3},
    "early_stopping": {"at": 0.33, "keep": 0.5, "by": ["brier", "ece"]},
}
DECISIONS = len(SPEC["methods"]) * SPEC["trials"]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "study.cli", *map(str, words)]


def run(storage: Path, slots: int, kills: int) -> None:
    """Run the study; SIGKILL to its driver so many times, evenly over the decisions."""
    storage.mkdir()
    spec, ledger = storage / "early.yaml", storage / "early" / "ledger.log"
    spec.write_text(yaml.safe_dump(SPEC))
    words = command("run", spec, "--storage", storage, "--cpus", slots)
    for kill in range(1, kills + 1):
        driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while driver.poll() is None and _decided(ledger) < kill * DECISIONS // (kills + 1):
            time.sleep(0.005)
        if driver.poll() is not None:
            raise RuntimeError(
                f"{storage.name}: the driver ended before kill {kill}, exit {driver.returncode}"
            )
        driver.kill()
        driver.wait()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _decided(ledger: Path) -> int:
    return ledger.read_text().count('"rungs"') if ledger.exists() else 0


def told(storage: Path) -> dict[str, Any]:
    """Of each trial what must not depend on kills; predictions by their digests."""
    found = {}
    for record in open_study("early", str(storage)).records():
        rungs = {
            epoch: [rung.place, rung.costs, rung.goes_on, rung.digests]
            for epoch, rung in record.rungs.items()
        }
        predictions = {
            name: digest for name, digest in record.digests.items() if name.endswith(".npz")
        }
        found[record.name] = (record.state, record.params, rungs, predictions, record.metrics)
    return found


def audited(storage: Path) -> str:
    done = subprocess.run(
        command("audit", "early", "--storage", storage, "--json"), capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    rungs = next(check for check in report["checks"] if check["name"] == "rungs")
    again = report["epochs"]["repeated"]
    return (
        f"{'clean' if report['clean'] else 'NOT CLEAN'}; {rungs['counted']} decisions recomputed,"
        f" {len(rungs['offenders'])} differ; {report['lost']} lost, {report['duplicated']}"
        f" duplicated; {again} epochs repeated, promised at most {report['epochs']['promised']};"
        f" attempts of a trial: at most {_attempts(storage)}"
    )


def _attempts(storage: Path) -> int:
    return max(record.attempt for record in open_study("early", str(storage)).records())


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run(root / "whole", 1, 0)
        run(root / "twice", 1, 2)
        whole, twice = told(root / "whole"), told(root / "twice")
        equal = sum(twice.get(name) == one for name, one in whole.items())
        stopped = sum(one[0] == "pruned" for one in whole.values())
        same = f"{equal} of {len(whole)} trials equal ({stopped} stopped early)"
        print(f"one slot, 2 kills: {same}; {audited(root / 'twice')}", flush=True)
        run(root / "ten", 4, 10)
        stopped = sum(one[0] == "pruned" for one in told(root / "ten").values())
        print(
            f"four slots, 10 kills: {stopped} of {DECISIONS} stopped early; {audited(root / 'ten')}"
        )


if __name__ == "__main__":
    main()
