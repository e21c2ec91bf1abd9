"""What `plan` says of samples that belong together, and which digest a study's data have."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

from study.machines.cluster_files import refuse_relative_paths
from study.registry.verification import NotVerified
from study.registry.verify import validation_of
from study.schema.errors import SpecError
from study.schema.reading import read_spec
from study.store.study import record_facts
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import made_study
from trainables.data.table import Table
from trainables.loading.cache import data_digests, load_split, prepare

METRICS = {"accuracy": 0.9, "ece": 0.1, "ts_ece": 0.1, "nll": 0.3}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """photos/train and photos/test, of two classes, four images a patient; p0 is in both."""
    random = np.random.default_rng(0)
    rows = []
    for place in range(112):
        patient = place // 4
        split = "train" if patient < 26 else "test"
        file = f"{split}/{'ab'[patient % 2]}/{place}.png"
        (tmp_path / "photos" / file).parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / file)
        rows.append((file, "p0" if place == 104 else f"p{patient}"))
    csv = pd.DataFrame(rows, columns=["file", "group"])
    csv.to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path


def spec_of(folder: Path, **keys: Any) -> Path:
    data = {"name": "image_folder", "path": "photos", "group": "patients.csv"}
    return write_spec(folder / "small.yaml", **{"data": data, "batch_size": 16, **keys})


def test_a_folder_and_a_csv_beside_the_study(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any working directory: the csv is found as the folder is."""
    elsewhere = photos / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    spec = spec_of(photos, methods=["meta_l2"])
    found = here_json("plan", spec, "--storage", photos)
    assert found["data"]["sizes"] == {"train": 84, "validation": 20, "test": 8}
    assert found["spec"]["data"]["group"] == str(photos / "patients.csv")
    prefix = "validation has 20 samples, 21 were asked for: groups are kept whole"
    assert found["warnings"][0] == f"{prefix}, the largest has 4"
    assert found["warnings"][1].startswith("1 group of test is also in ")
    assert found["warnings"][1].endswith(", e.g. p0: numbers on test are optimistic")
    assert not any(one.startswith("meta has") for one in found["warnings"])  # 8 of 84
    shown = " ".join(here("plan", spec, "--storage", photos).split())
    assert all(f"warning: {warning}" in shown for warning in found["warnings"][:2])


def test_a_csv_that_is_gone_is_one_line(photos: Path) -> None:
    (photos / "patients.csv").rename(photos / "patient.csv")
    shown = here("plan", spec_of(photos), "--storage", photos, check=2)
    gone = photos / "patients.csv"
    assert shown == f"small.yaml: data.group: there is no {gone}. Did you mean 'patient.csv'?\n"


def test_a_relative_csv_is_not_sent_to_a_cluster(photos: Path) -> None:
    data = {"name": "image_folder", "path": "/photos", "group": "patients.csv"}
    with pytest.raises(SpecError, match=r"data\.group: 'patients\.csv' is a relative path"):
        refuse_relative_paths(spec_of(photos, data=data))


def test_the_csv_may_move(photos: Path) -> None:
    """As the folder may: its digest identifies it."""
    before = read_spec(spec_of(photos)).meaning()
    (photos / "patients.csv").rename(photos / "all.csv")
    data = {"name": "image_folder", "path": "photos", "group": "all.csv"}
    assert read_spec(spec_of(photos, data=data)).meaning() == before


# ---- identical samples ---------------------------------------------------------------------------


def rows_with_copies(folder: Path) -> Table:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(60, 20))).add_prefix("x")
    frame = pd.concat([frame, frame.head(30)]).assign(label=np.arange(90) % 2)
    frame.to_csv(folder / "rows.csv", index=False)
    return Table(path=str(folder / "rows.csv"))


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_study_goes_on_with_the_split_that_it_began_with(tmp_path: Path, is_kept: bool) -> None:
    """It has trials on splits that share identical rows; a new one has none."""
    data = rows_with_copies(tmp_path)
    digests = data_digests(data, 0)
    study = made_study(tmp_path, "small", {"cross_entropy": [(METRICS, [])]}, planned=2)
    plain = {**study.plain, "data": {"name": "table", "path": data.path}}
    file = tmp_path / "small" / "study.yaml"
    stored = yaml.safe_load(file.read_text())
    stored["recorded"]["meaning"]["data"] = {"name": "table", "label": "label"}
    file.write_text(yaml.safe_dump({**stored, "data": plain["data"]}, sort_keys=False))
    record_facts(study.directory, data_digest=digests.apart)
    if is_kept:
        prepare(data, 0, digest=digests.apart)
    spec = tmp_path / "small.yaml"
    spec.write_text(yaml.safe_dump(plain, sort_keys=False))
    copies = "30 of 90 rows of train are copies of others, and stay in one split with them"
    for _ in range(2):
        found = here_json("plan", spec, "--storage", tmp_path)
        assert found["trials"]["complete"] == 1 and copies not in found["warnings"]
    new = write_spec(tmp_path / "new.yaml", name="new", data=plain["data"], batch_size=8)
    assert copies in here_json("plan", new, "--storage", tmp_path)["warnings"]
    assert prepare(data, 0).digest == digests.together
    assert (tmp_path / "cache" / digests.apart).is_dir()
    # Changed data are refused as before.
    rows = Path(data.path).read_text()
    Path(data.path).write_text(rows + rows.splitlines()[-1] + "\n")
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert "the source has changed since 'small' was started" in shown


def test_a_batch_is_of_what_whole_groups_leave(photos: Path) -> None:
    """Of 84 images 8 are held out for meta_l2: a batch of 76 is left."""
    assert here("plan", spec_of(photos, methods=["meta_l2"], batch_size=76), "--storage", photos)
    spec = spec_of(photos, methods=["meta_l2"], batch_size=77)
    shown = here("plan", spec, "--storage", photos, check=2)
    assert "batch_size: 77 is more than the 76 samples that meta_l2 trains on" in shown


def test_a_registered_model_is_verified_on_the_splits_it_had(tmp_path: Path) -> None:
    """Also where the cache is gone: validation is made again by the rule of its digest."""
    data = rows_with_copies(tmp_path)
    for digest in data_digests(data, 0):
        before = load_split(prepare(data, 0, tmp_path / "other", digest), "validation").images
        prepared, validation = validation_of(data, 0, digest)
        assert prepared.digest == digest and torch.equal(validation.images, before)
    with pytest.raises(NotVerified, match="the data has changed since the trial was trained"):
        validation_of(data, 0, "0" * 64)
