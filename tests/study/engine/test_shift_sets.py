"""Sets of `shift:`, from `plan` to what `confirm` shows: read by nobody before it,
compared before any opening."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile

from search_spaces import strict_yaml
from study.answer.confirmation import results_of
from study.engine import confirm
from study.schema.errors import SpecError
from study.store.openings import OPENINGS, read_tested
from study.store.study import open_study
from tests.study.command_line import here, write_spec
from tests.study.engine.test_confirm import TOLD, refused, rows_of, search
from tests.study.made import unanswered as unanswered  # fixture
from trainables.data.digits import Digits
from trainables.loading.cache import load_split, prepare

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unanswered")]

OWN = {"same": {"name": "digits"}}
FOCAL = {"focal": TOLD["focal"]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pack(folder: Path, size: int, shared: int) -> dict[str, Any]:
    """Noise, and at its end validation images of the digits study."""
    seen = load_split(prepare(Digits(), 0), "validation").images[:shared, 0].numpy()
    noise = np.random.default_rng(0).integers(0, 17, (size - shared, 8, 8), dtype=np.uint8)
    encoded = []
    for image in [*noise, *seen]:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "png")
        encoded.append(buffer.getvalue())
    pq.write_table(
        pa.table({"image": encoded, "label": np.arange(size) % 10}), folder / "pack.parquet"
    )
    return {"noise": {"name": "parquet", "path": str(folder / "pack.parquet")}}


def write_shift(storage: Path, name: str, shift: dict[str, Any]) -> None:
    """Into a recorded study, past its checks."""
    file = storage / name / "study.yaml"
    file.write_text(strict_yaml.dump({**strict_yaml.read(file), "shift": shift}))


def openings(storage: Path) -> list[Any]:
    study = open_study("small-confirm", str(storage))
    notes = study.reader.notes()
    return [opening for of in notes.values() for opening in of.get(OPENINGS, [])]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_the_study_s_own_source_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = write_spec(tmp_path / "x.yaml", shift=OWN)
    said = refused(capsys, command, spec, "--storage", tmp_path)
    assert (
        "x.yaml: shift.same: is the study's own data, with its sealed test split. Name other data"
        in said
    )
    assert not (tmp_path / "small").exists() and not list((tmp_path / "cache").glob("shift-*"))


def test_nothing_is_decoded_before_confirm(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = pack(tmp_path, 20, 0)
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    spec = write_spec(tmp_path / "x.yaml", methods=["cross_entropy"], trials=1, shift=shift)
    here("plan", spec, "--storage", tmp_path)
    here("run", spec, "--storage", tmp_path)
    assert not list(cache.glob("shift-*"))
    with pytest.raises(SpecError, match=r"shift.noise.image: .*the image cannot be decoded"):
        confirm.read_shifts(open_study("small", str(tmp_path)).spec, prepare(Digits(), 0))


def test_confirm_refuses_before_it_trains_or_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(tmp_path, told=FOCAL)
    words = ("confirm", "small", "--trial", "focal/0001", "--seeds", 1, "--storage", tmp_path)
    for shift, said in (
        (OWN, "small-confirm: shift.same: is the study's own data"),
        (
            pack(tmp_path, 999, 1),
            "small-confirm: shift.noise: 1 of its 999 images are also in the study's train",
        ),
    ):
        write_shift(tmp_path, "small", shift)
        assert said in refused(capsys, *words)
        assert not (tmp_path / "small-confirm").exists()
    write_shift(tmp_path, "small", {})
    with monkeypatch.context() as killed:
        # As after a kill: trained, not yet opened.
        killed.setattr(confirm, "measure", lambda *of: 0)
        here(*words, check=1)
    for shift in (OWN, pack(tmp_path, 999, 1)):
        write_shift(tmp_path, "small-confirm", shift)
        with pytest.raises(SpecError, match=r"^small-confirm: shift\.(same|noise): "):
            confirm.measure(open_study("small-confirm", str(tmp_path)))
        assert openings(tmp_path) == []


def test_what_is_shared_is_dropped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search(tmp_path, told=FOCAL, shift=pack(tmp_path, 1000, 1))
    words = ("confirm", "small", "--trial", "focal/0001", "--seeds", 1, "--storage", tmp_path)
    assert "shift: noise, 999 samples, 1 dropped: also in train or validation" in " ".join(
        here(*words).split()
    )
    study = open_study("small-confirm", str(tmp_path))
    (record,) = study.records().of("focal_0001")
    measured = read_tested(study)["focal_0001"][0].shifts["noise"]
    answers = np.load(study.files(record) / "shift_noise.npz")
    assert (measured.samples, measured.dropped) == (999, 1) and answers["labels"].tolist() == [
        number % 10 for number in range(999)
    ]
    right = (answers["logits"].argmax(1) == answers["labels"]).mean()
    assert measured.metrics["accuracy"] == pytest.approx(right, abs=1e-9)
    assert rows_of(open_study("small", str(tmp_path)))[0].shift_dropped == {"noise": 1}

    # A set that is refused today: `confirm` says so, its results stay.
    write_shift(tmp_path, "small", OWN)
    assert "shift.same: is the study's own data" in refused(capsys, *words)
    found = results_of(open_study("small", str(tmp_path))).confirmation
    assert found is not None and found.rows[0].shifts["noise"] == (measured.metrics,)
