"""Collect facts from the nodes of a cluster, in parallel and with a timeout; `ask_nodes` collects
everything for `doctor`."""

from __future__ import annotations

import fcntl
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from study.machines import guarded, node_facts, ray_compat
from study.machines.node_facts import Facts, Question
from study.machines.ray_session import Node, ray_nodes
from study.schema import versions
from trainables import machine
from trainables.files import home
from trainables.plain import Plain

# Seconds to wait for a quick answer; Ray declares a lost node dead within half of it.
PATIENCE = 60.0
# Sent as source, so that nodes with different code, or without calstudy, can answer too.
SENT = (guarded, node_facts, ray_compat, versions, home, machine)
DATA_PATIENCE = 3600.0  # seconds; a node may have to decode the data first
Trial: TypeAlias = dict[str, Plain]  # TrialConfig's plain values


@dataclass(frozen=True)
class NodeFacts:
    """Facts one machine reports. Defaults stand for what was not asked or answered."""

    name: str  # its address; without Ray its host name
    problem: str | None = None  # why it did not answer
    hostname: str = ""
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    code: str = ""  # sha256 of our packages, as imported there
    code_at: str = ""
    extensions: str | None = None  # sha256 of the study's extensions; None if missing
    storage: str | None = None  # why it does not see the driver's file; None if it does
    written: bool = True  # the driver sees what this machine wrote
    lock: str | None = "held"  # the driver's lock there: held, ignored, or why it cannot be tested
    data: str | None = None  # digest
    data_problem: str | None = None
    damaged: list[str] = field(default_factory=list)  # damaged cache files
    unfit: tuple[str, str] | None = None  # why what it trains is not the study's, and the mend
    changed: list[str] = field(default_factory=list)  # extension files, not as the driver has them
    gpus: int | str = 0  # that torch sees, or why it fails
    gpu_problems: list[str] = field(default_factory=list)  # why torch cannot use one
    simulated: bool = False  # its GPUs are, by $CALSTUDY_DEVICE
    mps: bool = False  # whether NVIDIA's MPS serves it
    lent: float | None = None  # GPUs that Ray offers there
    # {storage, cache, temp: (path, bytes free)}.
    disks: dict[str, tuple[str, int]] = field(default_factory=dict)
    memory: int | None = None  # bytes free
    clock: float = 0.0  # seconds ahead of the driver's, lower bound
    authentication: bool = False  # Ray's, by token
    open_token: str | None = None  # the token file, if other users can read it
    loopback: bool = True  # only reachable from its own machine


# ---- what doctor asks ----------------------------------------------------------------------------


def ask_nodes(root: Path, trial: Trial | None, data_digest: str | None) -> list[NodeFacts]:
    """All facts of every node of the joined Ray. trial: to check its data; None: do not."""
    nodes = alive_nodes()
    found = seen(root, nodes, _common(root, trial))
    there = [node for node in nodes if node["NodeID"] in found]
    sound = [node for node in there if "problem" not in found[node["NodeID"]]]
    clocks = _clocks(sound)
    prepared: dict[str, Facts] = {}
    if trial is not None:
        thorough: Question = (node_facts.prepared, (trial, data_digest, True))
        prepared = answers_of(sound, lambda node: [thorough], DATA_PATIENCE)
    facts = []
    for node in there:
        name = node["NodeID"]
        answer = found[name] | clocks.get(name, {}) | prepared.get(name, {})
        address = node["NodeManagerAddress"]
        lent = node["Resources"].get("GPU", 0.0)
        local = address.startswith("127.")
        facts.append(NodeFacts(name=address, lent=lent, loopback=local, **answer))
    return facts


def ask_here(root: Path, trial: Trial | None) -> NodeFacts:
    """`ask_nodes` for this machine, without Ray."""
    with StorageProbe(root) as probe:
        questions = [*_common(root, trial), probe.question("here")]
        if trial is not None:
            questions.append((node_facts.prepared, (trial, None, True)))
        answer = probe.seen("here", node_facts.answers(questions))
    return NodeFacts(name=answer["hostname"], **answer)


def extensions_of(trial: Trial | None) -> str | None:
    """Its extensions folder."""
    found = (trial or {}).get("extensions")
    return found if isinstance(found, str) else None


def _common(root: Path, trial: Trial | None) -> list[Question]:
    return [
        (node_facts.identity, ()),
        (node_facts.code, (extensions_of(trial),)),
        (node_facts.gpus, ("bfloat16" if trial is None else trial["precision"],)),
        (node_facts.room, (str(root),)),
        (node_facts.token, ()),
    ]


def _clocks(nodes: Sequence[Node]) -> dict[str, Facts]:
    """{node id: {"clock": seconds ahead of ours}}, at least: the round trip is subtracted."""
    found = {}
    for node in nodes:
        asked = time.time()
        answers = answers_of([node], lambda node: [(node_facts.clock, ())], PATIENCE)
        answer = answers.get(node["NodeID"], {})
        if "clock" in answer:
            theirs = answer["clock"]
            answer = {"clock": max(0.0, theirs - time.time()) + min(0.0, theirs - asked)}
        found[node["NodeID"]] = answer
    return found


# ---- asking --------------------------------------------------------------------------------------


def alive_nodes() -> list[Node]:
    """Ray's nodes not known to be dead, by address."""
    alive = [node for node in ray_nodes() if node["Alive"]]
    return sorted(alive, key=lambda node: node["NodeManagerAddress"])


def seen(root: Path, nodes: Sequence[Node], questions: list[Question]) -> dict[str, Facts]:
    """By node id its answers to the questions, and whether it sees the storage."""
    with StorageProbe(root) as probe:
        answers = answers_of(nodes, lambda node: [*questions, probe.question(node)], PATIENCE)
        return {node: probe.seen(node, answer) for node, answer in answers.items()}


def answers_of(
    nodes: Sequence[Node], questions: Callable[[str], list[Question]], patience: float
) -> dict[str, Facts]:
    """By node id its answers, or the problem why there are none; without nodes that Ray declares
    dead meanwhile.

    Waits at most `patience` seconds. If a process dies while answering, its node is asked again:
    Ray may not know yet that the node is lost.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    send_as_source()
    task = ray.remote(num_cpus=0, max_retries=0)(node_facts.answers)

    def ask(name: str) -> Any:
        there = NodeAffinitySchedulingStrategy(name, soft=False)
        return task.options(scheduling_strategy=there).remote(questions(name))

    pending = {ask(node["NodeID"]): node["NodeID"] for node in nodes}
    found: dict[str, Facts] = {}
    why = dict.fromkeys(pending.values(), f"no answer within {patience:g} s")
    deadline = time.monotonic() + patience
    while pending and time.monotonic() < deadline:
        if not ray.is_initialized():  # the run has left it: `wait` would start another
            return found
        ready, _ = ray.wait(list(pending), timeout=1.0)
        died = []
        for name, reference in [(pending.pop(reference), reference) for reference in ready]:
            try:
                found[name] = ray.get(reference)
            except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
                fix = "Check what is installed there."
                found[name] = {"problem": f"does not answer ({_last_line(error)}). {fix}"}
            except ray.exceptions.RayError as error:
                died.append(name)
                why[name] = f"does not answer ({type(error).__name__}: {_last_line(error)})"
        if died:
            time.sleep(1.0)
        if died or not ready:
            alive = {node["NodeID"] for node in alive_nodes()}
            pending = {reference: name for reference, name in pending.items() if name in alive}
            pending |= {ask(name): name for name in died if name in alive}
    for reference, name in pending.items():
        ray.cancel(reference, force=True)
        fix = "It may be overloaded or disconnected: check it, or remove it from the cluster."
        found[name] = {"problem": f"{why[name]}. {fix}"}
    return found


def send_as_source() -> None:
    """From now on Ray sends what is of SENT as source, not by its name."""
    from ray import cloudpickle

    for module in SENT:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


PROBE = ".calstudy-doctor-"  # the beginning of its folder's name


class StorageProbe:
    """A temporary folder in the storage with a token that nodes must read and a lock they must not
    get."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / f"{PROBE}{secrets.token_hex(6)}"
        self._token = secrets.token_hex(16)

    def __enter__(self) -> StorageProbe:
        self._made = [path for path in (self._root, *self._root.parents) if not path.exists()]
        self._folder.mkdir(parents=True)
        (self._folder / "token").write_text(self._token)
        self._lock = (self._folder / "lock").open("w")
        with suppress(OSError):  # if locking fails here, the nodes report the lock as ignored
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(self, *fault: object) -> None:
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for path in self._made:  # do not leave behind a storage that did not exist
            with suppress(OSError):  # unless it is in use by now
                path.rmdir()

    def question(self, name: str) -> Question:
        """Asks whether a machine sees the folder; it writes a file `name` there."""
        return node_facts.storage, (str(self._folder), self._token, name)

    def seen(self, name: str, answer: Facts) -> Facts:
        """The answer, plus whether the machine's file is visible here."""
        if "problem" in answer:
            return answer
        try:
            # Opened by name: a network file system may list old contents for a while.
            written = (self._folder / name).read_text() == self._token
        except OSError:
            written = False
        return {**answer, "written": written}
