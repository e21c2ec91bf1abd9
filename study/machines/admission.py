"""Which nodes are admitted to a study: `check_nodes` asks before a run on a cluster, `fit_again`
asks a node that was passed over. (Each process that trains asks for itself: `guarded`.)"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from study.machines import node_facts
from study.machines.guarded import Unfit
from study.machines.node_facts import Facts, Question
from study.machines.nodes import (
    DATA_PATIENCE,
    NodeFacts,
    Trial,
    alive_nodes,
    answers_of,
    extensions_of,
    seen,
)
from study.machines.ray_session import ClusterUnready, Node
from study.schema.resources import slots
from study.schema.spec import StudySpec
from study.store.study import StudyFolder
from trainables.files.atomic import write_whole
from trainables.machine import GPU_MEND, TRAINING_LIBRARIES, versions
from trainables.plugins import extension_digests
from trainables.problems import UserError

Answers: TypeAlias = dict[str, str | None]  # by node id why it is not fit, None if it is


def check_nodes(
    spec: StudySpec, root: Path, data_digest: str, say: Callable[[str], None]
) -> list[Unfit]:
    """The nodes on which no trial should run: they have other code or libraries, do not see the
    storage `root`, or cannot prepare the data.

    say: is told what is being done. Ray must be joined. Raises ClusterUnready, naming the first
    problem and the mend, if none of those that are large enough is left.
    """
    needs = spec.needs.values()
    nodes = [node for node in alive_nodes() if any(slots([node], each) for each in needs)]
    say(f"checking {len(nodes)} nodes")
    common: list[Question] = [(node_facts.code, (spec.extensions,)), (node_facts.identity, ())]
    own = NodeFacts(name="here", **node_facts.answers(common))
    found = _judged(
        seen(root, nodes, common),
        lambda node: (
            storage_problem(node, root)
            or code_problem(node, own, spec.extensions)
            or versions_problem(node, own)
        ),
    )
    fit = [node for node in nodes if found.get(node["NodeID"], "") is None]
    say(f"preparing data on {len(fit)} nodes")
    trial = spec.trial_mapping(spec.variants[0].label)
    prepared: Question = (node_facts.prepared, (trial, data_digest, False))
    answers = answers_of(fit, lambda node: [prepared], DATA_PATIENCE)
    found |= _judged(answers, lambda node: _said(node.data_problem))
    bad = [node for node in nodes if found.get(node["NodeID"])]
    unfit = [Unfit(node["NodeID"], str(found[node["NodeID"]])) for node in bad]
    if unfit and len(unfit) == len(found):
        address = bad[0]["NodeManagerAddress"]
        problem = f"node {address}: {unfit[0].because}"
        if len(unfit) > 1:
            problem += f" {len(unfit) - 1} more nodes fail; `calstudy doctor` lists all."
        raise ClusterUnready(problem)
    return unfit


@dataclass(frozen=True)
class Needed:
    """What is asked of a node that was passed over. question: `node_facts.unfit`, as its processes
    ask it. extension_files: sha256 by name, of the trial's extensions."""

    directory: Path  # the study's
    question: Question
    trial: Trial
    data_digest: str
    extension_files: dict[str, str]
    gpu: bool


def needed_of(study: StudyFolder) -> Needed:
    """What the study needs of a node, which a file written now tells from a copy of its folder."""
    token = secrets.token_hex(16)
    file = study.directory / "run.token"
    write_whole(file, token.encode())
    spec = study.spec
    trains = node_facts.code(packages=node_facts.TRAINS)["code"]
    folder = spec.extensions
    return Needed(
        directory=study.directory,
        question=(
            node_facts.unfit,
            ((str(file), token), trains, versions(TRAINING_LIBRARIES)),
        ),
        trial=spec.trial_mapping(study.labels[0]),
        data_digest=study.recorded.data_digest,
        extension_files={} if folder is None else extension_digests(folder),
        gpu=any(each.gpu for each in spec.needs.values()),
    )


def fit_again(needed: Needed, nodes: Sequence[Node]) -> Answers:
    """By the id of each of these nodes that is still there: why it is not fit, None if it is."""
    found = _judged(
        seen(needed.directory, nodes, [needed.question]),
        lambda node: (
            (UserError(*node.unfit) if node.unfit else None)
            or storage_problem(node, needed.directory)
        ),
    )
    asked: list[Question] = [(node_facts.prepared, (needed.trial, needed.data_digest, False))]
    if folder := extensions_of(needed.trial):
        asked.append((node_facts.changed, (folder, needed.extension_files)))
    if needed.gpu:
        asked.append((node_facts.gpus, (needed.trial["precision"],)))
    fit = [node for node in nodes if found.get(node["NodeID"], "") is None]
    lent = {node["NodeID"] for node in nodes if node["Resources"].get("GPU", 0.0)}

    def other_problem(node: NodeFacts) -> UserError | None:
        if node.changed:
            return UserError(f"has another {node.changed[0]} than the driver", "Copy that there.")
        if node.name in lent and node.gpus == 0 and needed.gpu and not node.simulated:
            return UserError("has no GPU that torch can use", GPU_MEND)
        return _said(node.data_problem) or gpu_problem(node)

    found |= _judged(answers_of(fit, lambda node: asked, DATA_PATIENCE), other_problem)
    return found


def _judged(
    answers: Mapping[str, Facts], problem_of: Callable[[NodeFacts], UserError | None]
) -> Answers:
    """By node id the problem it has, with the mend, None if it has none."""
    found: Answers = {}
    for name, answer in answers.items():
        node = NodeFacts(name=name, **answer)
        problem = _said(node.problem) or problem_of(node)
        found[name] = None if problem is None else str(problem)
    return found


def _said(problem: str | None) -> UserError | None:
    """What a node says of itself, with the mend."""
    return UserError(problem) if problem else None


def storage_problem(node: NodeFacts, root: Path) -> UserError | None:
    """Why the driver would not find the files of a trial on the node; None if it would."""
    if node.storage is not None:
        found = f"does not see the storage {root} ({node.storage})"
        return UserError(found, "Mount it there at the same path, or give --storage.")
    if not node.written:
        found = f"files it writes to the storage {root} are not visible here"
        return UserError(found, "Mount the same folder on all nodes.")
    return None


def code_problem(node: NodeFacts, own: NodeFacts, extensions: str | None) -> UserError | None:
    """Why a trial on the node would run other code; None if it would not."""
    if node.code != own.code:
        found = f"has different code in {node.code_at} than this machine in {own.code_at}"
        mend = "Install the same version there."
        return UserError(found, mend)
    if node.extensions != own.extensions:
        there = "different files in" if node.extensions else "no"
        return UserError(f"has {there} extensions {extensions}", "Copy the folder there.")
    return None


@functools.cache
def usable_gpus_here(precision: str) -> int:
    """How many GPUs this machine has. Raises ClusterUnready if torch cannot use one in this
    precision. Asked once: it takes seconds."""
    node = NodeFacts(name="here", **node_facts.gpus(precision))
    if problem := gpu_problem(node):
        raise ClusterUnready(f"resources.gpu: this machine {problem.found}", problem.mend)
    assert isinstance(node.gpus, int)
    return node.gpus


def versions_problem(node: NodeFacts, own: NodeFacts) -> UserError | None:
    """Why a trial on the node would train with other libraries; None if it would not."""
    ours = {name: own.versions[name] for name in TRAINING_LIBRARIES}
    other = node_facts.other_versions(node.versions, ours)
    return UserError(f"has {other}", "Install the same version there.") if other else None


def gpu_problem(node: NodeFacts) -> UserError | None:
    """Why torch cannot use the GPUs of the node; None if it can, or there are none."""
    if isinstance(node.gpus, str):
        return UserError(f"has a torch that does not start ({node.gpus})", "Reinstall it there.")
    if node.gpu_problems:
        found = f"has a GPU that torch cannot use ({node.gpu_problems[0]})"
        return UserError(found, GPU_MEND)
    return None
