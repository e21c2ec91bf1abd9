"""A trial that only sleeps, for `scale.py`: to the driver it is a CalibrationTrainable; its
process has no torch."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable

SECONDS = 0.01
EPOCHS = 5
METRICS = (
    *(
        "accuracy",
        "error",
        "top5_accuracy",
        "nll",
        "brier",
        "ece",
        "mce",
        "adaptive_ece",
        "classwise_ece",
    ),
    *("smooth_ece", "debiased_l2"),
)
# In how many reports a trial tells of its epochs: 1, or EPOCHS.
REPORTS = int(os.environ.get("SCALE_REPORTS", "1"))


class Sleeping(Trainable):
    """Sleeps, then reports: EPOCHS rows of history, in REPORTS parts, and
    every metric of a classifier.

    The metrics are random, so that the front changes as a real one does.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        return PlacementGroupFactory([{"CPU": 1}])

    def setup(self, config: dict[str, Any]) -> None:
        self._assignment, self._rows = json.loads(config["assignment"]), []

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        began, done = time.time(), len(self._rows)
        time.sleep(SECONDS / REPORTS)
        draw = random.Random(f"{self._assignment['trial']} {done}")
        rows = [_row(epoch, began, draw) for epoch in range(done + 1, done + EPOCHS // REPORTS + 1)]
        self._rows += rows
        if len(self._rows) < EPOCHS:
            return self._told(rows, None)
        outcome = {
            "state": "complete",
            "metrics": {prefix + name: draw.random() for prefix in ("", "ts_") for name in METRICS},
            "epoch": EPOCHS,
            "seconds": SECONDS,
            "samples": 50_000 * EPOCHS,
            "device": "cpu",
            "digests": {"history.json": self._write_history(self._rows)},
        }
        return self._told(rows, outcome)

    def _told(self, rows: list[Any], outcome: dict[str, Any] | None) -> dict[str, Any]:
        told = {self._assignment["trial"]: {"rows": rows, "outcome": outcome}}
        return {"reports": json.dumps(told), "done": outcome is not None}

    def _write_history(self, rows: list[dict[str, float]]) -> str:
        """The one file of the trial, which the tracking reads; its sha256."""
        directory = Path(self._assignment["directory"]) / f"attempt-{self._assignment['attempt']}"
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(rows)
        (directory / "history.json").write_text(text)
        return hashlib.sha256(text.encode()).hexdigest()


def _row(epoch: int, began: float, draw: random.Random) -> dict[str, float]:
    measured = {name: draw.random() for name in ("train_loss", "accuracy", "nll", "brier", "ece")}
    return {
        "epoch": epoch,
        "time": began + SECONDS * epoch / EPOCHS,
        "seconds": SECONDS / EPOCHS,
        "samples": 50_000 * epoch,
        **measured,
    }
