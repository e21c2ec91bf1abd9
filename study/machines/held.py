"""What holds the CPUs and GPUs that trials wait for: other jobs of the cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from study.machines.nodes import alive_nodes
from study.machines.ray_compat import free_resources, holdings, other_jobs, own_job
from study.machines.ray_session import ClusterUnready, Node, in_words
from study.schema.resources import Resources, fitting, slots
from study.schema.wait import duration

LOOK_SECONDS = 2.0
# Seconds until it is said that nothing is free: what is free is taken sooner.
FIRST_SECONDS = 5.0
SHOWN = 3  # jobs
NOTHING = "nothing is free"
LATER = "Run again later, or wait longer."


def free_slots(nodes: Sequence[Node], needs: Resources) -> int:
    """How many trials fit on what no job holds of these nodes. A GPU of which a part is free may be
    two: then it is fewer."""
    free = free_resources()
    count = 0
    for node in nodes:
        left = free.get(node["NodeID"], {})
        part = {**left, "GPU": math.ceil(left.get("GPU", 0.0))} if 0 < needs.gpu < 1 else left
        fit = fitting(part, needs)
        if 0 < needs.gpu < 1:
            fit = min(fit, int(left.get("GPU", 0.0) / needs.gpu + 1e-4))
        count += fit
    return count


def holders(nodes: Sequence[Node], kinds: Collection[str]) -> str:
    """Which jobs hold what of these nodes: `1 CPU held by job 02000000 (python hog.py, process 188
    on 10.0.0.1)`. kinds: CPU, GPU."""
    jobs = other_jobs()
    left = dict.fromkeys(kinds, 0.0)
    free = free_resources()
    for node in nodes:
        for kind in kinds:
            left[kind] += node["Resources"].get(kind, 0) - free.get(node["NodeID"], {}).get(kind, 0)
    held: dict[str, dict[str, float]] = {}
    ids = {node["NodeID"] for node in nodes}
    for each in holdings():
        if each.node not in ids or not any(each.resources.get(kind) for kind in kinds):
            continue
        taken = held.setdefault(each.job, dict.fromkeys(kinds, 0.0))
        for kind in kinds:
            taken[kind] += each.resources.get(kind, 0.0)
            left[kind] -= each.resources.get(kind, 0.0)
    said = []
    for job, taken in sorted(held.items()):
        said.append(f"{_amount(taken)} held by job {job} ({jobs.get(job, 'which has ended')})")
    if any(count > 0.5e-4 for count in left.values()):  # by tasks, of which Ray tells nothing
        by = [f"job {job} ({words})" for job, words in sorted(jobs.items()) if job not in held]
        said.append(f"{_amount(left)} held by tasks of {_some(by, ' or ') or 'other jobs'}")
    return _some(said, "; ")


def _amount(taken: Mapping[str, float]) -> str:
    return " and ".join(f"{count:g} {kind}" for kind, count in taken.items() if count > 0.5e-4)


def _some(each: Sequence[str], between: str) -> str:
    """The first ones, and how many more there are."""
    more = [f"{len(each) - SHOWN} more jobs"] if len(each) > SHOWN else []
    return between.join([*each[:SHOWN], *more])


class Held:
    """Follows trials that wait although nodes are large enough.

    needs: of a trial, by label. off: the ids of nodes that are not used. tell: gets the line that
    says what holds the resources, None once trials begin. wait: --wait, after which the run ends.
    """

    def __init__(
        self,
        needs: Mapping[str, Resources],
        off: Callable[[], Collection[str]],
        tell: Callable[[str | None], None],
        wait: str | None = None,
    ) -> None:
        self._needs = needs
        self._off = off
        self._tell = tell
        self._wait = wait
        self._next_look = math.inf  # infinite while none waits
        self._since: float | None = None  # when it was first seen that nothing is free
        self._told: str | None = None

    def look(self, waits: bool) -> None:
        """Called often. waits: trials were handed out, and none trains. Raises ClusterUnready once
        --wait is over."""
        now = time.monotonic()
        if not waits:
            self._next_look = math.inf
            self._say(None, now)
        elif self._next_look == math.inf:
            self._next_look = now + FIRST_SECONDS
        elif now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._say(self._line(), now)

    def _line(self) -> str | None:
        """None where a trial of ours has its place, or will have."""
        if any(each.job == own_job() for each in holdings()):
            return None
        off = self._off()
        return held_line(self._needs, [node for node in alive_nodes() if node["NodeID"] not in off])

    def _say(self, line: str | None, now: float) -> None:
        if line is None:
            self._since = None
        elif self._since is None:
            self._since = now
        elif self._wait is not None and now - self._since > duration(self._wait):
            raise ClusterUnready(f"--wait: after {self._wait} {line}", LATER)
        if line != self._told:
            self._told = line
            self._tell(line)


def held_line(needs: Mapping[str, Resources], nodes: Sequence[Node]) -> str | None:
    """What holds the nodes on which a trial would fit; None where one fits now, or on none."""
    large = {label: each for label, each in needs.items() if slots(nodes, each)}
    if not large or any(free_slots(nodes, each) for each in large.values()):
        return None
    label, first = next(iter(large.items()))
    held = holders(nodes, first.to_ray())
    return f"{NOTHING} for a trial of {label}, which needs {in_words(first)}: {held}"
