"""What `run` would refuse, `plan` refuses."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.engine import probe
from study.store import place
from study.store.study import record_facts
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import made_study
from trainables.loading.cache import prepare

METRICS = {"accuracy": 0.9, "ece": 0.1, "ts_ece": 0.1, "nll": 0.3}


@pytest.mark.parametrize(
    ("augment", "padding", "said"),
    [
        (
            "crop",
            8,
            "data.padding: 8 is not below the images' 8 pixels: crops could be empty. Lower it.",
        ),
        (
            "flip",
            2,
            (
                "data.padding: has no effect with augment: flip. Remove it, or write augment: crop"
                " or crop_flip."
            ),
        ),
        ("crop_flip", 7, ""),
    ],
)
def test_padding(tmp_path: Path, augment: str, padding: int, said: str) -> None:
    plain = {
        "name": "small",
        "data": {"name": "digits", "augment": augment, "padding": padding},
        "model": "mlp",
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**plain, "methods": ["focal"]}))
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if said else 0)
    assert said in shown and (not said or shown.count("\n") == 1)


FOR_IMAGES = "is for images, the data are rows of 2 numbers. Remove it."


@pytest.mark.parametrize(
    ("data", "keys", "said"),
    [
        (
            {},
            {"model": "cnn"},
            "model: cnn takes images, the data are rows of 2 numbers. Write model: mlp.",
        ),
        ({"augment": "flip"}, {}, f"data.augment: flip {FOR_IMAGES}"),
        (
            {},
            {"search_space": {"data.augment": {"choices": ["none", "crop"]}}},
            f"data.augment: crop {FOR_IMAGES}",
        ),
        (
            {},
            {"methods": ["brier", {"name": "focal", "values": {"data.augment": "flip"}}]},
            f"data.augment: flip {FOR_IMAGES}",
        ),
        ({"padding": 2}, {}, f"data.padding: {FOR_IMAGES}"),
        (
            {},
            {"shift": {"drawn": "digits"}},
            "shift.drawn: has images, the study rows.",
        ),
        ({}, {"methods": ["mixup"]}, ""),
    ],
)
def test_what_is_for_images_is_refused_where_samples_are_rows(
    tmp_path: Path, data: dict[str, object], keys: dict[str, object], said: str
) -> None:
    rows = {"name": "gaussian_clusters", "train": 200, **data}
    spec = write_spec(
        tmp_path / "small.yaml",
        **{"data": rows, "search_space": {}, "batch_size": 32, **keys},
    )
    shown = here("plan", spec, "--storage", tmp_path, check=2 if said else 0)
    if said:
        assert shown == f"small.yaml: {said}\n"
    else:
        assert "data: 2 classes of rows of 2 numbers; 160 train, 40 validation" in shown
        assert "\ncolumns: x, y\n" in shown and "resolution: 40 validation rows resolve" in shown


@pytest.mark.parametrize(
    ("objectives", "serve", "said"),
    [
        (["accuracy", "ece"], None, ""),
        (
            ["accuracy", "ece"],
            "temperature",
            "serve: temperature: its registered models have accuracy, ts_ece, while",
        ),
        (["accuracy", "ts_ece"], None, ""),
        (
            ["accuracy", "ts_nll"],
            "raw",
            "serve: raw: its registered models have accuracy, nll, while the search",
        ),
        (["ece", "ts_ece"], "raw", ""),
        (
            ["ece", "ts_ece"],
            None,
            "small.yaml: serve: the objectives are of the network as trained and of its temper",
        ),
        (
            ["ece"],
            "scaled",
            "small.yaml: serve: there is no 'scaled'. Valid values: temperature, raw.",
        ),
    ],
)
def test_what_is_served(
    tmp_path: Path, objectives: list[str], serve: str | None, said: str
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
    assert said in shown and ("registered models" in shown) == ("registered models" in said)
    assert not refused or shown.count("\n") == 1


@pytest.mark.slow
def test_a_change_of_a_study_that_has_trials(tmp_path: Path) -> None:
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
    assert "epochs: was 1, is 2" in plan(2, epochs=2)
    assert "data.validation: was 0.2, is 0.3" in plan(2, data={"name": "digits", "validation": 0.3})
    assert "methods.focal: was present, is missing" in plan(2, methods=["mbls"])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"batch_size": 1152}, "1152 is more than the 1151 samples that cross_entropy trains on"),
        (
            {"batch_size": 1100, "equal_train": True},
            "1100 is more than the 1036 samples that cross_entropy trains on",
        ),
        ({"search_space": {"batch_size": {"choices": [64, 2048]}}}, "2048 is more than the 1151"),
    ],
    ids=str,
)
def test_a_batch_of_more_samples_than_there_are(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], **keys)
    assert f"batch_size: {said}" in here("plan", spec, "--storage", tmp_path, check=2)


def test_how_much_of_a_gpu_the_images_take(tmp_path: Path) -> None:
    data = {"name": "digits", "augment": "crop", "padding": 1}
    spec = write_spec(tmp_path / "small.yaml", data=data, resources={"cpu": 1, "gpu": 0.5})
    shown = here("plan", spec, "--storage", tmp_path)
    assert (
        f"images: {(1151 * 10 * 10 + 287 * 8 * 8) / 1e6:.1f} MB of a trial's share of its GPU's"
        " memory" in shown
    )


# ---- what this machine lacks ---------------------------------------------------------------------


def test_a_machine_without_a_gpu_is_said_as_run_says_it(tmp_path: Path) -> None:
    """The laptop on which a study for a cluster is written: `plan` ends with 0, `run` with 2, with
    nothing made."""
    spec = write_spec(tmp_path / "small.yaml", resources={"cpu": 1, "gpu": 1})
    said = (
        "resources: no GPU here; a trial of cross_entropy needs 1 CPU and 1 GPU. Run with"
        " --address, submit it, or run on a node with 1 GPU.\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "usable_gpus_here", lambda precision: 0)
        shown = here("plan", spec, "--storage", tmp_path)
        assert f"`run` would refuse here: {said}" in shown
        assert here_json("plan", spec, "--storage", tmp_path)["lacks"] == said.strip()
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
def test_a_storage_that_cannot_be(tmp_path: Path, command: str) -> None:
    """Each is one line with the file that stands in the way, and no `[Errno 20]`."""
    spec = write_spec(tmp_path / "small.yaml", trials=1)
    file = tmp_path / "file"
    file.write_text("a thesis")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "small").write_text("also a file")
    for storage, there, what in (
        (file, file, "is a file"),
        (file / "below" / "it", file, "is a file"),
        (link, link, "is a link to nothing"),
        (tmp_path / "taken", tmp_path / "taken" / "small", "is a file"),
    ):
        assert here(command, spec, "--storage", storage, check=2) == (
            f"small.yaml: storage: {there} {what}, where a folder is needed. Give another folder"
            " with --storage.\n"
        )
    # Not even root makes a folder there.
    said = here(command, spec, "--storage", "/proc/studies", check=2)
    assert said.startswith("small.yaml: storage: no folder can be made in /proc (")
    ledger = write_spec(tmp_path / "other.yaml", trials=1, ledger=str(file / "ledger.log"))
    said = here(command, ledger, "--storage", tmp_path, check=2)
    assert said.startswith(f"other.yaml: ledger: {file} is a file, where a folder is needed.")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("file", "link", "other.yaml", "small.yaml", "taken")
    ]


def test_less_room_than_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with a kilobyte: the prediction is shown, and the last line refuses. With a budget
    `run` probes too, and refuses alike."""
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(place.shutil, "disk_usage", lambda path: full)
    keys: dict[str, Any] = {"methods": ["cross_entropy"], "trials": 2, "epochs": 1}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    shown = here("plan", spec, "--probe", "--storage", tmp_path, check=2)
    *_, last = shown.splitlines()
    assert last.startswith(f"small.yaml: storage: {tmp_path} has 1e-06 GB free, and what is to be")
    assert "CPU time: about" in shown
    assert here_json("plan", spec, "--storage", tmp_path)["lacks"] is None
    spec = write_spec(tmp_path / "small.yaml", **keys, budget={"cpu_hours": 10})
    assert f"storage: {tmp_path} has 1e-06 GB" in here("run", spec, "--storage", tmp_path, check=2)
    assert not (tmp_path / "small").exists()


# ---- how far it is -------------------------------------------------------------------------------


def test_it_says_how_many_trials_are_done(tmp_path: Path) -> None:
    trials = {"cross_entropy": [(METRICS, [])], "focal": [(METRICS, []), ({}, [])]}
    study = made_study(tmp_path, "small", trials, planned=3)
    digest = prepare(study.spec.data, study.spec.seed).digest
    record_facts(study.directory, data_digest=digest)
    spec = tmp_path / "small.yaml"
    spec.write_text(yaml.safe_dump({**study.plain, "trials": 3}))
    assert "trials: 3 of 6 are done (2 complete, 1 failed, 3 to do); `calstudy run`" in here(
        "plan", spec, "--storage", tmp_path
    )
    found = here_json("plan", spec, "--storage", tmp_path, "--trials", 4)["trials"]
    assert (found["planned"], found["complete"], found["failed"], found["to_do"]) == (8, 2, 1, 5)
    new = write_spec(tmp_path / "new.yaml", name="new")
    assert "trials: none of 6 is done\n" in here("plan", new, "--storage", tmp_path)


def test_it_says_where_nothing_is_searched(tmp_path: Path) -> None:
    """focal has three published settings (gamma 3, 2, 1)."""
    keys = {"methods": ["focal"], "search_space": {}}
    said = (
        "warning: nothing is searched in focal: the 3 trials are settings tried first (3). Write"
        " trials: 4 or more.\n"
    )
    spec = write_spec(tmp_path / "small.yaml", trials=3, **keys)
    assert said in here("plan", spec, "--storage", tmp_path)
    assert "nothing is searched" not in here("plan", spec, "--trials", 4, "--storage", tmp_path)
