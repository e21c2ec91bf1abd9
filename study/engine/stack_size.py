"""How many trials of a study are trained as one program: decided when it begins, and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from study.engine.probe import settings_of, slots_here
from study.engine.proposing import most_pending, trials_without_results
from study.engine.stacking import numbers_in
from study.machines.ray_session import Node
from study.schema.errors import located
from study.schema.resources import fitting
from study.schema.spec import StudySpec, alone_in_words
from study.schema.variant import with_values
from study.store.recorded import Stacked
from study.store.study import Study
from trainables.config import TrialConfig, with_value
from trainables.kinds import count_of
from trainables.loading.cache import Prepared
from trainables.loading.frozen import backbone_of
from trainables.machine import free_memory
from trainables.problems import FieldError
from trainables.stacks import likeness, row_bytes

MOST = 256  # trials in a stack, by `auto`
LEAST = 4  # of a method: fewer hardly pay (`python -m benchmarks.stacks`)
SHARE = 0.5  # of a slot's memory, for what the trials of a stack have of their own


@dataclass(frozen=True)
class Room:
    """How many trials fit at once, and bytes of memory for each; None: unknown."""

    slots: int
    memory: float | None

    def holds(self, row: int) -> float:
        """How many rows of a stack have room in one."""
        return math.inf if self.memory is None else self.memory * SHARE // row


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
        line = f"up to {numbers * methods} {as_one}: {numbers} of {count_of(methods, 'methods')}"
        if paths := list(dict.fromkeys(_told_apart(spec))):
            line += f"; searched {' and '.join(paths)}: trials of equal values only"
        if alone := spec.alone:
            line += f"; alone are {', '.join(alone)} ({alone_in_words(alone)})"
        return line


def room_here(spec: StudySpec, cpus: int | None = None) -> Room:
    """This machine's. Raises ClusterError if trials of a method do not fit."""
    slots = slots_here(spec, cpus)
    free = free_memory()
    return Room(slots, None if free is None else free / slots)


def room_on(spec: StudySpec, nodes: Iterable[Node]) -> Room:
    """That of Ray's nodes: the memory of the one that has least for each trial."""
    slots = 0
    memory = math.inf
    for offered in (node["Resources"] for node in nodes if node["Alive"]):
        if fit := max(fitting(offered, needs) for needs in spec.needs.values()):
            slots += fit
            memory = min(memory, offered.get("memory", math.inf) / fit)
    return Room(slots, memory if math.isfinite(memory) else None)


def stacks_of(
    spec: StudySpec,
    file_name: str,
    stored: Study | None,
    prepared: Prepared,
    room: Callable[[], Room],
) -> Stacks:
    """As recorded by a study that has trained, else what is to be recorded.

    stored: the study as it exists. Raises SpecError if memory does not hold what is asked.
    """
    if stored is not None and stored.traces.trained:
        why = "as the study began" if spec.stack == "auto" else "stack: off"
        return Stacks(stored.recorded.stack, why)
    with located(file_name):
        return _decided(spec, prepared, room)


def _decided(spec: StudySpec, prepared: Prepared, room: Callable[[], Room]) -> Stacks:
    labels = spec.stackable
    device = "gpu" if any(spec.resources_of(label).gpu for label in labels) else "cpu"
    if why := _why_none(spec, device):
        return Stacks(None, why)
    found = room()
    if isinstance(spec.stack, int):
        rows = min(spec.stack, spec.trials * len(labels))
        if device == "cpu":
            _check_memory(rows, _row_bytes(spec, prepared), found)
        return Stacks(Stacked(spec.stack, device))
    # As many as leave a stack for each slot.
    at_once = len(labels) * min(_at_once(spec, label) for label in labels)
    rows = min(math.ceil(at_once / max(1, found.slots)), MOST)
    rows = min(rows, numbers_in(spec, rows) * len(labels))
    if (numbers := numbers_in(spec, rows)) < LEAST:
        has = f"with one for each of {count_of(found.slots, 'slots')} a stack has {numbers}"
        return Stacks(None, f"{has} of a method, and fewer than {LEAST} hardly pay")
    rows = int(min(rows, found.holds(_row_bytes(spec, prepared))))
    if rows < LEAST:
        return Stacks(None, "memory holds no more")
    return Stacks(Stacked(rows, device))


def _why_none(spec: StudySpec, device: str) -> str | None:
    """Why there are no stacks, apart from the room."""
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


def _row_bytes(spec: StudySpec, prepared: Prepared) -> int:
    """What the largest trial has of its own in a stack."""
    data: dict[str, Prepared] = {}  # by network
    found = []
    for label in spec.stackable:
        for _, setting in settings_of(spec.variant(label).space):
            trial = TrialConfig.from_mapping(with_values(spec.trial_mapping(label), setting))
            network = repr(trial.model)
            if network not in data:
                data[network] = prepared
                if trial.model.frozen:
                    data[network] = backbone_of(trial.model, prepared)[1]
            found.append(row_bytes(trial, data[network]))
    return max(found)


def _check_memory(rows: int, row: int, room: Room) -> None:
    """Raise FieldError if a slot's memory does not hold so many rows."""
    if rows > (held := room.holds(row)):
        assert room.memory is not None
        found = (
            f"{rows} trials in a stack take {rows * row / 1e9:.3g} GB, and a slot has"
            f" {room.memory / 1e9:.3g} GB, half of it for them"
        )
        mend = f"Write {held:.0f} or less." if held >= 2 else "Write off."
        raise FieldError("stack", found, mend)


def _told_apart(spec: StudySpec) -> Iterator[str]:
    """The searched paths whose values the trials of one stack share."""
    for label in spec.stackable:
        plain = spec.trial_mapping(label)
        for path in spec.variant(label).space.distributions:
            some, other = (likeness(with_value(plain, path, value)) for value in "ab")
            if some != other:
                yield path
