"""Which nodes are admitted: one that is this machine, asked as Ray would ask it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from study.machines import admission, node_facts
from study.machines.admission import Needed, check_nodes, fit_again, needed_of, usable_gpus_here
from study.machines.node_facts import Facts, Question
from study.machines.nodes import NodeFacts, StorageProbe
from study.machines.ray_session import ClusterUnready, Node
from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec
from study.store.study import StudyFolder, open_directory
from tests.study.made import made_study
from trainables.problems import UserError

SMALL = {"name": "small", "data": "digits", "model": "mlp", "methods": ["focal"], "trials": 4}


def node(name: str, **resources: float) -> Node:
    return {
        "Alive": True,
        "NodeID": name,
        "NodeManagerAddress": f"10.0.0.{name}",
        "Resources": {"CPU": 2.0, **resources},
    }


@pytest.fixture(autouse=True)
def asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node is this machine."""

    def answers_of(
        nodes: Sequence[Node], questions: Callable[[str], list[Question]], patience: float
    ) -> dict[str, Facts]:
        return {one["NodeID"]: node_facts.answers(questions(one["NodeID"])) for one in nodes}

    def seen(root: Path, nodes: Sequence[Node], questions: list[Question]) -> dict[str, Facts]:
        with StorageProbe(root) as probe:
            answers = answers_of(
                nodes, lambda name: [*questions, probe.question(name)], admission.DATA_PATIENCE
            )
            return {name: probe.seen(name, answer) for name, answer in answers.items()}

    monkeypatch.setattr(admission, "answers_of", answers_of)
    monkeypatch.setattr(admission, "seen", seen)


def spec_of(**keys: object) -> StudySpec:
    return spec_from_mapping({**SMALL, **keys}, "small.yaml")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    spec = spec_of()
    directory = made_study(tmp_path / "studies", "small", {"focal": []}, planned=4).directory
    recorded = open_directory(directory, "small").recorded
    trial = spec.trial_mapping("focal")
    digest = node_facts.prepared(trial, None, False)["data"]
    assert digest is not None
    return StudyFolder.of(directory, spec, replace(recorded, data_digest=digest))


@pytest.fixture
def needed(study: StudyFolder) -> Needed:
    return needed_of(study)


def because(needed: Needed, one: Node | None = None) -> str | None:
    return fit_again(needed, [one or node("1")])["1"]


def test_this_machine_is_fit(needed: Needed) -> None:
    assert because(needed) is None


def test_a_copy_of_the_study_is_not_the_study(needed: Needed, study: StudyFolder) -> None:
    """Another driver has begun it since, or the folder is one that was copied."""
    needed_of(study)
    found = because(needed)
    assert found is not None and "run.token (another folder is mounted there). Mount" in found


def test_extensions_and_data_are_asked_for_once_the_code_is_right(
    needed: Needed, tmp_path: Path
) -> None:
    (tmp_path / "ours" / "methods").mkdir(parents=True)
    (tmp_path / "ours" / "methods" / "mine.py").write_text("x = 1\n")
    trial = {**needed.trial, "extensions": str(tmp_path / "ours")}
    files = {"methods/mine.py": "0" * 64}
    found = because(replace(needed, trial=trial, extension_files=files))
    assert found == f"has another {tmp_path}/ours/methods/mine.py than the driver. Copy that there."
    found = because(replace(needed, data_digest="0" * 64))
    assert found is not None and "but the study started with 000000000000" in found
    files_of_code = needed.question[1]
    other = needed.question[0], (files_of_code[0], "0" * 64, files_of_code[2])
    found = because(replace(needed, question=other, data_digest="0" * 64))
    assert found is not None and found.startswith("has other code in")


def test_a_gpu_that_ray_offers_must_be_there(
    needed: Needed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing needs one, it need not."""
    monkeypatch.setattr(node_facts, "GPU_DEVICES", ())
    monkeypatch.setattr(node_facts, "_has_nvml", lambda: False)
    offered = node("1", GPU=1.0)
    assert because(needed, offered) is None
    on_gpu = replace(needed, gpu=True)
    assert because(on_gpu) is None  # its trials are those that need none
    assert str(because(on_gpu, offered)).startswith("has no GPU that torch can use. Install")
    monkeypatch.setenv("CALSTUDY_DEVICE", "cpu")
    assert because(on_gpu, offered) is None


def test_nodes_are_checked_before_a_run(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node("1"), node("2"), {**node("3"), "Resources": {"CPU": 0.0}}]
    monkeypatch.setattr(admission, "alive_nodes", lambda: nodes)
    lines: list[str] = []
    words = (study.spec, study.directory.parent, study.recorded.data_digest, lines.append)
    assert check_nodes(*words) == []
    assert lines == ["checking 2 nodes", "preparing data on 2 nodes"]

    def other(there: NodeFacts, own: NodeFacts) -> UserError | None:
        return UserError("has torch 2.0.0") if there.name == "2" else None

    monkeypatch.setattr(admission, "versions_problem", other)
    (unfit,) = check_nodes(*words)
    assert (unfit.node, unfit.because) == ("2", "has torch 2.0.0.")
    nodes.pop(0)
    with pytest.raises(ClusterUnready, match=r"node 10.0.0.2: has torch 2.0.0"):
        check_nodes(*words)


def test_gpus_of_this_machine_must_be_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked once: it takes seconds."""
    asked: list[str] = []

    def gpus(precision: str) -> Facts:
        asked.append(precision)
        return {"gpus": 2, "gpu_problems": problems}

    monkeypatch.setattr(node_facts, "gpus", gpus)
    usable_gpus_here.cache_clear()
    problems = ["GPU 1: no kernel image is available for execution on the device"]
    with pytest.raises(ClusterUnready) as refused:
        usable_gpus_here("bfloat16")
    assert str(refused.value) == (
        "resources.gpu: this machine has a GPU that torch cannot use (GPU 1: no kernel image is"
        " available for execution on the device). Install a GPU driver and a build of torch that"
        " fit each other."
    )
    problems = []
    assert usable_gpus_here("bfloat16") == usable_gpus_here("bfloat16") == 2 and len(asked) == 2
    usable_gpus_here.cache_clear()
