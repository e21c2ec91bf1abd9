"""Waiting for the nodes of a cluster that starts or grows, before its first trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from study.machines.admission import check_nodes
from study.machines.guarded import Unfit
from study.machines.held import LATER, NOTHING, free_slots, held_line, holders
from study.machines.nodes import alive_nodes
from study.machines.ray_compat import autoscaler_is_active
from study.machines.ray_session import (
    ClusterUnready,
    Node,
    check_fits,
    in_words,
    offers,
    ray_nodes,
)
from study.schema.resources import most_slots, slots
from study.schema.spec import StudySpec
from study.schema.wait import Wait, duration

LOOK_SECONDS = 2.0
CHECK_SECONDS = 15.0  # between two questions to nodes that are not fit


def admitted(
    spec: StudySpec,
    root: Path,
    digest: str,
    wait: Wait,
    step: Callable[[str], None],
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> list[Unfit]:
    """Wait for the nodes that were asked for and check them: those on which no trial should run.

    step: is told what is being done; say: what stays. Ray must be joined. Raises ClusterError if
    trials fit on no node, ClusterUnready if they do not in time, or no node is fit.
    """
    check = partial(check_nodes, spec, root, digest, step)
    grows = autoscaler_is_active() is True
    patience = wait.patience(grows)
    if patience is None:
        check_fits(ray_nodes(), spec.needs)
        return check()
    return _Arrival(spec, wait, patience, check, step, say, grows).awaited(stopped)


class _Arrival:
    """Nodes that arrive one after another, and what is free on them. grows: an autoscaler adds
    some for trials that wait; then nothing has to be free."""

    def __init__(
        self,
        spec: StudySpec,
        wait: Wait,
        patience: str,
        check: Callable[[], list[Unfit]],
        step: Callable[[str], None],
        say: Callable[[str], None],
        grows: bool,
    ) -> None:
        self._grows = grows
        self._needs = spec.needs
        self._wait = wait
        self._patience = patience
        self._check = check
        self._step = step
        self._say = say
        self._told = ""
        self._large: list[Node] = []  # alive, and large enough for a trial
        self._unfit: list[Unfit] = []
        self._problem: ClusterUnready | None = None  # of nodes that are all unfit
        self._checked: set[str] = set()  # the ids of nodes
        self._next_check = 0.0

    def awaited(self, stopped: Callable[[], bool]) -> list[Unfit]:
        until = time.monotonic() + duration(self._patience)
        while True:
            over = time.monotonic() >= until
            self._large = [
                node
                for node in alive_nodes()
                if any(slots([node], each) for each in self._needs.values())
            ]
            # One after another they would be checked as often as they come.
            if (over or not self._lacks(self._large)) and self._is_due():
                self._check_now()
            lacks = self._lacks(self._fit) or self._held()
            if not lacks and self._checked:
                return self._unfit
            if over:
                return self._at_last(lacks)
            if stopped():
                raise KeyboardInterrupt
            self._tell(lacks)
            time.sleep(min(LOOK_SECONDS, max(0.0, until - time.monotonic())))

    @property
    def _fit(self) -> list[Node]:
        off = {unfit.node for unfit in self._unfit}
        return [node for node in self._large if node["NodeID"] not in off]

    def _is_due(self) -> bool:
        """Whether there are nodes that were not checked, or it is time to ask unfit ones again."""
        ids = {node["NodeID"] for node in self._large}
        again = bool(self._unfit) and time.monotonic() >= self._next_check
        return bool(ids) and (again or not ids <= self._checked)

    def _check_now(self) -> None:
        self._told = ""
        try:
            self._unfit = self._check()
            self._problem = None
        except ClusterUnready as error:
            self._unfit = [Unfit(node["NodeID"], str(error)) for node in self._large]
            self._problem = error
        self._checked = {node["NodeID"] for node in self._large}
        self._next_check = time.monotonic() + CHECK_SECONDS

    def _unplaced(self, nodes: Sequence[Node]) -> str | None:
        """A method whose trials fit on none of these nodes."""
        for label, needs in self._needs.items():
            if not slots(nodes, needs):
                return label
        return None

    def _lacks(self, nodes: Sequence[Node]) -> str:
        """What is still to come, in words; empty if nothing is."""
        if label := self._unplaced(nodes):
            return f"a node with {in_words(self._needs[label])} for a trial of {label}"
        if self._wait.nodes and len(nodes) < self._wait.nodes:
            return f"nodes: {len(nodes)} of {self._wait.nodes} there"
        if self._wait.slots and most_slots(nodes, self._needs.values()) < self._wait.slots:
            return f"slots: {most_slots(nodes, self._needs.values())} of {self._wait.slots} there"
        return ""

    def _held(self) -> str:
        """What others hold of the slots to wait for, in words; empty where enough are free."""
        nodes = self._fit
        if self._grows or not self._wait.options:
            return ""
        if line := held_line(self._needs, nodes):
            return line
        free = max(free_slots(nodes, needs) for needs in self._needs.values())
        if not self._wait.slots or free >= self._wait.slots:
            return ""
        kinds = {kind for needs in self._needs.values() for kind in needs.to_ray()}
        return f"slots: {free} of {self._wait.slots} free; {holders(nodes, sorted(kinds))}"

    def _tell(self, lacks: str) -> None:
        passed_over = f" ({len(self._unfit)} passed over)" if self._unfit else ""
        what = ": " if lacks.startswith(NOTHING) else " for "
        line = f"waiting up to {self._patience}{what}{lacks}{passed_over}"
        if line != self._told:
            self._told = line
            self._step(line)

    def _at_last(self, lacks: str) -> list[Unfit]:
        """The time is up: go on with what is there."""
        label = self._unplaced(self._fit)
        if label is None:
            if (held := self._held()).startswith(NOTHING):
                raise ClusterUnready(f"--wait: after {self._patience} {held}", LATER)
            kind, _, found = lacks.partition(": ")
            count, _, held = found.partition("; ")
            held = held and f" ({held})"
            self._say(
                f"--{kind}: {count} after {self._patience}{held}; the study begins with these."
            )
            return self._unfit
        if self._problem is not None:
            raise self._problem
        there = offers(alive_nodes())
        has = f"nodes have {there}" if there else "there is no node"
        raise ClusterUnready(
            f"--wait: after {self._patience} no node fits a trial of {label}, which needs"
            f" {in_words(self._needs[label])}; {has}",
            "Run again once there is one, or wait longer.",
        )
