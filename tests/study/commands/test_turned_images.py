"""A study made before calstudy turned images by their EXIF orientation, and what `plan` says of
files that are not read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from study.engine import confirm
from study.engine.confirm import ConfirmError
from study.schema.reading import read_spec
from study.store import openings
from study.store.study import open_study
from tests.data.pngs import encoded
from tests.data.turned import tagged
from tests.study.command_line import here, here_json, write_spec
from trainables.data.image_folder import ImageFolder
from trainables.loading.cache import data_digests, prepare, unturned_digests
from trainables.loading.shift import Shift, ShiftSet

Approved = Callable[..., None]


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "before" not in request.fixturenames:
        monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


def photos(folder: Path, orientation: int) -> Path:
    """photos/CLASS: 30 dark and 30 light squares, one with a tag."""
    random = np.random.default_rng(0)
    for place in range(60):
        pixels = random.integers(0, 128, (8, 8)) + 127 * (place % 2)
        content = tagged(pixels, orientation) if place == 0 else encoded(pixels)
        file = folder / "photos" / "ab"[place % 2] / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return write_spec(
        folder / "small.yaml",
        data={"name": "image_folder", "path": "photos"},
        methods=["cross_entropy"],
        batch_size=8,
        trials=2,
        epochs=1,
    )


@contextmanager
def turning_nothing() -> Iterator[None]:
    """As the code that made such studies."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("images", "masks"):
            patch.setattr(f"trainables.data.shared.{name}.orientation_of", lambda encoded: 1)
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished study of images as they are stored, only to read; its cache is in use."""
    folder = tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(folder / "cache"))
        with turning_nothing():
            here("run", photos(folder, 6), "--storage", folder)
        yield folder


def test_a_study_of_images_as_stored_is_not_gone_on_with(before: Path, approved: Approved) -> None:
    stored = open_study("small", str(before))
    data, seed = stored.spec.data, stored.spec.seed
    assert stored.recorded.data_digest == unturned_digests(data, seed).apart
    assert stored.recorded.data_digest not in data_digests(data, seed)
    spec = before / "small.yaml"
    for words in (("plan", spec), ("run", spec), ("confirm", "small")):
        shown = here(*words, "--storage", before, check=2)
        assert ": data: " in shown and "turned upright now" in shown and shown.count("\n") == 1
        approved(shown)
    # The new name that they advise.
    named = spec.with_name("upright.yaml")
    named.write_text(spec.read_text().replace("name: small", "name: upright"))
    here("run", named, "--storage", before)


def test_it_is_read_as_before(before: Path) -> None:
    for words in (("pareto",), ("answer",), ("report", "--bootstrap", 0)):
        here(words[0], "small", *words[1:], "--storage", before)


def test_it_is_exported_as_before_but_its_registered_model_is_not_verified(
    before: Path, approved: Approved
) -> None:
    here("export", "small", "--storage", before, "--name", "then")
    with turning_nothing():
        here("verify", "models:/then/1", "--storage", before)
    shown = here("verify", "models:/then/1", "--storage", before, check=1)
    assert "turned upright now" in shown
    approved(shown)


def test_a_shift_set_measured_as_stored_is_not_measured_again(tmp_path: Path) -> None:
    photos(tmp_path, 6)
    shift_set = ShiftSet(ImageFolder(path=str(tmp_path / "photos")))
    measured = openings.Shifted({}, shift_set.unturned_digest(), 60, 0)
    tested = openings.Tested(1, {}, 1.0, {}, 0.0, {"phone": measured})
    shift = shift_set.digest(), cast(Shift, None)
    with pytest.raises(ConfirmError, match=r"shift\.phone: images with .* Rename the set"):
        confirm._is_asked("phone", shift_set, tested, *shift)
    shift_set = ShiftSet(ImageFolder(path=str(tmp_path / "photos"), limit=20))
    with pytest.raises(ConfirmError, match=r"shift\.phone: the source has changed"):
        confirm._is_asked("phone", shift_set, tested, *shift)


def test_without_its_cache_it_is_exported_no_more(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "empty"))
    shown = here("export", "small", "--storage", before, "--name", "now", check=2)
    assert "turned upright now" in shown and shown.count("\n") == 1


def test_changed_images_are_still_named_as_such(before: Path) -> None:
    image = before / "photos" / "a" / "02.png"
    content = image.read_bytes()
    image.write_bytes(encoded(np.zeros((8, 8))))
    try:
        shown = here("plan", before / "small.yaml", "--storage", before, check=2)
    finally:
        image.write_bytes(content)
    assert "the source has changed since 'small' was started" in shown


def test_a_tag_that_turns_nothing_changes_nothing(tmp_path: Path) -> None:
    spec = photos(tmp_path, 1)
    here_json("plan", spec, "--storage", tmp_path)
    data = read_spec(spec).data
    assert data_digests(data, 0) == unturned_digests(data, 0)
    assert prepare(data, 0).digest in unturned_digests(data, 0)


def test_plan_counts_the_files_that_are_not_read(tmp_path: Path) -> None:
    """Also of data prepared before they came."""
    spec = photos(tmp_path, 1)
    found = here_json("plan", spec, "--storage", tmp_path)["warnings"]
    assert not any(one.startswith("left out") for one in found)
    for name in ("a/1.gif", "a/2.GIF", "b/1.avif", "b/notes", "b/.DS_Store"):
        (tmp_path / "photos" / name).write_bytes(b"")
    found = here_json("plan", spec, "--storage", tmp_path)["warnings"]
    assert "left out: 2 .gif, 1 without an ending, 1 .avif" in found
    assert "warning: left out: 2 .gif" in here("plan", spec, "--storage", tmp_path)
