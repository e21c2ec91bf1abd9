"""Whether all is well here, or on a cluster: what every machine says of itself, judged, each failure with its mend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from study.engine import node_facts
from study.engine.nodes import NodeFacts, alive_nodes, ask_here, ask_nodes, code_problem, storage_problem
from study.engine.ray_session import ClusterError, check_address, check_fits, joined
from study.schema.spec import StudySpec
from study.schema.uris import TrackingError, public_uri, resolve_uri, sqlite_file
from study.store.ledger import driver_is_alive
from study.terminal.tables import table
from study.tracking.client import what_happened
from study.tracking.reader import reach

HERE = "this machine"
GB = 1e9
FULL, NARROW = 1 * GB, 5 * GB  # of a disk's free bytes: failed below the first, a warning below the second
NO_MEMORY, LITTLE_MEMORY = 1 * GB, 2 * GB
CLOCK_LIMIT = 2.0  # seconds; the ledger takes the driver's times alone, so more is a nuisance in logs and no harm


@dataclass(frozen=True)
class Finding:
    """What one check found on one machine. text: where it is ok a word or figure, else what was found and the mend."""

    machine: str
    check: str
    state: str  # ok, warning, failed
    text: str


@dataclass(frozen=True)
class Report:
    """All findings, a machine's together."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return not any(finding.state == "failed" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Report:
        return Report([Finding(**finding) for finding in plain["findings"]])


def diagnose(spec: StudySpec | None, root: Path, tracking: str | None, address: str | None) -> Report:
    """Ask every node of the cluster at an address, or this machine alone. Raises ClusterError where none can be joined.

    spec: asks for its data, extensions and resources too.
    """
    if address is not None:
        check_address(address)
    trial = spec.trial_mapping(spec.variants[0].label) if spec is not None else None
    around = [_tracking(tracking, spec.tracking if spec is not None else None, root)]
    if spec is not None and driver_is_alive(root / spec.name):
        text = f"a driver is at work on {spec.name}: another is refused while it lives."
        around.append(Finding("cluster", "driver", "warning", text))
    try:
        if address is None:
            node = ask_here(root, trial)
            return Report([*_judge(node, node, root, trial), *around])
        own = _own_facts(trial)
        if own.data_problem:  # no run could begin: what the nodes have of them is no matter
            around.append(Finding(HERE, "data", "failed", own.data_problem))
            trial = None
        with joined(address, {}):
            if spec is not None:
                around += _resources(spec)
            nodes = ask_nodes(root, trial, own.data)
    except OSError as error:
        mend = "Make it, or give --storage DIR."
        return Report([Finding(HERE, "storage", "failed", f"{root}: {error.strerror or error}. {mend}"), *around])
    return Report([finding for node in nodes for finding in _judge(node, own, root, trial)] + around)


def _own_facts(trial: dict[str, Any] | None) -> NodeFacts:
    """Of the driver's machine: what the nodes are compared with."""
    code: node_facts.Question = (node_facts.code, ((trial or {}).get("extensions"),))
    questions: list[node_facts.Question] = [(node_facts.identity, ()), code]
    if trial is not None:
        questions.append((node_facts.prepared, (trial, None, True)))
    return NodeFacts(name=HERE, **node_facts.answers(questions))


def _resources(spec: StudySpec) -> list[Finding]:
    try:
        check_fits(alive_nodes(), {variant.label: spec.resources_of(variant.label) for variant in spec.variants})
    except ClusterError as error:
        return [Finding("cluster", "resources", "failed", str(error))]
    return []


def show(report: Report, console: Console) -> None:
    """A table of node by check, then a line for each thing that is not well."""
    machines: dict[str, dict[str, Finding]] = {}
    for finding in report.findings:
        machines.setdefault(finding.machine, {})[finding.check] = finding
    nodes = {name: found for name, found in machines.items() if "code" in found}
    if nodes:
        checks = list(next(iter(nodes.values())))
        made = table("machine", *checks)
        made.columns[0].no_wrap = True
        for name, found in nodes.items():
            made.add_row(name, *(_cell(found[check]) for check in checks))
        console.print(made)
    for finding in report.findings:
        if finding.check == "tracking" and finding.state == "ok":
            console.print(f"tracking: {finding.text}", soft_wrap=True)
        elif finding.state != "ok":
            console.print(f"{finding.state}: {finding.machine}: {finding.text}", soft_wrap=True)
    if report.ok:
        warned = sum(finding.state == "warning" for finding in report.findings)
        plural = "s" if warned > 1 else ""
        console.print("all is well" + (f", with {warned} warning{plural}." if warned else "."))


def _cell(finding: Finding) -> str:
    """At most five characters: the table must fit a terminal."""
    return finding.text if finding.state == "ok" else {"warning": "warn", "failed": "FAIL"}[finding.state]


# ---- one machine --------------------------------------------------------------------------------------------------


def _judge(node: NodeFacts, own: NodeFacts, root: Path, trial: Mapping[str, Any] | None) -> list[Finding]:
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
        "GPUs": _gpus(node),
        "disk": _disk(node),
        "memory": _memory(node),
        "clock": _clock(node),
        "token": _token(node),
    }
    return [Finding(node.name, check, state, text) for check, (state, text) in judged.items()]


def _failed_if(problem: str | None, fine: str) -> tuple[str, str]:
    return ("failed", problem) if problem else ("ok", fine)


def _versions(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    """Equal but for what follows a plus: a head without GPUs may have torch's build for CPUs."""

    def public(machine: NodeFacts) -> dict[str, str]:
        python = ".".join(machine.python.split(".")[:2])
        return {"python": python, **{name: found.partition("+")[0] for name, found in machine.versions.items()}}

    theirs, ours = public(node), public(own)
    other = [f"{name} {theirs[name]} (here {ours[name]})" for name in ours if theirs.get(name) != ours[name]]
    if other:
        return "failed", f"has {', '.join(other)}. Install the same versions there."
    return "ok", "ok"


def _lock_problem(node: NodeFacts, root: Path) -> str | None:
    if node.lock == "held":
        return None
    found = "does not see the lock of a driver" if node.lock == "ignored" else f"cannot lock a file ({node.lock})"
    return f"{found} in {root}: two drivers could write one study. Mount it with locks (NFS: without nolock)."


def _data(node: NodeFacts, own: NodeFacts) -> tuple[str, str]:
    if node.data_problem:
        return "failed", node.data_problem
    if own.data is not None and node.data != own.data:
        return (
            "failed",
            f"data: its digest is {str(node.data)[:12]}, here it is {own.data[:12]}. Put the same files there.",
        )
    if node.damaged:
        folder = str(Path(node.damaged[0]).parent)
        names = ", ".join(Path(path).name for path in node.damaged)
        return "failed", f"the cache is damaged: {names} in {folder}. Remove that folder; the data are decoded anew."
    return "ok", "ok"


def _gpus(node: NodeFacts) -> tuple[str, str]:
    if isinstance(node.gpus, str):
        return "failed", f"torch does not start: {node.gpus}. Install torch anew there."
    lent = node.gpus if node.lent is None else int(node.lent)
    if lent > node.gpus:
        return (
            "failed",
            f"Ray lends {lent} GPUs, torch sees {node.gpus}. Mend driver or torch, or lend fewer: --num-gpus.",
        )
    if lent < node.gpus:
        return "warning", f"torch sees {node.gpus} GPUs, Ray lends {lent}. To use all, start Ray there with --num-gpus."
    return "ok", str(node.gpus)


def _disk(node: NodeFacts) -> tuple[str, str]:
    what, (path, free) = min(node.disks.items(), key=lambda disk: disk[1][1])
    if free < NARROW:
        return "failed" if free < FULL else "warning", f"{what} {path} has {free / GB:.1f} GB free. Make room."
    return "ok", f"{free / GB:.0f} GB"


def _memory(node: NodeFacts) -> tuple[str, str]:
    if node.memory is None:
        return "ok", "-"
    if node.memory < LITTLE_MEMORY:
        state = "failed" if node.memory < NO_MEMORY else "warning"
        return state, f"{node.memory / GB:.1f} GB of memory are free. End what else runs there, or lend fewer CPUs."
    return "ok", f"{node.memory / GB:.0f} GB"


def _clock(node: NodeFacts) -> tuple[str, str]:
    if abs(node.clock) > CLOCK_LIMIT:
        side = "ahead of" if node.clock > 0 else "behind"
        return "warning", f"its clock is {abs(node.clock):.1f} s {side} this machine's. Have it set by NTP (chrony)."
    return "ok", f"{node.clock:+.1f}s"


def _token(node: NodeFacts) -> tuple[str, str]:
    if node.open_token:
        return (
            "failed",
            f"{node.open_token} can be read by others, who may then run code here. chmod 600 {node.open_token}",
        )
    if not node.loopback and not node.authentication:
        return "failed", (
            "Ray listens on the network and asks for no token: whoever reaches it runs code. On every node, set"
            " RAY_AUTH_MODE=token, put one token into ~/.ray/auth_token, and start Ray again."
        )
    return "ok", "on" if node.authentication else "-"


# ---- the driver's machine -----------------------------------------------------------------------------------------


def _tracking(option: str | None, spec_tracking: str | None, root: Path) -> Finding:
    try:
        uri = resolve_uri(option, spec_tracking, root)
    except TrackingError as error:
        return Finding(HERE, "tracking", "failed", str(error))
    try:
        problem = _unreached(uri, root)
    except ImportError as error:
        problem = f"{error}. pip install what reaches such a database, or mend --tracking."
    except Exception as error:  # whatever MLflow or the driver of a database raises
        return Finding(HERE, "tracking", "failed", f"{what_happened(error, uri)}. Start it, or mend --tracking.")
    if problem:
        return Finding(HERE, "tracking", "failed", f"MLflow at {public_uri(uri)}: {problem}")
    return Finding(HERE, "tracking", "ok", public_uri(uri))


def _unreached(uri: str, root: Path) -> str | None:
    """Why a run on this machine could not write it, where it does not raise."""
    database = sqlite_file(uri)
    if database is not None:
        return _unwritable(database, root)
    reach(uri)
    return None


def _unwritable(database: Path, root: Path) -> str | None:
    if database.parent.resolve() == root.resolve():  # a check of its own, and made where it is not there
        return None
    if not database.parent.is_dir():
        return f"there is no folder {database.parent}. Make it, or mend --tracking."
    if not os.access(database.parent, os.W_OK) or (database.exists() and not os.access(database, os.W_OK)):
        return "it may not be written. Give it to the user who runs the study, or mend --tracking."
    return None
