"""FitNodes: which nodes may train. One that is not as the study needs it is passed over, asked
again every minute, and used again once it is."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Container, Sequence
from queue import SimpleQueue

from study.machines.admission import Answers
from study.machines.guarded import Unfit
from study.machines.ray_session import ClusterUnready, Node, ray_nodes
from study.schema.resources import Resources, fitting
from trainables.machine import free_memory, memory

LOOK_SECONDS = 5.0
ASK_SECONDS = 60.0  # between two questions to a node that is passed over
PATIENCE = 600.0  # seconds without a fit node until the run ends


class FitNodes:
    """The nodes of the joined Ray.

    needs: of the trials, per method. ask: asks these nodes again; it may take a while. say: is told
    what becomes of a node. is_here: Ray is this machine's alone. patience: seconds without a fit
    node until the run ends.
    """

    def __init__(
        self,
        needs: Sequence[Resources],
        ask: Callable[[Sequence[Node]], Answers],
        say: Callable[[str], None],
        is_here: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self._needs = needs
        self._ask = ask
        self._say = say
        self._is_here = is_here
        self._patience = patience
        self._nodes: list[Node] = []  # alive, and large enough for a trial
        self._looked = -math.inf
        self._unfit: dict[str, str] = {}  # by node id: why
        self._unproven: set[str] = set()  # used again, and nothing trained since
        self._answers: SimpleQueue[Answers] = SimpleQueue()
        self._next_question = -math.inf  # infinite while one is asked
        self._last_fit = time.monotonic()
        self._told_none = False  # that there is no fit node

    @property
    def passed_over(self) -> frozenset[str]:
        """The ids of nodes."""
        return frozenset(self._unfit)

    def slots(self) -> int:
        """How many trials fit now; looked up every LOOK_SECONDS."""
        return self._slots_without(self._unfit)

    def pass_over(self, unfit: Unfit) -> None:
        """Give a node no more trials until it has been mended."""
        if not self._unfit:
            self._next_question = time.monotonic() + ASK_SECONDS
        is_new = self._unfit.get(unfit.node) != unfit.because
        self._unfit[unfit.node] = unfit.because
        if is_new:
            name = self._name(unfit.node)
            self._say(f"{name} is passed over: it {unfit.because} It is asked again every minute.")

    def trained(self) -> None:
        """A trial reported: the node it is on is fit."""
        self._unproven.clear()
        self._last_fit = time.monotonic()

    def memory(self) -> tuple[int, int] | None:
        """Bytes used of this machine's memory, and of it all; None where trials train elsewhere."""
        free = free_memory() if self._is_here else None
        return None if free is None else (memory() - free, memory())

    def look(self) -> None:
        """Called often: follows which nodes there are, and asks those that are passed over.

        Raises ClusterUnready after its patience without a fit node.
        """
        while not self._answers.empty():
            self._take(self._answers.get())
        now = time.monotonic()
        if self._unfit and now > self._next_question:
            self._ask_again()
        if self._slots_without(self._unfit.keys() | self._unproven):
            self._last_fit = now
            self._told_none = False
        elif not self.slots():
            self._wait(now)

    def _wait(self, now: float) -> None:
        """For a node to train on, but not for ever."""
        if not (self._told_none or self._is_here):
            self._told_none = True
            self._say(f"nothing is fit to train on; waiting up to {self._patience / 60:g} minutes.")
        if now - self._last_fit > self._patience:
            raise ClusterUnready(*self._why_none())

    def _slots_without(self, others: Container[str]) -> int:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._look_up()
        nodes = [node for node in self._nodes if node["NodeID"] not in others]
        return max(sum(fitting(node["Resources"], each) for node in nodes) for each in self._needs)

    def _look_up(self) -> None:
        """Which nodes there are, and which are gone."""
        large = [
            node
            for node in ray_nodes()
            if node["Alive"] and any(fitting(node["Resources"], each) for each in self._needs)
        ]
        there = {node["NodeID"] for node in large}
        where = "elsewhere" if there else "once another node joins"
        for node in self._nodes:
            if node["NodeID"] not in there:
                self._unfit.pop(node["NodeID"], None)
                self._unproven.discard(node["NodeID"])
                if not self._is_here:  # else Ray itself is lost, which `watching` tells
                    self._say(f"{self._name(node['NodeID'])} is gone; its trials go on {where}.")
        self._nodes = large
        self._looked = time.monotonic()

    def _ask_again(self) -> None:
        nodes = [node for node in self._nodes if node["NodeID"] in self._unfit]
        self._next_question = math.inf

        def ask() -> None:
            answers: Answers = {}
            try:
                answers = self._ask(nodes)
            finally:  # where Ray is gone, the run ends for that
                self._answers.put(answers)

        threading.Thread(target=ask, name="asking nodes", daemon=True).start()

    def _take(self, answers: Answers) -> None:
        self._next_question = time.monotonic() + ASK_SECONDS
        for node, because in answers.items():
            if because is not None:
                self.pass_over(Unfit(node, because))
            elif node in self._unfit:
                del self._unfit[node]
                self._unproven.add(node)
                self._say(f"{self._name(node)} is used again.")

    def _name(self, node_id: str) -> str:
        if self._is_here:
            return "this machine"
        for node in (*self._nodes, *ray_nodes()):
            if node["NodeID"] == node_id:
                return f"node {node['NodeManagerAddress']}"
        return f"node {node_id[:8]}"

    def _why_none(self) -> tuple[str, str]:
        minutes = f"{self._patience / 60:g} minutes"
        if not self._unfit:
            return f"there was no node to train on for {minutes}", "Start one, and run again."
        node, because = next(iter(self._unfit.items()))
        found = f"nothing was fit to train on for {minutes}: {self._name(node)} {because}"
        return found, "Then run again: the study goes on."
