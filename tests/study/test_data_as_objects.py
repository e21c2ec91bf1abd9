"""A study of objects: run, confirmed, exported and moved while the objects are gone."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

from study import Study, python
from study.notebook.places import Place
from study.schema.errors import SpecError
from tests.study.command_line import here, here_json
from trainables.problems import UserError


class Photos(Dataset):  # type: ignore[type-arg]
    """scikit-learn's digits as PIL images."""

    def __init__(self) -> None:
        bunch = load_digits()
        self.classes = [f"digit {name}" for name in bunch.target_names]
        self.images = bunch.images.astype(np.uint8)
        self.labels = bunch.target

    def __len__(self) -> int:
        return 900

    def __getitem__(self, place: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.images[place]), int(self.labels[place])


def keys(folder: Path, **other: Any) -> dict[str, Any]:
    usual = {"name": "mine", "data": Photos(), "model": "mlp", "methods": ["focal"], "epochs": 1}
    return {**usual, "trials": 1, "storage": folder, **other}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str], place: Place, again: str, echo: bool = True) -> tuple[str, ...]:
        return tuple(here(*words).splitlines())

    monkeypatch.setattr(python, "run_command", run)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_only_the_files_count_once_the_study_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    study = Study.create(**keys(first)).run()
    with pytest.raises(SpecError, match=r"^data.train: 'mine' has begun with other data: sha256"):
        Study.create(**keys(first, data=(np.zeros((9, 1, 8, 8), np.uint8), np.arange(9) % 3)))
    fewer = {"train": Photos(), "test": (Photos().images[900:, None], Photos().labels[900:])}
    with pytest.raises(SpecError, match=r"^data.test: .*was absent"):
        Study.from_spec(keys(first, data=fewer))
    renamed = {"train": Photos(), "classes": list("abcdefghij")}
    with pytest.raises(SpecError, match=r"^data.classes: .*: a, b, .* was digit 0, digit 1"):
        Study.from_spec(keys(first, data=renamed))
    assert repr(Study.create(**keys(first))) == repr(study)  # the same script
    assert len(Study.from_spec(keys(first, trials=2)).run().trials()) == 2
    # What is written is what torch read.
    monkeypatch.setattr(Photos, "__getitem__", None)
    opened = Study.open(first / "mine")
    assert opened.trials().state.tolist() == ["complete"] * 2
    assert any("of mine/data" in part.text for part in opened.answer().why)
    confirmed = opened.confirm(trials=["focal/0000"], seeds=1)
    assert confirmed.trials().test_ece.notna().all()
    assert "path: ../mine/data" in (confirmed.directory / "study.yaml").read_text()
    assert opened.export("kept", trial="focal/0001", temperature=False) == "models:/kept/1"
    # The folders are copied to another disk, the original is gone.
    second = tmp_path / "second"
    shutil.copytree(first, second)
    shutil.rmtree(first)
    moved = Study.open("mine", storage=second)
    assert len(moved.run(trials=3, moved=True).trials()) == 3
    assert moved.confirm(trials=["focal/0001"], seeds=1).trials().test_ece.notna().all()
    assert here_json("verify", "models:/kept/1", "--storage", second)["ok"]
    here("audit", "mine", "--storage", second)
    here("delete", "mine", "--storage", second, "--yes")
    assert not (second / "mine").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_data_that_are_lost_or_altered(tmp_path: Path) -> None:
    study = Study.create(**keys(tmp_path, model="cnn")).run()
    folder = tmp_path / "mine" / "data"
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    shutil.rmtree(folder)
    other = (torch.zeros(30, 1, 8, 8, dtype=torch.uint8), torch.arange(30) % 10)
    with pytest.raises(SpecError, match=r"^data: 'mine' has begun with other data"):
        Study.create(**keys(tmp_path, model="cnn", data=other))
    assert not folder.exists()
    Study.create(**keys(tmp_path, model="cnn"))  # the same script restores them
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in kept.iterdir()
    }
    (folder / "train_labels.npy").write_bytes((kept / "train_labels.npy").read_bytes()[:-8])
    with pytest.raises(AssertionError, match=r"train_labels.npy is not as it was written"):
        study.run(trials=2)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_study_of_other_data_takes_no_objects(tmp_path: Path) -> None:
    Study.create(**keys(tmp_path, data="digits")).run()
    with pytest.raises(UserError, match=r"^data: 'mine' has begun with digits. Write another name"):
        Study.create(**keys(tmp_path))
    assert not (tmp_path / "mine" / "data").exists()


@pytest.mark.slow
def test_a_file_names_the_data_of_another_study(tmp_path: Path) -> None:
    Study.create(**keys(tmp_path))
    file = tmp_path / "other.yaml"
    file.write_text(
        "name: other\ndata: {name: arrays, path: mine/data, limit: 100}\nmodel: mlp\n"
        f"methods: [focal]\ntrials: 1\nbatch_size: 16\nstorage: {tmp_path}\n"
    )
    sizes = re.search(r"images; (\d+) train, (\d+) validation, (\d+) test", here("plan", file))
    assert sizes is not None and sum(map(int, sizes.groups())) == 100
    assert str(tmp_path / "mine" / "data") in here("plan", file, "--explain")
    assert "arrays" in here("list", "datasets")
