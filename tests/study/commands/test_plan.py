"""What `run` would refuse, `plan` refuses."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from study.engine import probe, run
from study.store import place
from study.store.study import record_facts
from tests.study.analysis.test_prediction import MEASURED
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import made_study
from trainables.loading.cache import prepare

Approved = Callable[..., None]
METRICS = {"accuracy": 0.9, "ece": 0.1, "ts_ece": 0.1, "nll": 0.3}


@pytest.mark.parametrize(
    ("augment", "padding", "words"),
    [
        ("crop", 8, ["8 is not below", "8 pixels"]),
        ("flip", 2, ["augment: flip", "crop or crop_flip"]),
        ("crop_flip", 7, []),
    ],
)
def test_padding(
    tmp_path: Path, augment: str, padding: int, words: list[str], approved: Approved
) -> None:
    plain = {
        "name": "small",
        "data": {"name": "digits", "augment": augment, "padding": padding},
        "model": "mlp",
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**plain, "methods": ["focal"]}))
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if words else 0)
    if words:
        assert shown.startswith("small.yaml: data.padding: ") and shown.count("\n") == 1
        assert all(word in shown for word in words)
        approved(shown)


@pytest.mark.parametrize(
    ("data", "keys", "said"),
    [
        ({}, {"model": "cnn"}, "model: cnn"),
        ({"augment": "flip"}, {}, "data.augment: flip"),
        (
            {},
            {"search_space": {"data.augment": {"choices": ["none", "crop"]}}},
            "data.augment: crop",
        ),
        (
            {},
            {"methods": ["brier", {"name": "focal", "values": {"data.augment": "flip"}}]},
            "data.augment: flip",
        ),
        ({"padding": 2}, {}, "data.padding:"),
        ({}, {"shift": {"drawn": "digits"}}, "shift.drawn:"),
        ({}, {"methods": ["mixup"]}, ""),
    ],
    ids=["model", "data", "searched", "of a method", "padding", "shift", "rows"],
)
def test_what_is_for_images_is_refused_where_samples_are_rows(
    tmp_path: Path, data: dict[str, object], keys: dict[str, object], said: str, approved: Approved
) -> None:
    rows = {"name": "gaussian_clusters", "train": 200, **data}
    spec = write_spec(
        tmp_path / "small.yaml",
        **{"data": rows, "search_space": {}, "batch_size": 32, **keys},
    )
    shown = here("plan", spec, "--storage", tmp_path, check=2 if said else 0)
    if said:
        assert shown.startswith(f"small.yaml: {said} ") and shown.count("\n") == 1
        approved(shown)
    else:
        # Numbers of the data, which the approved lines leave open.
        assert "2 classes of rows of 2 numbers; 160 train, 40 validation" in shown
        assert "\ncolumns: x, y\n" in shown and "40 validation rows" in shown
        found = ("data: ", "columns: ", "resolution: ")
        approved("\n".join(line for line in shown.splitlines() if line.startswith(found)))


@pytest.mark.parametrize(
    ("objectives", "serve", "said"),
    [
        (["accuracy", "ece"], None, "(serve: either)"),
        (["accuracy", "ece"], "temperature", "(serve: temperature)"),
        (["accuracy", "ts_ece"], None, ""),
        (["accuracy", "ts_nll"], "raw", "(serve: raw)"),
        (["ece", "ts_ece"], "raw", ""),
        (["ece", "ts_ece"], None, "(serve: either)"),
        (["ece"], "scaled", "small.yaml: serve: there is no 'scaled'."),
    ],
    ids=[
        "as trained",
        "served otherwise",
        "as scaled",
        "scaled, served otherwise",
        "both, said",
        "both, unsaid",
        "no such word",
    ],
)
def test_what_is_served(
    tmp_path: Path, objectives: list[str], serve: str | None, said: str, approved: Approved
) -> None:
    directions = {"accuracy": "maximize"}
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal"],
        "objectives": [
            {"metric": name, "direction": directions.get(name, "minimize")} for name in objectives
        ],
        "serve": serve,
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    refused = said.startswith("small.yaml")
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if refused else 0)
    assert said in shown and ("serving: " in shown) == said.startswith("(serve: ")
    assert not refused or shown.count("\n") == 1
    if serve and said.startswith("(serve: "):  # what the models would have
        other = "ts_ece" if serve == "temperature" else "nll"
        assert f"accuracy, {other};" in shown
    if said:
        approved("\n".join(line for line in shown.splitlines() if "serve: " in line))


@pytest.mark.slow
def test_a_change_of_a_study_that_has_trials(tmp_path: Path, approved: Approved) -> None:
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal"],
        "epochs": 1,
        "trials": 1,
    }
    file = tmp_path / "small.yaml"

    def plan(check: int = 0, **changed: object) -> str:
        file.write_text(yaml.safe_dump({**plain, **changed}))
        return here("plan", file, "--storage", tmp_path, check=check)

    plan(epochs=2)  # nothing has begun
    file.write_text(yaml.safe_dump(plain))
    here("run", file, "--storage", tmp_path)
    assert "results go to" in plan(trials=9)
    for said, changed in (
        ("epochs: was 1, is 2", {"epochs": 2}),
        ("data.validation: was 0.2, is 0.3", {"data": {"name": "digits", "validation": 0.3}}),
        ("methods.focal: ", {"methods": ["mbls"]}),
    ):
        shown = plan(2, **changed)
        assert said in shown
        approved(shown)


@pytest.mark.parametrize(
    ("keys", "asked", "there"),
    [
        ({"batch_size": 1152}, 1152, 1151),
        ({"batch_size": 1100, "equal_train": True}, 1100, 1036),
        ({"search_space": {"batch_size": {"choices": [64, 2048]}}}, 2048, 1151),
    ],
    ids=["of all", "of equal train", "searched"],
)
def test_a_batch_of_more_samples_than_there_are(
    tmp_path: Path, keys: dict[str, Any], asked: int, there: int, approved: Approved
) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], **keys)
    said = here("plan", spec, "--storage", tmp_path, check=2)
    assert f"batch_size: {asked} is more than the {there} samples that cross_entropy " in said
    approved(said)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("begun", [False, True], ids=["a new study", "a study without trials"])
def test_such_a_batch_is_refused_before_anything_trains(
    tmp_path: Path, command: str, begun: bool, approved: Approved
) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], batch_size=1152)
    if begun:  # its driver was killed before the first trial
        made_study(tmp_path, "small", {"cross_entropy": []})
    there = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    said = here(command, spec, "--storage", tmp_path, check=2)
    assert said.startswith("small.yaml: batch_size: 1152 is more than ") and said.count("\n") == 1
    now = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert now.items() <= there.items()
    approved(said)


@pytest.mark.parametrize("there", [1151, 1152])
def test_such_a_batch_of_a_method_that_is_added(tmp_path: Path, there: int) -> None:
    """Those of the methods that have trials are kept."""
    study = made_study(tmp_path, "small", {"cross_entropy": [(METRICS, [])]})
    record_facts(study.directory, data_digest=prepare(study.spec.data, study.spec.seed).digest)
    added = {"name": "focal", "values": {"batch_size": there}}
    spec = tmp_path / "small.yaml"
    spec.write_text(yaml.safe_dump({**study.plain, "methods": [*study.plain["methods"], added]}))
    said = here("plan", spec, "--storage", tmp_path, check=2 if there > 1151 else 0)
    assert ("batch_size: 1152 is more than the 1151 samples that focal " in said) == (there > 1151)


def test_how_much_of_a_gpu_the_images_take(tmp_path: Path, approved: Approved) -> None:
    data = {"name": "digits", "augment": "crop", "padding": 1}
    spec = write_spec(tmp_path / "small.yaml", data=data, resources={"cpu": 1, "gpu": 0.5})
    shown = here("plan", spec, "--storage", tmp_path)
    (said,) = (line for line in shown.splitlines() if line.startswith("images: "))
    assert f"{(1151 * 10 * 10 + 287 * 8 * 8) / 1e6:.1f} MB" in said
    approved(said)


def test_how_much_of_meta_a_step_takes(tmp_path: Path) -> None:
    """The meta split is a tenth of each class of train: 116 samples, fewer than the default."""
    above = {"name": "gamma_net", "meta_batch": 1000}
    methods = [
        {"label": "usual", "name": "gamma_net"},
        {"label": "few", "name": "gamma_net", "meta_batch": 32},
        {"label": "above", "name": "sample_prioritization", "base": above},
        {"label": "equal", "name": "meta_l2"},
    ]
    spec = write_spec(tmp_path / "small.yaml", methods=[*methods, "focal"], batch_size=100)
    shown = here("plan", spec, "--storage", tmp_path).splitlines()
    assert [line for line in shown if "each step takes" in line] == [
        "usual: each step takes all 116 (of up to 512) meta images beside 100 of train",
        "few: each step takes 32 meta images beside 100 of train",
        "above: each step takes all 116 (of up to 1,000) meta images beside 100 of train",
        "equal: each step takes 100 meta images beside 100 of train",
    ]


# ---- what this machine lacks ---------------------------------------------------------------------


def test_a_machine_without_a_gpu_is_said_as_run_says_it(tmp_path: Path, approved: Approved) -> None:
    """The laptop on which a study for a cluster is written: `plan` ends with 0, `run` with 2, with
    nothing made."""
    spec = write_spec(tmp_path / "small.yaml", resources={"cpu": 1, "gpu": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "usable_gpus_here", lambda precision: 0)
        shown = here("plan", spec, "--storage", tmp_path)
        lacks = here_json("plan", spec, "--storage", tmp_path)["lacks"]
        assert lacks.startswith("resources: ") and "cross_entropy needs 1 CPU and 1 GPU" in lacks
        approved(lacks)
        said = f"{lacks}\n"
        assert f"`run` would refuse here: {said}" in shown
        assert here("run", spec, "--storage", tmp_path, check=2).endswith(said)
        assert here("plan", spec, "--probe", "--storage", tmp_path, check=2).endswith(said)
        # What a GPU-hour buys is not known here, and that is no mistake.
        paid = write_spec(
            tmp_path / "small.yaml", resources={"cpu": 1, "gpu": 1}, budget={"gpu_hours": 1}
        )
        assert f"`run` would refuse here: {said}" in here("plan", paid, "--storage", tmp_path)
    assert not (tmp_path / "small").exists()


def test_a_study_that_is_trained_needs_no_gpu(tmp_path: Path) -> None:
    """Only what MLflow lacks is left."""
    keys: dict[str, Any] = {"methods": ["cross_entropy"], "trials": 1, "epochs": 1}
    here("run", write_spec(tmp_path / "small.yaml", **keys), "--storage", tmp_path)
    spec = write_spec(tmp_path / "small.yaml", **keys, resources={"cpu": 1, "gpu": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "usable_gpus_here", lambda precision: 0)
        assert "`run` would" not in here("plan", spec, "--storage", tmp_path)
        assert "1/1 trials" in here("run", spec, "--storage", tmp_path)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_storage_that_cannot_be(tmp_path: Path, command: str, approved: Approved) -> None:
    """Each is one line with the file that stands in the way, and no `[Errno 20]`."""
    spec = write_spec(tmp_path / "small.yaml", trials=1)
    file = tmp_path / "file"
    file.write_text("a thesis")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "small").write_text("also a file")
    for storage, there in (
        (file, file),
        (file / "below" / "it", file),
        (link, link),
        (tmp_path / "taken", tmp_path / "taken" / "small"),
    ):
        said = here(command, spec, "--storage", storage, check=2)
        assert said.startswith(f"small.yaml: storage: {there} ") and said.count("\n") == 1
        approved(said)
    # Not even root makes a folder there.
    said = here(command, spec, "--storage", "/proc/studies", check=2)
    assert said.startswith("small.yaml: storage: ") and "/proc (" in said
    approved(said.partition(" (")[0])
    ledger = write_spec(tmp_path / "other.yaml", trials=1, ledger=str(file / "ledger.log"))
    said = here(command, ledger, "--storage", tmp_path, check=2)
    assert said.startswith(f"other.yaml: ledger: {file} ")
    approved(said)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("file", "link", "other.yaml", "small.yaml", "taken")
    ]


def test_less_room_than_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    """A disk with a kilobyte: the prediction is shown, and the last line refuses. With a budget
    `run` probes too, and refuses alike."""
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(place.shutil, "disk_usage", lambda path: full)
    for module in (probe, run):
        monkeypatch.setattr(module, "probe", lambda *_, **__: {"cross_entropy": [(1.0, MEASURED)]})
    keys: dict[str, Any] = {"methods": ["cross_entropy"], "trials": 2, "epochs": 1}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    shown = here("plan", spec, "--probe", "--storage", tmp_path, check=2)
    *_, last = shown.splitlines()
    assert last.startswith(f"small.yaml: storage: {tmp_path} has 1e-06 GB ")
    approved(last)
    assert "CPU time: about" in shown
    assert here_json("plan", spec, "--storage", tmp_path)["lacks"] is None
    spec = write_spec(tmp_path / "small.yaml", **keys, budget={"cpu_hours": 10})
    assert f"storage: {tmp_path} has 1e-06 GB" in here("run", spec, "--storage", tmp_path, check=2)
    assert not (tmp_path / "small").exists()


# ---- how far it is -------------------------------------------------------------------------------


def test_it_says_how_many_trials_are_done(tmp_path: Path, approved: Approved) -> None:
    trials = {"cross_entropy": [(METRICS, [])], "focal": [(METRICS, []), ({}, [])]}
    study = made_study(tmp_path, "small", trials, planned=3)
    digest = prepare(study.spec.data, study.spec.seed).digest
    record_facts(study.directory, data_digest=digest)
    spec = tmp_path / "small.yaml"
    spec.write_text(yaml.safe_dump({**study.plain, "trials": 3}))
    shown = here("plan", spec, "--storage", tmp_path)
    (done,) = (line for line in shown.splitlines() if line.startswith("trials: "))
    assert "3 of 6" in done and "2 complete, 1 failed, 3 to do" in done
    approved(done)
    found = here_json("plan", spec, "--storage", tmp_path, "--trials", 4)["trials"]
    assert (found["planned"], found["complete"], found["failed"], found["to_do"]) == (8, 2, 1, 5)
    new = write_spec(tmp_path / "new.yaml", name="new")
    shown = here("plan", new, "--storage", tmp_path)
    (none,) = (line for line in shown.splitlines() if line.startswith("trials: "))
    assert "none of 6" in none
    approved(none)


def test_it_says_where_nothing_is_searched(tmp_path: Path, approved: Approved) -> None:
    """focal has three published settings (gamma 3, 2, 1)."""
    keys = {"methods": ["focal"], "search_space": {}}
    spec = write_spec(tmp_path / "small.yaml", trials=3, **keys)
    shown = here("plan", spec, "--storage", tmp_path)
    (said,) = (line for line in shown.splitlines() if "nothing is searched" in line)
    assert said.startswith("warning: ") and "focal: the 3 trials" in said and "trials: 4" in said
    approved(said)
    assert "nothing is searched" not in here("plan", spec, "--trials", 4, "--storage", tmp_path)


# ---- tracking and weights ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tracking", ["./mlruns", "databricks", "file:///srv/mlruns", "sqlite:///mlflow.db", "NOT_SET"]
)
def test_what_is_no_tracking_server_is_refused_by_both(tmp_path: Path, tracking: str) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, tracking=tracking)
    said = [here(command, spec, "--storage", tmp_path, check=2) for command in ("plan", "run")]
    assert said[0] == said[1].splitlines(True)[-1] and said[0].startswith("tracking: ")


@pytest.mark.parametrize("kind", ["pickle", "text", "other network"])
def test_weights_that_no_trial_could_load_are_refused_by_both(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "own.pth"
    if kind == "pickle":
        torch.save(torch.nn.Linear(2, 2), file)
    elif kind == "text":
        file.write_text("hello")
    else:
        torch.save(torch.nn.Linear(2, 2).state_dict(), file)
    model = {"name": "torchvision", "network": "resnet18", "weights": str(file)}
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, model=model)
    before = torch.random.get_rng_state()
    for command in ("plan", "run"):
        said = here(command, spec, "--storage", tmp_path / "s", check=2).splitlines()[-1]
        assert said.startswith(f"small.yaml: model.weights: {file} ")
    assert torch.equal(before, torch.random.get_rng_state())
