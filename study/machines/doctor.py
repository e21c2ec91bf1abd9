"""Diagnose this machine or every node of a cluster; each failure comes with its fix."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from study.machines import node_facts
from study.machines.admission import code_problem, gpu_problem, storage_problem
from study.machines.cpus import Cpus, own_cpus
from study.machines.nodes import (
    NodeFacts,
    Trial,
    alive_nodes,
    ask_here,
    ask_nodes,
    extensions_of,
)
from study.machines.ray_compat import autoscaler_is_active
from study.machines.ray_session import ClusterError, Offer, check_address, check_fits, joined
from study.schema.spec import StudySpec
from study.schema.uris import TrackingError, lacks_password, public_uri, resolve_uri, sqlite_file
from study.store.driver_lock import LEDGER_HERE, driver_is_alive
from study.store.study import StudyFolder, reopened
from study.tracking.artifact_check import try_artifact
from study.tracking.client import what_happened
from study.tracking.reader import reach
from trainables.problems import UserError

HERE = "this machine"
GB = 1e9
FULL = 1 * GB  # free bytes on disk: below it failed
NARROW = 5 * GB  # below it a warning
NO_MEMORY = 1 * GB
LITTLE_MEMORY = 2 * GB
# Seconds; only a warning: the ledger uses the driver's clock alone, so a skew only confuses logs.
CLOCK_LIMIT = 2.0


@dataclass(frozen=True)
class Finding:
    """The result of one check on one machine. text: a short value if ok, else what was found and
    the fix."""

    machine: str
    check: str
    state: str  # ok, warning, failed
    text: str


@dataclass(frozen=True)
class DoctorReport:
    """All findings, grouped by machine."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return not any(finding.state == "failed" for finding in self.findings)

    def to_json(self) -> str:
        findings = [asdict(finding) for finding in self.findings]
        return json.dumps({"ok": self.ok, "findings": findings})


def diagnose(
    spec: StudySpec | None,
    root: Path,
    tracking: str | None,
    address: str | None,
    cpus: int | None = None,
    opened: StudyFolder | None = None,
) -> DoctorReport:
    """Check every node of the cluster at `address`, or this machine; with `spec`, also its data,
    extensions, resources.

    opened: the study as it is, if that was opened before. Raises ClusterError if the cluster cannot
    be joined.
    """
    if address is not None:
        check_address(address)
    trial = spec.trial_mapping(spec.variants[0].label) if spec is not None else None
    elsewhere = spec is not None and spec.ledger is not None
    shares = spec is not None and any(0 < each.gpu < 1 for each in spec.needs.values())
    around = _passwords(tracking, spec, root) + _tracking(tracking, spec, root)
    if spec is not None:
        around += _ledger(spec, root / spec.name, opened)
    try:
        if address is None:
            node = ask_here(root, trial)
            if spec is not None:
                around += _resources_here(spec, node, cpus)
            return DoctorReport([*_judge(node, node, root, trial, shares, elsewhere), *around])
        own = _own_facts(trial)
        if own.data_problem:  # no run could start, so the nodes' data do not matter
            around.append(Finding(HERE, "data", "failed", own.data_problem))
            trial = None
        with joined(address, {}):
            if spec is not None:
                around += _resources(spec, "cluster", alive_nodes())
            nodes = ask_nodes(root, trial, own.data)
    except OSError as error:
        problem = f"{root}: {error.strerror or error}. Create it, or give --storage DIR."
        return DoctorReport([Finding(HERE, "storage", "failed", problem), *around])
    findings = []
    for node in nodes:
        findings += _judge(node, own, root, trial, shares, elsewhere)
    return DoctorReport(findings + around)


def _own_facts(trial: Trial | None) -> NodeFacts:
    """Facts of the driver's machine, to compare the nodes with."""
    code: node_facts.Question = (node_facts.code, (extensions_of(trial),))
    questions: list[node_facts.Question] = [(node_facts.identity, ()), code]
    if trial is not None:
        questions.append((node_facts.prepared, (trial, None, True)))
    return NodeFacts(name=HERE, **node_facts.answers(questions))


def _resources(
    spec: StudySpec, machine: str, nodes: Sequence[Offer], cpus: Cpus | None = None
) -> list[Finding]:
    try:
        check_fits(nodes, spec.needs, cpus)
    except ClusterError as error:
        if cpus is None and autoscaler_is_active():
            found = f"{error.found}; the autoscaler is asked for more"
            return [Finding(machine, "resources", "warning", f"{found}.")]
        return [Finding(machine, "resources", "failed", str(error))]
    return []


def _resources_here(spec: StudySpec, node: NodeFacts, asked_cpus: int | None) -> list[Finding]:
    """Whether a trial fits on this machine, as Ray would offer it."""
    cpus = own_cpus(asked_cpus)
    offered = {"CPU": cpus.count, "GPU": node.gpus if isinstance(node.gpus, int) else 0}
    return _resources(spec, HERE, [{"Alive": True, "Resources": offered}], cpus)


# ---- one machine ---------------------------------------------------------------------------------


def _judge(
    node: NodeFacts,
    own: NodeFacts,
    root: Path,
    trial: Trial | None,
    shares: bool,
    elsewhere: bool = False,
) -> list[Finding]:
    """shares: whether trials are to share a GPU. elsewhere: whether the ledger is not in the
    storage."""
    if node.problem is not None:
        return [Finding(node.name, "answer", "failed", node.problem)]
    judged: dict[str, tuple[str, str]] = {
        "code": _failed_if(code_problem(node, own, extensions_of(trial))),
        "versions": _versions(node, own),
        "storage": _storage(node, root, elsewhere),
    }
    if trial is not None:
        judged["data"] = _data(node, own)
    judged |= {
        "GPUs": _gpus(node, shares),
        "disk": _disk(node),
        "memory": _memory(node),
        "clock": _clock(node),
        "token": _token(node),
    }
    return [Finding(node.name, check, state, text) for check, (state, text) in judged.items()]


def _failed_if(problem: UserError | None) -> tuple[str, str]:
    return ("failed", str(problem)) if problem else ("ok", "ok")


def _versions(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    """Local version suffixes are ignored: a head without GPUs may have the CPU build of torch."""

    def public(machine: NodeFacts) -> dict[str, str]:
        known = {name: found.partition("+")[0] for name, found in machine.versions.items()}
        return {"python": ".".join(machine.python.split(".")[:2]), **known}

    theirs = public(node)
    ours = public(own)
    other = [
        f"{name} {theirs[name]} (here {ours[name]})"
        for name in ours
        if theirs.get(name) != ours[name]
    ]
    if other:
        return "failed", f"has {', '.join(other)}. Install the same versions there."
    return "ok", "ok"


def _storage(node: NodeFacts, root: Path, elsewhere: bool) -> tuple[str, str]:
    problem = storage_problem(node, root)
    if problem is None and elsewhere and (lacks := _lock_problem(node, root)) is not None:
        return "warning", f"{lacks.found}. The lock beside the ledger holds on one machine alone."
    return _failed_if(problem or _lock_problem(node, root))


def _lock_problem(node: NodeFacts, root: Path) -> UserError | None:
    if node.lock == "held":
        return None
    found = f"cannot lock a file ({node.lock})"
    if node.lock == "ignored":
        found = "does not see the driver's file lock"
    found += f" in {root}: two processes could write one study"
    return UserError(found, f"Mount it with locking (NFS: without nolock), or {LEDGER_HERE}.")


def _data(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    if node.data_problem:
        return "failed", node.data_problem
    if own.data is not None and node.data != own.data:
        found = f"the digest there is {str(node.data)[:12]}, here {own.data[:12]}"
        return "failed", f"data: {found}. Copy the same files there."
    if node.damaged:
        folder = str(Path(node.damaged[0]).parent)
        names = ", ".join(Path(path).name for path in node.damaged)
        found = f"the cache is damaged: {names} in {folder}"
        return "failed", f"{found}. Remove that folder to decode the data again."
    return "ok", "ok"


def _gpus(node: NodeFacts, shares: bool) -> tuple[str, str]:
    if problem := gpu_problem(node):
        return "failed", str(problem)
    assert isinstance(node.gpus, int)
    lent = node.gpus if node.lent is None else int(node.lent)
    if lent > node.gpus:
        found = f"Ray offers {lent} GPUs, torch sees {node.gpus}"
        return "failed", f"{found}. Fix GPU driver or torch, or lower --num-gpus."
    if lent < node.gpus:
        found = f"torch sees {node.gpus} GPUs, Ray offers {lent}"
        return "warning", f"{found}. To use all, raise --num-gpus of ray start."
    if shares and node.gpus and not node.mps:
        mend = "With NVIDIA's MPS they overlap; start it there: nvidia-cuda-mps-control -d"
        return "warning", f"trials that share a GPU take turns. {mend}"
    return "ok", f"{node.gpus} MPS" if node.mps else str(node.gpus)


def _disk(node: NodeFacts) -> tuple[str, str]:
    what, (path, free) = min(node.disks.items(), key=lambda disk: disk[1][1])
    if free < NARROW:
        state = "failed" if free < FULL else "warning"
        return state, f"{what} {path} has {free / GB:.1f} GB free. Free some space."
    return "ok", f"{free / GB:.0f} GB"


def _memory(node: NodeFacts) -> tuple[str, str]:
    if node.memory is None:
        return "ok", "-"
    if node.memory < LITTLE_MEMORY:
        state = "failed" if node.memory < NO_MEMORY else "warning"
        found = f"only {node.memory / GB:.1f} GB of memory free"
        return state, f"{found}. Stop other programs there, or offer fewer CPUs."
    return "ok", f"{node.memory / GB:.0f} GB"


def _clock(node: NodeFacts) -> tuple[str, str]:
    if abs(node.clock) > CLOCK_LIMIT:
        side = "ahead of" if node.clock > 0 else "behind"
        found = f"its clock is {abs(node.clock):.1f} s {side} this machine's"
        return "warning", f"{found}. Set it with NTP (chrony)."
    return "ok", f"{node.clock:+.1f}s"


def _token(node: NodeFacts) -> tuple[str, str]:
    if node.open_token:
        problem = f"other users can read {node.open_token} and could run code here"
        return "failed", f"{problem}. Run: chmod 600 {node.open_token}"
    if not node.loopback and not node.authentication:
        mend = (
            "On every node, set RAY_AUTH_MODE=token, put the same token into ~/.ray/auth_token, and"
            " restart Ray."
        )
        found = "Ray listens on the network without a token: anyone who reaches it can run code"
        return "failed", f"{found}. {mend}"
    return "ok", "on" if node.authentication else "-"


# ---- the driver's machine ------------------------------------------------------------------------


def _tracking(option: str | None, spec: StudySpec | None, root: Path) -> list[Finding]:
    """Of the tracking server or database; and of a server's artifacts, once it answers."""
    try:
        uri = resolve_uri(option, spec.tracking if spec is not None else None, root)
    except UserError as error:
        return [Finding(HERE, "tracking", "failed", str(error))]
    try:
        problem = _unreached(uri, root)
    except ImportError as error:
        problem = f"{error}. Install the driver of this database with pip, or fix --tracking."
    except Exception as error:  # anything MLflow or a database driver raises
        problem = f"{what_happened(error, uri)}. Start it, or fix --tracking."
        return [Finding(HERE, "tracking", "failed", problem)]
    if problem:
        return [Finding(HERE, "tracking", "failed", f"MLflow at {public_uri(uri)}: {problem}")]
    found = [Finding(HERE, "tracking", "ok", public_uri(uri))]
    # A study that writes to a database keeps its artifacts in the storage.
    if uri.startswith("http"):
        found.append(_artifacts(uri, spec.name if spec is not None else None))
    return found


def _passwords(option: str | None, spec: StudySpec | None, root: Path) -> list[Finding]:
    """A warning for a tracking URI with a user whose password the driver would find nowhere."""
    with suppress(TrackingError):  # said with the tracking
        uri = resolve_uri(option, spec.tracking if spec is not None else None, root)
        if problem := lacks_password(uri):
            return [Finding(HERE, "password", "warning", f"tracking: {problem}")]
    return []


def _artifacts(uri: str, name: str | None) -> Finding:
    try:
        fine, text = try_artifact(uri, name)
    except TrackingError as error:
        return Finding(HERE, "artifacts", "failed", f"no artifact can be written. {error}")
    return Finding(HERE, "artifacts", "ok" if fine else "warning", text)


def _ledger(spec: StudySpec, directory: Path, opened: StudyFolder | None = None) -> list[Finding]:
    """Whether a driver on this machine could write it, it has what the study recorded, and no other
    driver runs.

    Nothing is created.
    """
    ledger = spec.ledger
    try:
        if stored := reopened(directory, opened):
            stored.with_ledger(ledger).reader.storage()
        alive = driver_is_alive(directory, ledger)
    except (UserError, OSError) as error:
        return [Finding(HERE, "ledger", "failed", str(error))]
    found = []
    if alive:
        text = (
            f"another calstudy process is running {spec.name}. Wait for it or stop it before"
            " running again."
        )
        found.append(Finding("cluster", "driver", "warning", text))
    return found


def _unreached(uri: str, root: Path) -> str | None:
    """Why a run on this machine could not write it; None if it can. Raises what MLflow raises."""
    if (database := sqlite_file(uri)) is not None:
        return _unwritable(database, root)
    reach(uri)
    return None


def _unwritable(database: Path, root: Path) -> str | None:
    folder = database.parent
    if folder.resolve() == root.resolve():  # checked elsewhere, and created if missing
        return None
    if not folder.is_dir():
        return f"there is no folder {folder}. Create it, or fix --tracking."
    if all(os.access(path, os.W_OK) for path in (folder, database) if path.exists()):
        return None
    return "it is not writable. Give the user who runs the study write access, or fix --tracking."
