"""How many trials of a study are trained as one program: decided when it begins, and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from study.engine.probe import settings_of
from study.engine.proposing import most_pending, trials_without_results
from study.engine.stacking import numbers_in
from study.schema.errors import located
from study.schema.spec import StudySpec, alone_in_words
from study.schema.variant import with_values
from study.store.recorded import Stacked
from study.store.study import StudyFolder
from trainables.config import TrialConfig
from trainables.kinds import count_of
from trainables.loading.cache import Prepared
from trainables.loading.frozen import backbone_of
from trainables.models.shared.whole_module import network_of
from trainables.problems import FieldError

MOST = 256  # trials in a stack, by `auto`
LEAST = 4  # of a method: fewer hardly pay (`python -m benchmarks.stacks`)
# A stack that dies is trained again from its beginning. BRIEF trials with the most steps, or the
# most weights times samples seen, take about half a minute, as long as a lone trial may repeat:
# measured were .25 to .5 ms a step of a small mlp, and .9 s a trial of 2e9
# (benchmarks/results/training.md).
BRIEF = 8
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
        numbers = numbers_in(spec, self.most.trials)
        methods = min(len(spec.stackable), self.most.trials // numbers)
        as_one = "trials are trained as one program, with the resources of one trial"
        each = "each of " if methods > 1 else ""
        line = (
            f"up to {numbers * methods} {as_one}: {numbers} of {each}{count_of(methods, 'methods')}"
        )
        if alone := spec.alone:
            line += f"; alone are {', '.join(alone)} ({alone_in_words(alone)})"
        return line


def stacks_of(
    spec: StudySpec,
    file_name: str,
    stored: StudyFolder | None,
    prepared: Prepared,
    slots: Callable[[], int],
) -> Stacks:
    """As recorded by a study that has trained, else what is to be recorded.

    stored: the study as it exists. slots: returns how many trials fit at once. Raises SpecError if
    what is asked would take too long.
    """
    if stored is not None and stored.traces.trained:
        why = "as the study began" if spec.stack == "auto" else "stack: off"
        return Stacks(stored.recorded.stack, why)
    device = "gpu" if any(spec.resources_of(label).gpu for label in spec.stackable) else "cpu"
    if (none := _why_none(spec, device)) is not None:
        return Stacks(None, none)
    held, too_long = min(_held(spec, prepared))
    if isinstance(spec.stack, int):
        if held < BRIEF:
            with located(file_name):
                raise FieldError("stack", too_long, "Write off.")
        return Stacks(Stacked(spec.stack, device))
    if held < BRIEF:
        return Stacks(None, too_long)
    # As many as leave a stack for each slot.
    found = slots()
    at_once = len(spec.stackable) * min(_at_once(spec, label) for label in spec.stackable)
    rows = min(math.ceil(at_once / max(1, found)), held, MOST)
    numbers = numbers_in(spec, rows)
    if numbers < LEAST:
        has = f"with one for each of {count_of(found, 'slots')} a stack has {numbers}"
        return Stacks(None, f"{has} of a method, and fewer than {LEAST} hardly pay")
    return Stacks(Stacked(min(rows, numbers * len(spec.stackable)), device, found))


def _why_none(spec: StudySpec, device: str) -> str | None:
    """Why there are no stacks, apart from how long trials are and how many."""
    if spec.stack == "off":
        return "stack: off"
    if not spec.stackable:
        return alone_in_words(spec.alone)
    if spec.stack == "auto" and spec.early_stopping is not None:
        return "early_stopping ends trials one by one"
    if spec.stack == "auto" and device == "gpu":
        return "stacks were not measured on a GPU yet; `stack: K` makes them"
    return None


def _at_once(spec: StudySpec, label: str) -> int:
    """How many trials of a method may be in training together."""
    learns = trials_without_results(spec, label) < spec.trials
    return min(spec.trials, most_pending(spec)) if learns else spec.trials


def _held(spec: StudySpec, prepared: Prepared) -> Iterator[tuple[int, str]]:
    """How many trials a stack may have that is soon trained again, by the largest of each method
    and others; and why, if those are not BRIEF."""
    of_frozen: dict[str, Prepared] = {}  # to read a network takes a second
    for label in spec.stackable:
        for _, setting in settings_of(spec.variant(label).space):
            trial = TrialConfig.from_mapping(with_values(spec.trial_mapping(label), setting))
            data = prepared
            if trial.model.frozen:
                model = repr(trial.model)
                data = of_frozen.get(model) or backbone_of(trial.model, prepared)[1]
                of_frozen[model] = data
            samples = trial.epochs * data.sizes["train"]
            steps = math.ceil(samples / trial.batch_size)
            why = f"a trial takes {steps:,} steps, and of more than {MOST_STEPS:,} it trains alone"
            yield BRIEF * MOST_STEPS // steps, why
            network = network_of(trial.model, data.input_shape, data.num_classes)
            weights = sum(each.numel() for each in network.parameters())
            work = weights * samples
            found = f"{weights:,} weights see {samples:,} samples: {work:.2g}"
            why = f"{found}, and above {MOST_WORK:.2g} a trial trains alone"
            yield int(BRIEF * MOST_WORK // work), why
