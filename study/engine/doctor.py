"""Diagnose this machine or every node of a cluster; each failure comes with its fix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from study.engine import node_facts
from study.engine.cpus import own_cpus
from study.engine.nodes import (
    NodeFacts,
    alive_nodes,
    ask_here,
    ask_nodes,
    code_problem,
    storage_problem,
)
from study.engine.ray_session import ClusterError, check_address, check_fits, joined
from study.schema.errors import LedgerError
from study.schema.spec import StudySpec
from study.schema.uris import TrackingError, public_uri, resolve_uri, sqlite_file
from study.store.connection import is_database, shown, writing_problem
from study.store.driver_lock import driver_is_alive
from study.store.ledger import storage_to_read
from study.store.study import open_directory
from study.terminal.layout import Table
from study.tracking.client import what_happened
from study.tracking.probe import try_artifact
from study.tracking.reader import reach
from trainables.fields import UserError

HERE = "this machine"
GB = 1e9
FULL, NARROW = 1 * GB, 5 * GB  # free bytes on disk: below FULL failed, below NARROW a warning
NO_MEMORY, LITTLE_MEMORY = 1 * GB, 2 * GB
CLOCK_LIMIT = 2.0  # seconds; only a warning: the ledger uses the driver's clock alone, so a skew only confuses logs


@dataclass(frozen=True)
class Finding:
    """The result of one check on one machine. text: a short value if ok, else what was found and the fix."""

    machine: str
    check: str
    state: str  # ok, warning, failed
    text: str


@dataclass(frozen=True)
class Report:
    """All findings, grouped by machine."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return not any(finding.state == "failed" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Report:
        return Report([Finding(**finding) for finding in plain["findings"]])


def diagnose(
    spec: StudySpec | None,
    root: Path,
    tracking: str | None,
    address: str | None,
    cpus: int | None = None,
) -> Report:
    """Check every node of the cluster at `address`, or this machine; with `spec`, also its data, extensions, resources.

    Raises ClusterError if the cluster cannot be joined.
    """
    if address is not None:
        check_address(address)
    trial = spec.trial_mapping(spec.variants[0].label) if spec is not None else None
    shares = spec is not None and any(
        0 < spec.resources_of(variant.label).gpu < 1 for variant in spec.variants
    )
    around = _tracking(tracking, spec, root)
    if spec is not None:
        around += _ledger(spec, root / spec.name)
    try:
        if address is None:
            node = ask_here(root, trial)
            if spec is not None:
                around += _resources_here(spec, node, cpus)
            return Report([*_judge(node, node, root, trial, shares), *around])
        own = _own_facts(trial)
        if own.data_problem:  # no run could start, so the nodes' data do not matter
            around.append(Finding(HERE, "data", "failed", own.data_problem))
            trial = None
        with joined(address, {}):
            if spec is not None:
                around += _resources(spec)
            nodes = ask_nodes(root, trial, own.data)
    except OSError as error:
        fix = "Create it, or give --storage DIR."
        return Report(
            [
                Finding(HERE, "storage", "failed", f"{root}: {error.strerror or error}. {fix}"),
                *around,
            ]
        )
    return Report(
        [finding for node in nodes for finding in _judge(node, own, root, trial, shares)] + around
    )


def _own_facts(trial: dict[str, Any] | None) -> NodeFacts:
    """Facts of the driver's machine, to compare the nodes with."""
    code: node_facts.Question = (node_facts.code, ((trial or {}).get("extensions"),))
    questions: list[node_facts.Question] = [(node_facts.identity, ()), code]
    if trial is not None:
        questions.append((node_facts.prepared, (trial, None, True)))
    return NodeFacts(name=HERE, **node_facts.answers(questions))


def _resources(spec: StudySpec) -> list[Finding]:
    try:
        check_fits(
            alive_nodes(),
            {variant.label: spec.resources_of(variant.label) for variant in spec.variants},
        )
    except ClusterError as error:
        return [Finding("cluster", "resources", "failed", str(error))]
    return []


def _resources_here(spec: StudySpec, node: NodeFacts, asked_cpus: int | None) -> list[Finding]:
    """Whether a trial fits on this machine, as Ray would offer it."""
    cpus = own_cpus(asked_cpus)
    offered = {"CPU": cpus.count, "GPU": node.gpus if isinstance(node.gpus, int) else 0}
    try:
        check_fits(
            [{"Alive": True, "Resources": offered}],
            {variant.label: spec.resources_of(variant.label) for variant in spec.variants},
            cpus,
        )
    except ClusterError as error:
        return [Finding(HERE, "resources", "failed", str(error))]
    return []


def show(report: Report, console: Console) -> None:
    """Print a table of nodes by checks, then a line for each warning or failure."""
    machines: dict[str, dict[str, Finding]] = {}
    for finding in report.findings:
        machines.setdefault(finding.machine, {})[finding.check] = finding
    nodes = {name: found for name, found in machines.items() if "code" in found}
    if nodes:
        checks = list(next(iter(nodes.values())))
        made = Table("machine", *checks)
        for name, found in nodes.items():
            made.add_row(name, *(_cell(found[check]) for check in checks))
        console.print(made)
    for finding in report.findings:
        if finding.check in ("tracking", "artifacts", "ledger") and finding.state == "ok":
            console.print(f"{finding.check}: {finding.text}", soft_wrap=True)
        elif finding.state != "ok":
            console.print(f"{finding.state}: {finding.machine}: {finding.text}", soft_wrap=True)
    if report.ok:
        warned = sum(finding.state == "warning" for finding in report.findings)
        of_it = f"nothing failed; {warned} warning{'s' * (warned > 1)}, above. A study can run."
        console.print(of_it if warned else "no problems found.")


def _cell(finding: Finding) -> str:
    """At most five characters, so that the table fits a terminal."""
    return (
        finding.text
        if finding.state == "ok"
        else {"warning": "warn", "failed": "FAIL"}[finding.state]
    )


# ---- one machine --------------------------------------------------------------------------------------------------


def _judge(
    node: NodeFacts, own: NodeFacts, root: Path, trial: Mapping[str, Any] | None, shares: bool
) -> list[Finding]:
    """shares: whether trials are to share a GPU."""
    if node.problem is not None:
        return [Finding(node.name, "answer", "failed", node.problem)]
    extensions = trial.get("extensions") if trial is not None else None
    judged: dict[str, tuple[str, str]] = {
        "code": _failed_if(code_problem(node, own, extensions), "ok"),
        "versions": _versions(node, own),
        "storage": _failed_if(storage_problem(node, root) or _lock_problem(node, root), "ok"),
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


def _failed_if(problem: str | None, fine: str) -> tuple[str, str]:
    return ("failed", problem) if problem else ("ok", fine)


def _versions(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    """Local version suffixes are ignored: a head without GPUs may have the CPU build of torch."""

    def public(machine: NodeFacts) -> dict[str, str]:
        python = ".".join(machine.python.split(".")[:2])
        return {
            "python": python,
            **{name: found.partition("+")[0] for name, found in machine.versions.items()},
        }

    theirs, ours = public(node), public(own)
    other = [
        f"{name} {theirs[name]} (here {ours[name]})"
        for name in ours
        if theirs.get(name) != ours[name]
    ]
    if other:
        return "failed", f"has {', '.join(other)}. Install the same versions there."
    return "ok", "ok"


def _lock_problem(node: NodeFacts, root: Path) -> str | None:
    if node.lock == "held":
        return None
    found = (
        "does not see the driver's file lock"
        if node.lock == "ignored"
        else f"cannot lock a file ({node.lock})"
    )
    return f"{found} in {root}: two processes could write one study. Mount it with locking (NFS: without nolock)."


def _data(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    if node.data_problem:
        return "failed", node.data_problem
    if own.data is not None and node.data != own.data:
        found = f"the digest there is {str(node.data)[:12]}, here {own.data[:12]}"
        return "failed", f"data: {found}. Copy the same files there."
    if node.damaged:
        folder = str(Path(node.damaged[0]).parent)
        names = ", ".join(Path(path).name for path in node.damaged)
        return (
            "failed",
            f"the cache is damaged: {names} in {folder}. Remove that folder to decode the data again.",
        )
    return "ok", "ok"


def _gpus(node: NodeFacts, shares: bool) -> tuple[str, str]:
    if isinstance(node.gpus, str):
        return "failed", f"torch does not start: {node.gpus}. Reinstall torch there."
    lent = node.gpus if node.lent is None else int(node.lent)
    if lent > node.gpus:
        return (
            "failed",
            f"Ray offers {lent} GPUs, torch sees {node.gpus}. Fix GPU driver or torch, or lower --num-gpus.",
        )
    if lent < node.gpus:
        return (
            "warning",
            f"torch sees {node.gpus} GPUs, Ray offers {lent}. To use all, raise --num-gpus of ray start.",
        )
    if shares and node.gpus and not node.mps:
        start = "nvidia-cuda-mps-control -d"
        return (
            "warning",
            f"trials that share a GPU take turns. With NVIDIA's MPS they overlap; start it there: {start}",
        )
    return "ok", f"{node.gpus} MPS" if node.mps else str(node.gpus)


def _disk(node: NodeFacts) -> tuple[str, str]:
    what, (path, free) = min(node.disks.items(), key=lambda disk: disk[1][1])
    if free < NARROW:
        return (
            "failed" if free < FULL else "warning",
            f"{what} {path} has {free / GB:.1f} GB free. Free some space.",
        )
    return "ok", f"{free / GB:.0f} GB"


def _memory(node: NodeFacts) -> tuple[str, str]:
    if node.memory is None:
        return "ok", "-"
    if node.memory < LITTLE_MEMORY:
        state = "failed" if node.memory < NO_MEMORY else "warning"
        return (
            state,
            f"only {node.memory / GB:.1f} GB of memory free. Stop other programs there, or offer fewer CPUs.",
        )
    return "ok", f"{node.memory / GB:.0f} GB"


def _clock(node: NodeFacts) -> tuple[str, str]:
    if abs(node.clock) > CLOCK_LIMIT:
        side = "ahead of" if node.clock > 0 else "behind"
        return (
            "warning",
            f"its clock is {abs(node.clock):.1f} s {side} this machine's. Set it with NTP (chrony).",
        )
    return "ok", f"{node.clock:+.1f}s"


def _token(node: NodeFacts) -> tuple[str, str]:
    if node.open_token:
        problem = f"other users can read {node.open_token} and could run code here"
        return "failed", f"{problem}. Run: chmod 600 {node.open_token}"
    if not node.loopback and not node.authentication:
        return "failed", (
            "Ray listens on the network without a token: anyone who reaches it can run code. On every node, set"
            " RAY_AUTH_MODE=token, put the same token into ~/.ray/auth_token, and restart Ray."
        )
    return "ok", "on" if node.authentication else "-"


# ---- the driver's machine -----------------------------------------------------------------------------------------


def _tracking(option: str | None, spec: StudySpec | None, root: Path) -> list[Finding]:
    """Of the tracking server or database; and of a server's artifacts, once it answers."""
    try:
        uri = resolve_uri(option, spec.tracking if spec is not None else None, root)
    except TrackingError as error:
        return [Finding(HERE, "tracking", "failed", str(error))]
    try:
        problem = _unreached(uri, root)
    except ImportError as error:
        problem = f"{error}. Install the driver of this database with pip, or fix --tracking."
    except Exception as error:  # anything MLflow or a database driver raises
        return [
            Finding(
                HERE,
                "tracking",
                "failed",
                f"{what_happened(error, uri)}. Start it, or fix --tracking.",
            )
        ]
    if problem:
        return [Finding(HERE, "tracking", "failed", f"MLflow at {public_uri(uri)}: {problem}")]
    found = Finding(HERE, "tracking", "ok", public_uri(uri))
    # A study that writes to a database keeps its artifacts in the storage.
    return (
        [found, _artifacts(uri, spec.name if spec is not None else None)]
        if uri.startswith("http")
        else [found]
    )


def _artifacts(uri: str, name: str | None) -> Finding:
    try:
        fine, text = try_artifact(uri, name)
    except TrackingError as error:
        return Finding(HERE, "artifacts", "failed", f"no artifact can be written. {error}")
    return Finding(HERE, "artifacts", "ok" if fine else "warning", text)


def _ledger(spec: StudySpec, directory: Path) -> list[Finding]:
    """Whether a driver on this machine could write it, it has what the study recorded, and no other driver runs.

    Nothing is created.
    """
    ledger = spec.ledger
    try:
        if is_database(ledger) and (problem := writing_problem(ledger)):
            raise LedgerError(f"ledger: {shown(ledger)}: {problem}.")
        if (directory / "study.yaml").is_file():
            storage_to_read(
                directory, ledger, open_directory(directory, spec.name).with_ledger(ledger).traces
            )
        alive = driver_is_alive(directory, ledger)
    except (UserError, OSError) as error:
        return [Finding(HERE, "ledger", "failed", str(error))]
    found = [Finding(HERE, "ledger", "ok", shown(ledger))] if is_database(ledger) else []
    if alive:
        text = f"another calstudy process is running {spec.name}. Wait for it or stop it before running again."
        found.append(Finding("cluster", "driver", "warning", text))
    return found


def _unreached(uri: str, root: Path) -> str | None:
    """Why a run on this machine could not write it; None if it can. Raises what MLflow raises."""
    database = sqlite_file(uri)
    if database is not None:
        return _unwritable(database, root)
    reach(uri)
    return None


def _unwritable(database: Path, root: Path) -> str | None:
    if database.parent.resolve() == root.resolve():  # checked elsewhere, and created if missing
        return None
    if not database.parent.is_dir():
        return f"there is no folder {database.parent}. Create it, or fix --tracking."
    if not os.access(database.parent, os.W_OK) or (
        database.exists() and not os.access(database, os.W_OK)
    ):
        return (
            "it is not writable. Give the user who runs the study write access, or fix --tracking."
        )
    return None
