"""Asking the nodes of a cluster what they say of themselves, each pinned, all at once, with a limit to our patience.

`check_nodes` is the short part that a run on a cluster asks before it trains; `ask_nodes` is all of it, for `doctor`.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.engine import node_facts
from study.engine.ray_session import ClusterError, ray_nodes
from study.schema import versions
from study.schema.resources import slots
from study.schema.spec import StudySpec

PATIENCE = 60.0  # seconds for an answer that takes one: Ray counts a node that is gone out within half of it
DATA_PATIENCE = 3600.0  # for a data set that a node may have to decode first


@dataclass(frozen=True)
class NodeFacts:
    """What one machine says of itself. What was not asked, or not answered, has its default."""

    name: str  # its address; of a machine without Ray its host name
    problem: str | None = None  # why there is no answer
    hostname: str = ""
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    code: str = ""  # sha256 of our packages, as imported there
    code_at: str = ""
    extensions: str | None = None  # sha256 of the study's extensions; None where they are not there
    storage: str | None = None  # why the driver's file is not seen; None where it is
    written: bool = True  # the driver sees what this machine wrote
    lock: str | None = "held"  # the driver's lock there: held, ignored, or why it cannot be asked
    data: str | None = None  # digest
    data_problem: str | None = None
    damaged: list[str] = field(default_factory=list)  # cached files that are not what was written
    gpus: int | str = 0  # that torch sees, or why it does not say
    lent: float | None = None  # GPUs that Ray lends there
    disks: dict[str, tuple[str, int]] = field(default_factory=dict)  # {storage, cache, temp: (path, bytes free)}
    memory: int | None = None  # bytes free
    clock: float = 0.0  # seconds ahead of the driver's, at the least
    authentication: bool = False  # Ray's, by token
    open_token: str | None = None  # the token's file, where others can read it
    loopback: bool = True  # nothing outside its machine reaches it


# ---- what a run asks ----------------------------------------------------------------------------------------------


def check_nodes(spec: StudySpec, root: Path, data_digest: str) -> None:
    """Every node that can run a trial has our code, sees the storage, and has the data prepared when this returns.

    Ray is joined; `root` is the storage, which exists. Raises ClusterError: the first node where it is not so, what
    was found and the mend.
    """
    nodes = [node for node in alive_nodes() if any(slots([node], spec.resources_of(v.label)) for v in spec.variants)]
    with Probe(root) as probe:
        code: node_facts.Question = (node_facts.code, (spec.extensions,))
        answers = _ask(nodes, lambda node: [code, probe.question(node)], PATIENCE)
        found = {node: probe.seen(node, answer) for node, answer in answers.items()}
    own = NodeFacts(name="here", **node_facts.code(spec.extensions))
    _raise_first(nodes, found, lambda node: storage_problem(node, root) or code_problem(node, own, spec.extensions))
    trial = spec.trial_mapping(spec.variants[0].label)
    found = _ask(nodes, lambda node: [(node_facts.prepared, (trial, data_digest, False))], DATA_PATIENCE)
    _raise_first(nodes, found, lambda node: node.data_problem)


def _raise_first(
    nodes: Sequence[Mapping[str, Any]],
    found: Mapping[str, dict[str, Any]],
    problem_of: Callable[[NodeFacts], str | None],
) -> None:
    problems = []
    for node in nodes:
        if (answer := found.get(node["NodeID"])) is not None:
            machine = NodeFacts(name=node["NodeManagerAddress"], **answer)
            if problem := machine.problem or problem_of(machine):
                problems.append(f"node {machine.name}: {problem}")
    if problems:
        more = f" {len(problems) - 1} more are not well; `calstudy doctor` names all." if len(problems) > 1 else ""
        raise ClusterError(problems[0] + more)


def storage_problem(node: NodeFacts, root: Path) -> str | None:
    """Why a trial on the node could not leave its files where the driver finds them."""
    if node.storage is not None:
        return f"does not see the storage {root} ({node.storage}). Mount it there at the same path, or give --storage."
    if not node.written:
        return f"what it writes to the storage {root} is not seen here. Mount one and the same folder on all nodes."
    return None


def code_problem(node: NodeFacts, own: NodeFacts, extensions: str | None) -> str | None:
    """Why a trial on the node would not be the one that is meant."""
    mend = "Install the same version there, or let `calstudy submit` carry the code."
    if node.code != own.code:
        return f"has other code in {node.code_at} than this machine in {own.code_at}. {mend}"
    if node.extensions != own.extensions:
        there = "other files in" if node.extensions else "no"
        return f"has {there} extensions {extensions}. Put the same folder there, or let `calstudy submit` carry it."
    return None


# ---- what doctor asks ---------------------------------------------------------------------------------------------


def ask_nodes(root: Path, trial: dict[str, Any] | None, data_digest: str | None) -> list[NodeFacts]:
    """All facts of every node of the Ray there is. trial: plain values of one, for its data; None: no data is asked."""
    nodes = alive_nodes()
    extensions = (trial or {}).get("extensions")
    with Probe(root) as probe:
        answers = _ask(nodes, lambda node: [*_common(root, extensions), probe.question(node)], PATIENCE)
        found = {node: probe.seen(node, answer) for node, answer in answers.items()}
    sound = [node for node in nodes if "problem" not in found.get(node["NodeID"], {"problem": "gone"})]
    clocks = _clocks(sound)
    prepared: dict[str, dict[str, Any]] = {}
    if trial is not None:
        prepared = _ask(sound, lambda node: [(node_facts.prepared, (trial, data_digest, True))], DATA_PATIENCE)
    return [
        NodeFacts(
            name=node["NodeManagerAddress"],
            lent=node["Resources"].get("GPU", 0.0),
            loopback=node["NodeManagerAddress"].startswith("127."),
            **found[node["NodeID"]] | clocks.get(node["NodeID"], {}) | prepared.get(node["NodeID"], {}),
        )
        for node in nodes
        if node["NodeID"] in found
    ]


def ask_here(root: Path, trial: dict[str, Any] | None) -> NodeFacts:
    """The same of this machine, without Ray."""
    extensions = (trial or {}).get("extensions")
    with Probe(root) as probe:
        questions = [*_common(root, extensions), probe.question("here")]
        if trial is not None:
            questions.append((node_facts.prepared, (trial, None, True)))
        answer = probe.seen("here", node_facts.answers(questions))
    return NodeFacts(name=answer["hostname"], **answer)


def _common(root: Path, extensions: str | None) -> list[node_facts.Question]:
    return [
        (node_facts.identity, ()),
        (node_facts.code, (extensions,)),
        (node_facts.gpus, ()),
        (node_facts.room, (str(root),)),
        (node_facts.token, ()),
    ]


def _clocks(nodes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """{node id: {"clock": seconds it is ahead of ours, at the least}}: what the round trip explains counts as 0."""
    found = {}
    for node in nodes:
        asked = time.time()
        answer = _ask([node], lambda node: [(node_facts.clock, ())], PATIENCE).get(node["NodeID"], {})
        if "clock" in answer:
            theirs = answer["clock"]
            answer = {"clock": max(0.0, theirs - time.time()) + min(0.0, theirs - asked)}
        found[node["NodeID"]] = answer
    return found


# ---- asking -------------------------------------------------------------------------------------------------------


def alive_nodes() -> list[dict[str, Any]]:
    """Ray's nodes that are not known to be dead, by address."""
    return sorted((node for node in ray_nodes() if node["Alive"]), key=lambda node: node["NodeManagerAddress"])


def _ask(
    nodes: Sequence[Mapping[str, Any]], questions: Callable[[str], list[node_facts.Question]], patience: float
) -> dict[str, dict[str, Any]]:
    """{node id: its answers, or {"problem": why there are none}}, without nodes that Ray counts out meanwhile.

    Never waits longer than `patience` seconds. A process that dies under a question is asked again: where its node was
    taken away, Ray may not know it yet.
    """
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # What is asked travels as it stands here: a node with other code, or none of ours, must be able to answer too.
    for module in (node_facts, versions):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    task = ray.remote(num_cpus=0, max_retries=0)(node_facts.answers)

    def ask(name: str) -> Any:
        there = NodeAffinitySchedulingStrategy(name, soft=False)
        return task.options(scheduling_strategy=there).remote(questions(name))

    pending = {ask(node["NodeID"]): node["NodeID"] for node in nodes}
    found: dict[str, dict[str, Any]] = {}
    why = dict.fromkeys(pending.values(), f"no answer within {patience:g} s")
    deadline = time.monotonic() + patience
    while pending and time.monotonic() < deadline:
        ready, _ = ray.wait(list(pending), timeout=1.0)
        died = []
        for name, reference in [(pending.pop(reference), reference) for reference in ready]:
            try:
                found[name] = ray.get(reference)
            except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
                mend = "Look at what is installed there."
                found[name] = {"problem": f"cannot be asked ({_last_line(error)}). {mend}"}
            except ray.exceptions.RayError as error:
                died.append(name)
                why[name] = f"cannot be asked ({type(error).__name__}: {_last_line(error)})"
        if died:
            time.sleep(1.0)
        if died or not ready:
            alive = {node["NodeID"] for node in alive_nodes()}
            pending = {reference: name for reference, name in pending.items() if name in alive}
            pending |= {ask(name): name for name in died if name in alive}
    for reference, name in pending.items():
        ray.cancel(reference, force=True)
        mend = "It may be overloaded or cut off: look there, or take it out of the cluster."
        found[name] = {"problem": f"{why[name]}. {mend}"}
    return found


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


class Probe:
    """A folder in the storage for as long as nodes are asked: a token they must read, a lock they must not get."""

    def __init__(self, root: Path) -> None:
        self._root, self._folder = root, root / f".calstudy-doctor-{secrets.token_hex(6)}"
        self._token = secrets.token_hex(16)

    def __enter__(self) -> Probe:
        self._made = [path for path in (self._root, *self._root.parents) if not path.exists()]
        self._folder.mkdir(parents=True)
        (self._folder / "token").write_text(self._token)
        self._lock = (self._folder / "lock").open("w")
        with suppress(OSError):  # where no lock can be had, the nodes will find it free
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(self, *fault: object) -> None:
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for path in self._made:  # a storage that was not there is not there again
            with suppress(OSError):  # it has been taken into use meanwhile
                path.rmdir()

    def question(self, name: str) -> node_facts.Question:
        """Whether a machine sees it; it leaves a file `name` there."""
        return node_facts.storage, (str(self._folder), self._token, name)

    def seen(self, name: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer, with whether what the machine wrote is seen here."""
        if "problem" in answer:
            return answer
        try:
            # By its name, never by listing: a network file system may show an old list for a while.
            written = (self._folder / name).read_text() == self._token
        except OSError:
            written = False
        return {**answer, "written": written}
