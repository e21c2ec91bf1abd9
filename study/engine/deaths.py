"""Deaths of attempts: whose fault each is, and when the trial is tried again.

Ray tells no kill apart from another: of the kernel for want of memory, of an administrator, or by
the trial's own code. So what a death was shows only in what happens next.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from study.machines.ray_session import ClusterError, ClusterUnready
from trainables.outputs.outcome import Outcome
from trainables.training.attempt import BESIDE_OTHERS

Cause = Literal["process", "node", "out_of_memory", "machine"]  # keys of the ledger's `deaths`
GIB = 2**30
# Of an outcome that is no result, by its state.
CAUSES: dict[str, Cause] = {
    "out_of_memory": "out_of_memory",
    "interrupted": "process",
    "denied": "machine",
}
# Seconds until a trial is tried again, doubled with each of its deaths.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
# Deaths in a row until a trial trains alone: while others go on, and while none does.
TRIES = 2
TRIES_OF_ALL = 3
# Deaths of one trial after which the run ends, if none goes on meanwhile.
ROUNDS = 4


@dataclass(frozen=True)
class Memory:
    """In bytes. limit: from which on processes are killed. own: of the trial that died, if it is
    known; it is part of what was used."""

    used: int
    limit: int
    own: int | None = None

    @property
    def others(self) -> int:
        return self.used - (self.own or 0)

    def __str__(self) -> str:
        own = "" if self.own is None else f", the trial's own {self.own / GIB:.2f} GiB"
        return f"used {self.used / GIB:.2f} GiB, limit {self.limit / GIB:.2f} GiB{own}"


@dataclass(frozen=True)
class Death:
    """How an attempt ended without a result.

    cause: `machine` if from outside: by Ray's memory monitor, a signal, or because the machine gave
    no process or memory. memory: of its node, where it is known.
    """

    cause: Cause
    reason: str
    memory: Memory | None = None

    @property
    def on_idle_node(self) -> bool:
        """Whether others left the trial half of its node's memory, as far as that is known."""
        return self.memory is None or self.memory.others <= self.memory.limit / 2

    @property
    def of_too_big(self) -> bool:
        """Whether the trial had more than half of its node's memory, and others not all of it."""
        memory = self.memory
        if memory is None or memory.own is None:
            return False
        return memory.own > memory.limit / 2 and memory.others < memory.limit

    @property
    def told(self) -> str:
        return self.reason if self.memory is None else f"{self.reason} ({self.memory})"

    @property
    def blame(self) -> str:
        """The reason of a trial that fails for it."""
        own_code = "" if self.reason.startswith("out of memory") else "out of memory or its code: "
        return own_code + self.told


def death_in(outcome: Outcome) -> Death | None:
    """What ended an attempt that tells of it; None of one that came to a result."""
    cause = CAUSES.get(outcome.state)
    return None if cause is None else Death(cause, str(outcome.reason))


def death_of(message: str, actor: str | None = None) -> Death:
    """What the message of Ray's exception says of the death of a process, the actor of that id."""
    message = " ".join(message.split())
    if foreign := re.search(
        r"No module named '((?:study|trainables|search_spaces)[\w.]*)'", message
    ):
        raise ClusterError(
            "a Ray worker imports another package instead of calstudy's: it has no module"
            f" {foreign.group(1)}",
            "Rename that folder or file, or take it off the worker's PYTHONPATH.",
        )
    # Ray's OutOfMemoryError; what a trial raises begins with its traceback.
    if re.match(r"\d+ worker\(s\) were killed due to the node running low on memory", message):
        reason = "out of memory: Ray's memory monitor killed its process"
        return Death("machine", reason, _memory(message, actor))
    if lost := re.search(r"\bGpuLost: (?!.*\bGpuLost: )(.*)", message):
        cause: Cause = "node" if BESIDE_OTHERS in lost[1] else "process"
        return Death(cause, f"its GPU was lost: {lost[1][:300]}")
    if "node has died" in message or "node has been drained" in message:
        return Death("node", "its node died")
    # The process may live: its node's raylet or the network is gone.
    if "temporarily unavailable" in message:
        return Death("node", "its node could not be reached")
    because = re.search(r"because (its .*?)(?:\.(?:\s|$)|$)", message)
    detail = re.search(r"Worker exit detail: (.*?)(?:\.(?:\s|$)|$)", message)
    found = [match.group(1) for match in (because, detail) if match]
    reason = f"its process died: {'; '.join(found or [message or 'no reason given'])[:300]}"
    # Ray's ActorDiedError, of a process that no code of its own or Ray's ended in order.
    killed = re.match("The actor (died unexpectedly|is dead because its worker)", message)
    return Death("machine" if killed and "SYSTEM_ERROR" in message else "process", reason)


def _memory(message: str, actor: str | None) -> Memory | None:
    """What Ray's memory monitor says; it may have killed several actors at once."""
    found = re.search(r"Memory usage (\d+)B exceeded threshold of (\d+)B", message)
    if found is None:
        return None
    killed = re.findall(
        r"Selected to kill: \((?:Actor\((\w+)\))?[^()]*?actual memory used=([\d.]+)GB", message
    )
    own = [size for name, size in killed if name == actor or len(killed) == 1]
    return Memory(int(found[1]), int(found[2]), int(float(own[0]) * GIB) if own else None)


@dataclass(frozen=True)
class Rest:
    """What a trial waits for before it is tried again. until: by the monotonic clock. alone: no
    other trial trains."""

    until: float = 0.0
    alone: bool = False


NO_REST = Rest()


class Killings:
    """The deaths by the machine in this run, by trial or stack: how long each pauses, and whether
    all die alike."""

    def __init__(self) -> None:
        self._in_a_row: Counter[str] = Counter()  # since its own progress
        self._of_all: Counter[str] = Counter()  # since any progress
        self._epochs: dict[str, float] = {}  # by trial: the furthest one
        self._steps = 0  # how often any went on
        self._steps_then: dict[str, int] = {}  # at the first of its deaths in a row

    def went_on(self, name: str, epoch: float) -> None:
        """A trial has trained to that epoch; infinite: it ended well. What was trained before is no
        progress."""
        if epoch > self._epochs.get(name, 0):
            self._epochs[name] = epoch
            self._in_a_row.pop(name, None)
            self._of_all.clear()
            self._steps += 1

    def died(self, name: str, death: Death, now: float) -> Rest:
        """Until when it rests."""
        self._in_a_row[name] += 1
        self._of_all[name] += 1
        count = self._in_a_row[name]
        if count == 1:
            self._steps_then[name] = self._steps
        pause = min(FIRST_PAUSE * 2 ** (count - 1), LONGEST_PAUSE)
        alone = death.of_too_big or count >= (TRIES if self.only(name) else TRIES_OF_ALL)
        return Rest(now + pause, alone)

    @property
    def is_quiet(self) -> bool:
        """Whether none has died since any went on."""
        return not self._of_all

    def others_went_on(self, name: str) -> bool:
        """In this run."""
        return any(other != name for other in self._epochs)

    def others_went_on_since(self, name: str) -> bool:
        """Since the first of its deaths in a row: that others live tells of it."""
        return self._steps > self._steps_then.get(name, self._steps)

    def only(self, name: str) -> bool:
        """Whether no other has died since any went on."""
        return not self._of_all.keys() - {name}

    def may_ask(self, slots: int) -> bool:
        """Whether new trials may show that not all die: not once that many have."""
        return len(self._of_all) < max(2, slots)

    def all_die(self, name: str) -> bool:
        """Whether none went on while this one died that often."""
        return self._of_all[name] >= ROUNDS


def all_killed(name: str, death: Death, left: int, directory: Path) -> ClusterUnready:
    """What ends a run in which none goes on. left: trials to do. directory: of the trial."""
    trials = "1 trial is" if left == 1 else f"{left:,} trials are"
    return ClusterUnready(
        f"{trials} left to do, and each that is tried is killed, after pauses too. {name}:"
        f" {death.told}",
        "Free memory on its node, or train fewer at once, then run again: the study goes on."
        f" If nothing else takes memory there, see the logs in {directory}.",
    )


def with_memory(death: Death, memory: tuple[int, int] | None) -> Death:
    """The death with what is used on its node now, and the limit, where Ray did not tell."""
    if death.memory is not None or memory is None:
        return death
    return replace(death, memory=Memory(*memory))
