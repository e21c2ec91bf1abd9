"""How many trials of a study are trained as one program: decided when it begins, and recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from study.engine.probe import settings_of
from study.engine.stacking import MOST, rows_of
from study.schema.errors import located
from study.schema.spec import StudySpec, alone_in_words
from study.schema.variant import with_values
from study.store.recorded import Stacked
from study.store.study import Study
from trainables.config import TrialConfig
from trainables.loading.cache import Prepared
from trainables.loading.frozen import backbone_of
from trainables.models.shared.whole_module import network_of
from trainables.problems import FieldError

LEAST = 4  # of a method, by `auto`: fewer hardly pay (`python -m benchmarks.stacks`)
# A stack that dies is trained again from its beginning. Eight trials with the most steps, or the
# most weights times samples seen, take about half a minute, as long as a lone trial may repeat:
# measured were .25 to .5 ms a step of a small mlp, and .9 s a trial of 2e9 (benchmarks/RESULTS.md).
MOST_STEPS = 10_000
MOST_WORK = 5e9


@dataclass(frozen=True)
class Stacks:
    """most: what the study records; None: each trial is trained alone, and why."""

    most: Stacked | None
    why: str = ""

    def line(self, spec: StudySpec) -> str:
        if self.most is None:
            return f"none, each trial is trained alone ({self.why})"
        rows = max(rows_of(spec, label, self.most.trials) for label in spec.stackable)
        line = f"up to {rows} trials of a method are trained as one program, on one slot"
        if alone := spec.alone:
            line += f"; alone are {', '.join(alone)} ({alone_in_words(alone)})"
        return line


def stacks_of(spec: StudySpec, file_name: str, stored: Study | None, prepared: Prepared) -> Stacks:
    """As recorded by a study that has trained, else what is to be recorded.

    stored: the study as it exists. Raises SpecError if what is asked would take too long.
    """
    if stored is not None and stored.traces.trained:
        recorded = "as the study began" if spec.stack == "auto" else "stack: off"
        return Stacks(stored.recorded.stack, recorded)
    if spec.stack == "off":
        return Stacks(None, "stack: off")
    device = "gpu" if any(spec.resources_of(label).gpu for label in spec.stackable) else "cpu"
    if isinstance(spec.stack, int):
        if why := _too_long(spec, prepared):
            with located(file_name):
                raise FieldError("stack", why, "Write off.")
        return Stacks(Stacked(spec.stack, device))
    if why := _why_none(spec, prepared, device):
        return Stacks(None, why)
    return Stacks(Stacked(MOST, device))


def _why_none(spec: StudySpec, prepared: Prepared, device: str) -> str | None:
    """Why `auto` makes no stacks."""
    if not spec.stackable:
        return alone_in_words(spec.alone)
    if spec.early_stopping is not None:
        return "early_stopping ends trials one by one"
    if device == "gpu":
        return "stacks were not measured on a GPU yet; `stack: K` makes them"
    if (rows := max(rows_of(spec, label, MOST) for label in spec.stackable)) < LEAST:
        return f"a stack has {rows} of a method, and fewer than {LEAST} hardly pay"
    return _too_long(spec, prepared)


def _too_long(spec: StudySpec, prepared: Prepared) -> str | None:
    """Why a stack that dies could not be trained again from its beginning."""
    for trial in _trials(spec):
        data = backbone_of(trial.model, prepared)[1] if trial.model.frozen else prepared
        samples = trial.epochs * data.sizes["train"]
        steps = math.ceil(samples / trial.batch_size)
        if steps > MOST_STEPS:
            return f"a trial takes {steps:,} steps, and of more than {MOST_STEPS:,} it trains alone"
        network = network_of(trial.model, data.input_shape, data.num_classes)
        weights = sum(each.numel() for each in network.parameters())
        if (work := weights * samples) > MOST_WORK:
            found = f"{weights:,} weights see {samples:,} samples: {work:.2g}"
            return f"{found}, and above {MOST_WORK:.2g} a trial trains alone"
    return None


def _trials(spec: StudySpec) -> Iterator[TrialConfig]:
    """The largest trials of each method, and others."""
    for label in spec.stackable:
        for _, setting in settings_of(spec.variant(label).space):
            yield TrialConfig.from_mapping(with_values(spec.trial_mapping(label), setting))
