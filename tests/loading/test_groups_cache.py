"""Groups through the cache: splits, meta, what splits share, shift sets, a frozen network."""

import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.frozen_network import NETWORK, written
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.dataset import Dataset, RawData, RawSplit, Samples
from trainables.files.digest import sidecar_digest
from trainables.loading.cache import Prepared, data_digests, load_split, prepare
from trainables.loading.frozen import features_of
from trainables.loading.shift import ShiftSet, unseen_shift
from trainables.loading.trial_data import TrialData, meta_notes
from trainables.problems import FieldError

Approved = Callable[..., None]
CPU = torch.device("cpu")
SPLITS = ("train", "validation", "test")
PATIENTS = 30
EACH = 6  # images of a patient


def images_of(patients: list[int], seed: int = 0, each: int = EACH, **given: Any) -> RawSplit:
    """Random pixels, of which the first is the patient. A patient's label is its last bit."""
    groups = np.repeat(patients, each)
    images = np.random.default_rng(seed).integers(0, 256, (len(groups), 1, 4, 4), dtype=np.uint8)
    images[:, 0, 0, 0] = groups
    return RawSplit(images, groups % 2, **{"groups": groups, **given})


@dataclass(frozen=True)
class Hospital(Dataset):
    """What `given` says, beside thirty patients of train, of whom number 7 has a name."""

    given: dict[str, Any] = field(default_factory=dict)

    def source_digest(self) -> str:
        return hashlib.sha256(pickle.dumps(self.given)).hexdigest()

    @property
    def unit(self) -> str:
        return "patients"

    def read(self) -> RawData:
        train = images_of(list(range(PATIENTS)))
        plain = {"train": train, "group_names": {7: "p7"}, **self.given}
        return RawData(("a", "b"), **plain)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


def stored(prepared: Prepared, name: str) -> np.ndarray:
    return np.load(prepared.directory / f"{name}.npy")


def patients_of(prepared: Prepared, split: str) -> list[int]:
    """The patient of each image, from its first pixel."""
    found: list[int] = stored(prepared, split)[:, 0, 0, 0].tolist()
    return found


def by_first_appearance(values: Sequence[Any]) -> list[int]:
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


# ---- splits --------------------------------------------------------------------------------------


def test_each_patient_is_in_one_split_and_numbered_there() -> None:
    prepared = prepare(Hospital(), 0)
    assert prepared.sizes == {"train": 114, "validation": 30, "test": 36}
    assert prepared.groups == {"train": 19, "validation": 5, "test": 6}
    seen: set[int] = set()
    for split in SPLITS:
        patients = patients_of(prepared, split)
        assert not seen & set(patients)
        seen |= set(patients)
        assert len(patients) == EACH * len(set(patients))
        numbers = stored(prepared, f"{split}_groups")
        assert numbers.dtype == np.int64 and numbers.tolist() == by_first_appearance(patients)
        assert set(stored(prepared, f"{split}_labels").tolist()) == {0, 1}
        if split != "test":
            keys = stored(prepared, f"{split}_group_keys")
            assert keys[numbers].tolist() == patients
            groups = load_split(prepared, split).groups
            assert groups is not None and groups.tolist() == numbers.tolist()
    assert len(seen) == PATIENTS and prepared.shared == ()
    assert not (prepared.directory / "test_group_keys.npy").exists()


def test_the_share_of_validation_does_not_move_the_sealed_test() -> None:
    one, other = (prepare(Hospital(validation=share), 0) for share in (0.1, 0.4))
    assert patients_of(one, "test") == patients_of(other, "test")


def test_a_size_that_whole_patients_cannot_have_is_said(approved: Approved) -> None:
    """A fifth of 24 patients is five of them, 30 images, where 28.8 are asked for."""
    (said,) = prepare(Hospital(), 0).notes
    assert "validation has 30" in said and "29 " in said and "has 6" in said
    approved(said)


def test_a_class_of_too_few_patients_is_refused(approved: Approved) -> None:
    train = images_of([0, 2, 4, 6, 8, 1, 3])
    with pytest.raises(FieldError) as refused:
        prepare(Hospital(given={"train": train}), 0)
    said = str(refused.value)
    assert "'b'" in said and "patients" in said and "train has 2," in said
    assert "train, test, validation" in said
    approved(said)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"groups": np.zeros(6)}, "float64 [6]"),
        ({"groups": np.arange(11)}, "int64 [11]"),
        ({"groups": ["a"] * 12}, "list"),
    ],
    ids=["type", "length", "no array"],
)
def test_groups_of_an_extension_are_checked(
    given: dict[str, Any], found: str, approved: Approved
) -> None:
    with pytest.raises(FieldError) as refused:
        prepare(Hospital(given={"train": images_of([0, 1], **given)}), 0)
    said = str(refused.value)
    assert "groups of train" in said and f" {found}, " in said and "int64 [12]" in said
    approved(said)


def test_all_splits_have_groups_or_none(approved: Approved) -> None:
    test = images_of([40, 41], groups=None)
    with pytest.raises(FieldError, match=r"train .*, test ") as refused:
        prepare(Hospital(given={"test": test}), 0)
    approved(str(refused.value))


# ---- what the source's own splits share ----------------------------------------------------------


def test_patients_that_are_in_two_splits_are_counted(approved: Approved) -> None:
    given = {
        "train": images_of(list(range(PATIENTS))),
        "validation": images_of([7, 40, 41], seed=1),
        "test": images_of([41, 7, 8, 9, 42], seed=2),
    }
    prepared = prepare(Hospital(given=given), 0)
    test = [patient for patient in patients_of(prepared, "test") if patient in (7, 8, 9)]
    both = [patient for patient in patients_of(prepared, "test") if patient in (7, 41)]
    name = {7: "p7"}
    one, two = (name.get(patient, patient) for patient in (test[0], both[0]))
    for said, words in zip(
        prepared.shared,
        (
            ["3 patients of test", "in train", f"e.g. {one}:"],
            ["1 patient of validation", "in train", "e.g. p7:"],
            ["2 patients of test", "in validation", f"e.g. {two}:"],
        ),
        strict=True,
    ):
        assert all(word in said for word in words)
        approved(said, patient=said.partition("e.g. ")[2].partition(":")[0])
    assert prepared.groups == {"train": 30, "validation": 3, "test": 5}


def test_carved_splits_share_patients_with_the_sources_own_alone() -> None:
    prepared = prepare(Hospital(given={"test": images_of([7, 40], seed=1)}), 0)
    there = next(name for name in ("train", "validation") if 7 in patients_of(prepared, name))
    (said,) = prepared.shared
    assert "1 patient of test" in said and f"in {there}, e.g. p7:" in said


# ---- meta ----------------------------------------------------------------------------------------


def test_meta_has_whole_patients(approved: Approved) -> None:
    prepared = prepare(Hospital(), 0)
    data = TrialData(prepared, CPU, "none", None)
    rest, meta = data.with_meta(0.1, 0)
    patients = np.array(patients_of(prepared, "train"))
    assert not set(patients[rest.rows]) & set(patients[meta.rows])
    assert len(rest) + len(meta) == len(patients) and len(meta) == 12  # of 11.4 asked for
    assert set(meta.labels.tolist()) == set(rest.labels.tolist()) == {0, 1}
    assert meta.groups is not None
    numbers = stored(prepared, "train_groups")[meta.rows]
    assert meta.groups.tolist() == numbers.tolist()
    (said,) = meta_notes(prepared, 0.1, 0, "patients")
    assert "meta has 12" in said and "11 " in said and "has 6" in said
    approved(said)


def test_a_class_of_one_patient_is_not_in_meta(approved: Approved) -> None:
    splits = {"validation": images_of([40, 41], 1), "test": images_of([42, 43], 2)}
    train = images_of([0, 2, 4, 6, 8, 1])
    data = TrialData(prepare(Hospital(given={"train": train, **splits}), 0), CPU, "none", None)
    rest, meta = data.with_meta(0.2, 0)
    assert set(rest.labels.tolist()) == {0, 1} and set(meta.labels.tolist()) == {0}
    two = {"train": images_of([0, 1]), **splits}
    data = TrialData(prepare(Hospital(given=two), 0), CPU, "none", None)
    with pytest.raises(FieldError) as refused:
        data.with_meta(0.2, 0)
    assert refused.value.path == "data.meta"
    approved(str(refused.value))


# ---- shift sets ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Later(Dataset):
    patients: tuple[int, ...] = ()
    names: dict[int, str] = field(default_factory=dict)

    def source_digest(self) -> str:
        return hashlib.sha256(pickle.dumps((self.patients, self.names))).hexdigest()

    def read(self) -> RawData:
        raise AssertionError("only its samples are asked for")

    def samples(self, where: Any = None) -> Samples:
        self._refuse_where(where)
        images, labels, groups = images_of(list(self.patients), seed=5)
        return Samples(images, labels, {0: "a", 1: "b"}, groups=groups, group_names=self.names)


def test_a_shift_set_tells_which_patients_the_study_has(approved: Approved) -> None:
    prepared = prepare(Hospital(), 0)
    test = patients_of(prepared, "test")
    mine = patients_of(prepared, "train")[0], patients_of(prepared, "validation")[0]
    others = Later(patients=(50, *mine, test[0]), names={mine[0]: "Ms A", mine[1]: "Mr B"})
    found = unseen_shift(ShiftSet(others), {}, prepared)
    for _ in range(2):  # decoded, and from the cache
        assert found.shared is not None and found.groups is not None
        assert "2 groups" in found.shared and "e.g. Ms A:" in found.shared
        approved(found.shared)
        assert found.groups.tolist() == np.repeat(others.patients, EACH).tolist()
        found = unseen_shift(ShiftSet(others), {}, prepared)
    new = unseen_shift(ShiftSet(Later(patients=(50, 51))), {}, prepared)
    assert new.shared is None and new.groups is not None
    bare = Hospital(given={"train": images_of(list(range(30)), groups=None)})
    assert unseen_shift(ShiftSet(others), {}, prepare(bare, 0)).shared is None


def test_one_patient_has_one_number_in_another_file(tmp_path: Path) -> None:
    """By names in two csv files, also where they are whole numbers in one."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["x", "y"])
    frame = frame.assign(label=np.arange(60) // 3 % 2, patient=[f"{i // 3}" for i in range(60)])
    frame.to_csv(tmp_path / "a.csv", index=False)
    later = pd.DataFrame({"x": [0.5, 1.5], "y": [1.0, 2.0], "label": [0, 1], "patient": [3, 70]})
    later.to_parquet(tmp_path / "b.parquet", index=False)
    data = {"name": "table", "group": "patient"}
    plain = {**data, "path": str(tmp_path / "a.csv"), "validation": 0.3}
    study = ShiftSet.read(plain).data
    prepared = prepare(study, 0)
    found = unseen_shift(ShiftSet.read({**data, "path": str(tmp_path / "b.parquet")}), {}, prepared)
    assert found.groups is not None and found.groups.tolist() == [3, 70]
    seen = {*stored(prepared, "train_group_keys"), *stored(prepared, "validation_group_keys")}
    assert (found.shared is not None) == (3 in seen)
    assert found.shared is None or found.shared.startswith("1 patient ")


# ---- a frozen network ----------------------------------------------------------------------------


def test_features_keep_groups_and_what_is_said(tmp_path: Path) -> None:
    written(tmp_path)
    weights = str(tmp_path / "weights-0.pth")
    model = {"name": "torchvision", "network": NETWORK, "weights": weights, "train": "head"}
    trial = TrialConfig.from_mapping({"data": "digits", "model": model, "method": "mmce"})
    prepared = prepare(Hospital(given={"test": images_of([7, 40], seed=1)}), 0)
    made = features_of(trial.model, prepared, CPU)
    assert (made.groups, made.shared, made.notes) == (
        prepared.groups,
        prepared.shared,
        prepared.notes,
    )
    for split in ("train", "validation"):
        groups, theirs = load_split(made, split).groups, load_split(prepared, split).groups
        assert groups is not None and theirs is not None and torch.equal(groups, theirs)
    assert not list(made.directory.glob("test*"))
    one, other = (TrialData(part, CPU, "none", None).with_meta(0.1, 0) for part in (made, prepared))
    assert torch.equal(one[1].rows, other[1].rows)


# ---- identical samples ---------------------------------------------------------------------------


def bare(count: int, seed: int = 0, copies: tuple[tuple[int, int], ...] = ()) -> RawSplit:
    """Random images without groups; the first of each pair is copied to the second."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)
    for source, place in copies:
        images[place] = images[source]
    return RawSplit(images, np.arange(count) % 2)


def of(train: RawSplit, **given: Any) -> Hospital:
    return Hospital(given={"train": train, "group_names": {}, **given})


PAIRS = (*((place, place + 100) for place in range(60)), (0, 161))


def rows_in(prepared: Prepared) -> dict[str, list[bytes]]:
    return {split: [one.tobytes() for one in stored(prepared, split)] for split in SPLITS}


def test_identical_samples_are_in_one_split(approved: Approved) -> None:
    """Also where their labels differ: 0 and 161 are of two classes."""
    dataset = of(bare(200, copies=PAIRS))
    prepared = prepare(dataset, 0)
    assert prepared.digest == data_digests(dataset, 0).together
    assert prepared.identical == 61 and prepared.groups == {}
    found = rows_in(prepared)
    assert sum(map(len, found.values())) == 200
    assert not set(found["train"]) & set(found["test"])
    assert not set(found["train"]) & set(found["validation"])
    assert not set(found["validation"]) & set(found["test"])
    assert prepared.sizes["test"] == pytest.approx(40, abs=1)
    assert load_split(prepared, "train").groups is None
    numbers = stored(prepared, "train_copies")
    assert numbers.tolist() == by_first_appearance(found["train"])
    assert "61 of 200 images of train" in prepared.notes[0]
    approved(prepared.notes[0])
    rest, meta = TrialData(prepared, CPU, "none", None).with_meta(0.2, 0)
    train = np.array(found["train"])
    assert len(meta) and not set(train[meta.rows]) & set(train[rest.rows])


def test_without_identical_samples_digest_and_files_are_as_before() -> None:
    """The sha256 of the files that digits had before, and of their digest's parts."""
    prepared = prepare(Digits(), 0)
    assert prepared.digest == data_digests(Digits(), 0).apart and prepared.identical == 0
    begins = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        for file in prepared.directory.glob("*.npy")
    }
    assert begins == {
        "test.npy": "c863ae20",
        "test_labels.npy": "2b4cdb86",
        "train.npy": "0c1f7692",
        "train_labels.npy": "43fc4976",
        "validation.npy": "aa7edcde",
        "validation_labels.npy": "c57f2795",
    }


def without_looking(dataset: Dataset) -> Prepared:
    """The cache entry as it was made before anybody looked for identical samples."""
    found = prepare(dataset, 0, digest=data_digests(dataset, 0).apart)
    file = found.directory / "meta.json"
    meta = json.loads(file.read_text())
    del meta["identical"]
    file.write_text(json.dumps({**meta, "sidecar": sidecar_digest(meta)}))
    return found


@pytest.mark.parametrize("copies", [(), PAIRS])
def test_an_old_cache_is_looked_at_once(
    copies: tuple[tuple[int, int], ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset = of(bare(200, copies=copies))
    digests = data_digests(dataset, 0)
    old = without_looking(dataset)
    before = {split: stored(old, split).tobytes() for split in SPLITS}
    new = prepare(dataset, 0)
    assert new.digest == (digests.together if copies else digests.apart)
    assert {split: stored(old, split).tobytes() for split in SPLITS} == before
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(Hospital, "read", lambda self: pytest.fail("decoded again"))
    assert prepare(dataset, 0).digest == new.digest
    # A study that began on the old one goes on with it.
    assert prepare(dataset, 0, begun=digests.apart).digest == digests.apart
    assert prepare(dataset, 0, begun="0" * 64).digest == new.digest


def test_a_required_digest_is_made_by_its_rule(approved: Approved) -> None:
    dataset = of(bare(200, copies=PAIRS))
    digests = data_digests(dataset, 0)
    apart = prepare(dataset, 0, digest=digests.apart)
    assert apart.digest == digests.apart and not (apart.directory / "train_copies.npy").exists()
    found = rows_in(apart)
    assert set(found["train"]) & set(found["test"])  # as it was
    assert not any("stay in one split" in note for note in apart.notes)
    together = prepare(dataset, 0, digest=digests.together)
    assert together.digest == digests.together == prepare(dataset, 0).digest
    with pytest.raises(FieldError) as refused:
        prepare(dataset, 0, digest="0" * 64)
    assert refused.value.path == "data"
    digest, given = digests.apart[:12], "0" * 12
    assert digest in str(refused.value) and given in str(refused.value)
    approved(str(refused.value), digest=digest, given=given)


def test_identical_samples_of_the_sources_own_splits_are_counted(approved: Approved) -> None:
    train = bare(200)
    test = bare(50, seed=1)
    test.images[:3] = train.images[4:7]
    validation = bare(50, seed=2)
    validation.images[0] = test.images[20]
    dataset = of(train, test=test, validation=validation)
    prepared = prepare(dataset, 0)
    assert prepared.digest == data_digests(dataset, 0).apart
    of_train, of_validation = prepared.notes
    assert "3 images of test" in of_train and "in train" in of_train
    assert "1 image of test" in of_validation and "in validation" in of_validation
    approved("\n".join(prepared.notes))


def test_rows_of_few_whole_numbers_are_no_copies() -> None:
    """Of three columns of 0 and 1 there are eight rows: a split of them would test nothing."""
    random = np.random.default_rng(0)
    values = random.integers(0, 2, (200, 3)).astype(np.float32)
    dataset = of(RawSplit(values, np.arange(200) % 2))
    prepared = prepare(dataset, 0)
    assert prepared.digest == data_digests(dataset, 0).apart and prepared.notes == ()
    values = random.normal(size=(200, 3)).astype(np.float32)
    values[0] = values[1]
    dataset = of(RawSplit(values, np.arange(200) % 2))
    assert prepare(dataset, 0).digest == data_digests(dataset, 0).together
