"""The Ray Tune trainables: Ray's shell around an attempt.

The only file of this package that imports Ray.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ray.tune import PlacementGroupFactory, Trainable

from trainables import methods
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.machine import keep_freed_memory
from trainables.outputs.outcome import Report, reports_to_json
from trainables.plain import Plain
from trainables.training import checkpoint
from trainables.training.attempt import Assignment, Attempt
from trainables.training.learner import Learner
from trainables.training.stacked_attempt import StackedAttempt


class CalibrationTrainable(Trainable):
    """Trains the assignment in `config["assignment"]`, of a trial or a stack; each result has a
    `Report` of each trial, as JSON, and for Tune's own tables and callbacks their `latest` values.

    One class for all methods, so that actors are reused.
    """

    _attempt: Attempt | StackedAttempt | None = None

    @classmethod
    def default_resource_request(cls, config: dict[str, str]) -> PlacementGroupFactory:
        plain = json.loads(config["assignment"])
        resources = plain["rows"][0]["resources"] if "rows" in plain else plain["resources"]
        return PlacementGroupFactory([{"CPU": resources["cpu"], "GPU": resources["gpu"]}])

    def setup(self, config: dict[str, str]) -> None:
        if self._attempt is not None:
            self._attempt.leave()
        plain = json.loads(config["assignment"])
        if "rows" in plain:
            self._attempt = StackedAttempt([Assignment(**row) for row in plain["rows"]])
        else:
            self._attempt = Attempt(Assignment(**plain))

    def reset_config(self, new_config: dict[str, str]) -> bool:
        self.setup(new_config)
        return True

    def prepared(self) -> dict[str, Plain]:
        """The first result of a new process, once the data are there."""
        assert self._attempt is not None
        self._attempt.prepare()
        return {"reports": reports_to_json({}), "done": False}

    def step(self) -> dict[str, Plain]:
        assert self._attempt is not None
        reports = self._attempt.reports()
        told = reports_to_json(reports)
        return {**latest(reports), "reports": told, "done": self._attempt.is_over}


def latest(reports: Mapping[str, Report]) -> dict[str, Plain]:
    """The metrics of the last epoch, and those at a trial's end; of a stack by the trials' names,
    as `focal/0003/accuracy`."""
    found: dict[str, Plain] = {}
    for name, report in reports.items():
        values = dict(report.rows[-1]) if report.rows else {}
        if report.outcome is not None:
            values |= report.outcome.metrics or {}
        before = "" if len(reports) == 1 else f"{name}/"
        found |= {f"{before}{metric}": value for metric, value in values.items()}
    return found


def trainable_for(method: str) -> type[Trainable]:
    """A trainable of one method for your own Tuner: `trainable_for("focal")` is FocalTrainable.

    Its config has TrialConfig's values by dotted path: {"data": "digits", "model": "mlp",
    "method.gamma": tune.uniform(0, 5), "epochs": 20}. Each step trains an epoch and reports its
    history row; the last one adds every validation metric.
    """
    method_class = methods.find(method)

    class MethodTrainable(Trainable):
        """One trial of one method, on the device Ray assigns."""

        def setup(self, config: dict[str, Plain]) -> None:
            trial = TrialConfig.from_mapping({"method": method}, config)
            device = _assigned(self.trial_resources)
            if device.type == "cpu":
                keep_freed_memory()
            self._learner = Learner(trial, trial_data(trial, device), device)

        def reset_config(self, new_config: dict[str, Plain]) -> bool:
            self._learner.leave()
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Plain]:
            row = self._learner.train_epoch()
            if not self._learner.finished:
                return {**row, "done": False}
            self._learner.take_result()
            return {**row, **self._learner.predictions().evaluate(), "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            checkpoint.save(self._learner, Path(checkpoint_dir) / "last.pt")

        def load_checkpoint(self, folder: Any) -> None:
            file = Path(folder) / "last.pt"
            if not checkpoint.load(self._learner, file):
                raise ValueError(f"{file} is not an intact checkpoint of this trial.")

    MethodTrainable.__name__ = MethodTrainable.__qualname__ = f"{method_class.__name__}Trainable"
    return MethodTrainable


def _assigned(resources: PlacementGroupFactory | None) -> torch.device:
    """The device that Tune gives a trial, None: outside of Tune. Ray hides no GPU from a trial that
    has none."""
    needs = {"GPU": 1.0} if resources is None else resources.required_resources
    has_gpu = needs.get("GPU", 0.0) > 0 and torch.cuda.is_available()
    return torch.device("cuda" if has_gpu else "cpu")
