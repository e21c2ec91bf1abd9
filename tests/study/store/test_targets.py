"""Trials guided by those of another study."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study.schema.errors import SpecError
from study.schema.reading import spec_from_mapping
from study.store import targets
from study.store.study import open_directory
from study.store.targets import Targets
from tests.study.command_line import here, here_json, write_spec
from trainables.outputs.train_entropy import TrainEntropy
from trainables.problems import FieldError

pytestmark = pytest.mark.slow


def guided(target: str) -> list[dict[str, Any]]:
    inner = {"name": "mixup", "base": "focal"}
    return [
        {
            "label": "guided",
            "name": "sample_prioritization",
            "target": target,
            "warmup": 0.0,
            "base": inner,
        }
    ]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that records."""
    folder = tmp_path_factory.mktemp("storage")
    keys = {
        "name": "recorded",
        "methods": ["cross_entropy"],
        "trials": 1,
        "record": "train_entropy",
    }
    here("run", write_spec(folder / "recorded.yaml", **keys), "--storage", folder)
    return folder


def spec(target: str, **keys: Any) -> Any:
    plain = {"name": "mine", "data": "digits", "model": "mlp", "methods": guided(target), **keys}
    return spec_from_mapping(plain, "mine.yaml")


def test_a_study_guided_by_a_trial_of_another(storage: Path, tmp_path: Path) -> None:
    written = write_spec(
        tmp_path / "mine.yaml", name="mine", methods=guided("recorded/cross_entropy/0"), trials=1
    )
    here("run", written, "--storage", storage)
    # 30% of 1151 samples in each of two epochs: what it cost stands beside what it came to.
    (row,) = here_json("pareto", "mine", "--storage", storage)["front"]
    assert row["samples"] == 2 * round(0.3 * 1151)
    with pytest.raises(FieldError, match="Train it in a study with `record: train_entropy`"):
        Targets(storage).file("mine/guided/0")


def test_the_file_is_that_of_the_attempt_that_counts(storage: Path) -> None:
    file = Targets(storage).file("recorded/cross_entropy/0000")
    assert file == storage / "recorded/trials/cross_entropy/0000/attempt-1/train_entropy.npz"
    assert np.load(file)["entropy"].shape == (2, 1151)
    config = Targets(storage).named_in(spec("recorded/cross_entropy/0").trial_mapping("guided"))
    assert config["method"]["target"] == str(file) and config["method"]["base"]["name"] == "mixup"
    assert (
        open_directory(storage / "recorded", "recorded").recorded.meaning["record"]
        == "train_entropy"
    )


def test_a_target_study_is_read_once(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(directory: Path, reference: str) -> Any:
        read.append(directory)
        return open_directory(directory, reference)

    monkeypatch.setattr(targets, "open_directory", counted)
    asked = Targets(storage)
    for _ in range(3):
        digest = TrainEntropy.load(asked.file("recorded/cross_entropy/0")).data_digest
        asked.check(spec("recorded/cross_entropy/0"), digest, "mine.yaml")
    assert read == [storage / "recorded"]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("recorded", "must be STUDY/LABEL/NUMBER or an .npz file, got 'recorded'"),
        ("gone/focal/3", "no study at"),
        ("recorded/cross_entropy/7", "must be a complete trial, but it does not exist"),
    ],
)
def test_targets_that_are_none(storage: Path, target: str, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        Targets(storage).file(target)


def test_other_data_are_refused_before_anything_starts(storage: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"methods\.guided\.target: was recorded on data \w+, but this is 0123"
    ):
        Targets(storage).check(spec("recorded/cross_entropy/0"), "0123456789ab", "mine.yaml")
    written = write_spec(
        tmp_path / "mine.yaml", name="other", methods=guided("recorded/cross_entropy/0"), seed=3
    )
    done = here("run", written, "--storage", storage, check=2)
    assert "Use a trial with the same data and seed" in done and not (storage / "other").exists()
