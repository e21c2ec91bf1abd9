"""`group:` of parquet, table and image_folder: what a group is, and what is refused in one line."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.tables import table
from trainables.config import build
from trainables.data.image_folder import ImageFolder
from trainables.data.parquet import Parquet
from trainables.dataset import Dataset, RawData
from trainables.problems import FieldError

FORMATS = ("parquet", "csv", "npz")
PATIENTS = [f"p{row // 4}" for row in range(40)]


def measured(**changes: Any) -> pd.DataFrame:
    """Forty rows of ten patients, four each, of two classes. None drops a column."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "age": random.normal(50.0, 10.0, 40),
        "y": [row // 4 % 2 for row in range(40)],
        "patient": PATIENTS,
        **changes,
    }
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def save(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        arrays = {"features": frame[["age"]].to_numpy(), "y": frame["y"].to_numpy()}
        for name in ("patient", "groups"):
            if name in frame:
                values = frame[name].to_numpy()
                arrays[name] = values.astype(str) if values.dtype == object else values
        np.savez(path, **arrays)
    return path


def refusal(make: Any) -> str:
    with pytest.raises(FieldError) as refused:
        make()
    said = str(refused.value)
    assert "\n" not in said and said.startswith("group: ")
    return said.removeprefix("group: ")


def of_rows(raw: RawData) -> dict[int, str]:
    """Which patient each number is, by the order of rows."""
    assert raw.train.groups is not None and raw.train.groups.dtype == np.int64
    pairs = set(zip(raw.train.groups.tolist(), PATIENTS, strict=True))
    assert len(pairs) == 10
    return dict(pairs)


# ---- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
def test_whole_numbers_are_themselves_also_as_text(tmp_path: Path, ending: str) -> None:
    numbers = [row // 4 - 3 for row in range(40)]
    for name, values in (("numbers", numbers), ("text", list(map(str, numbers)))):
        path = save(measured(patient=values), tmp_path / f"{name}.{ending}")
        raw = table(path, group="patient").read()
        assert raw.train.groups is not None and raw.train.groups.tolist() == numbers
        assert raw.group_names == {} and raw.train.images.shape == (40, 1)


def test_one_patient_has_one_number_in_all_files(tmp_path: Path) -> None:
    mixed = ["007", "7", "x", str(2**63 - 1), str(2**63), "-0", "0", *PATIENTS[7:]]
    found = {}
    for place, values in enumerate((mixed, mixed[::-1])):
        path = save(measured(patient=values), tmp_path / f"{place}.csv")
        groups = table(path, group="patient").read().train.groups
        assert groups is not None
        for value, number in zip(values, groups.tolist(), strict=True):
            assert found.setdefault(value, number) == number
    assert len(set(found.values())) == len(found)
    assert (found["7"], found["0"], found[str(2**63 - 1)]) == (7, 0, 2**63 - 1)


def test_an_npz_has_groups(tmp_path: Path) -> None:
    frame = measured(patient=None, groups=np.arange(40) // 2)
    data = table(save(frame, tmp_path / "a.npz"), group="groups")
    groups = data.read().train.groups
    assert groups is not None and np.array_equal(groups, np.arange(40) // 2)
    assert data.unit == "groups"


def test_words_of_categories_and_large_text(tmp_path: Path) -> None:
    frame = measured()
    for name, kind in (("a", pa.large_string()), ("b", pa.dictionary(pa.int8(), pa.string()))):
        column = pa.array(PATIENTS, pa.string()).cast(kind)
        columns = {"age": frame["age"], "y": frame["y"], "patient": column}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        raw = table(tmp_path / f"{name}.parquet", group="patient").read()
        assert raw.group_names == of_rows(raw)


def test_rows_by_where_keep_their_groups(tmp_path: Path) -> None:
    frame = measured(site=["a"] * 20 + ["b"] * 20)
    samples = table(save(frame, tmp_path / "a.parquet"), group="patient").samples({"site": "b"})
    assert samples.groups is not None
    names = [samples.group_names[number] for number in samples.groups.tolist()]
    assert names == PATIENTS[20:]


@pytest.mark.parametrize(
    ("ending", "changes", "options", "said"),
    [
        ("csv", {}, {"group": "patiant"}, "a.csv has no column 'patiant'. Did you mean 'patient'?"),
        ("npz", {}, {"group": "patiant"}, "a.npz has no array 'patiant'. Did you mean 'patient'?"),
        ("csv", {}, {"group": "y"}, "'y' is the label. Name another column."),
        ("npz", {}, {"group": "features"}, "'features' is a feature. Name another column."),
        ("csv", {}, {"group": "split"}, "'split' is the split. Name another column."),
        (
            "csv",
            {},
            {"group": "patient", "features": ["age", "patient"]},
            "'patient' is a feature. Name another column.",
        ),
        (
            "parquet",
            {"patient": "p1"},
            {"group": "patient"},
            "all samples of a.parquet are of one group, 'p1'. Give several, or leave `group` out.",
        ),
        (
            "parquet",
            {"patient": np.arange(40) / 2},
            {"group": "patient"},
            "a.parquet: column 'patient' has type double, not whole numbers or text. Write whole"
            " numbers or text. A gap turns whole numbers into floats: fill it.",
        ),
        (
            "npz",
            {"patient": np.arange(40) / 2},
            {"group": "patient"},
            "a.npz: column 'patient' has type double, not whole numbers or text. Write whole"
            " numbers or text. A gap turns whole numbers into floats: fill it.",
        ),
        (
            "parquet",
            {"patient": [[1]] * 40},
            {"group": "patient"},
            "a.parquet: column 'patient' has type list<element: int64>, not whole numbers or text."
            " Write whole numbers or text.",
        ),
        (
            "parquet",
            {"patient": [*PATIENTS[:-1], "p1 "]},
            {"group": "patient"},
            "a.parquet: 'p1 ' and 'p1' differ by spaces alone. Make them one.",
        ),
    ],
)
def test_bad_columns_are_refused(
    tmp_path: Path, ending: str, changes: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    path = save(measured(**changes), tmp_path / f"a.{ending}")
    found = refusal(lambda: table(path, **options).read())
    assert found.replace(f"{tmp_path}/", "") == said


def test_a_data_set_without_groups_refuses_the_option() -> None:
    with pytest.raises(FieldError, match=r"group: .*no 'group'"):
        build(Dataset, {"name": "digits", "group": "writer"})


# ---- images --------------------------------------------------------------------------------------


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (4, 4), value).save(buffer, "png")
    return buffer.getvalue()


def test_the_column_of_images_is_no_group() -> None:
    found = refusal(lambda: Parquet(path="a.parquet", group="image"))
    assert found.startswith("'image' is the image")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """photos/{cat,dog}/{0..5}.png, and a csv: images 0 to 2 of a class are of one patient."""
    rows = []
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place in range(6):
            file = tmp_path / "photos" / name / f"{place}.png"
            file.write_bytes(png(10 * number + place))
            rows.append((f"{name}/{place}.png", f"{name}{place // 2}"))
    frame = pd.DataFrame(rows, columns=["file", "group"])
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "photos"


def folder(photos: Path, **options: Any) -> ImageFolder:
    return ImageFolder(path=str(photos), group=str(photos.parent / "patients.csv"), **options)


def test_of_a_folder_of_splits_too(photos: Path) -> None:
    for name in ("train", "test"):
        (photos / name).mkdir()
    for name in ("cat", "dog"):
        (photos / "test" / name).mkdir()
        (photos / name).rename(photos / "train" / name)
        (photos / "train" / name / "5.png").rename(photos / "test" / name / "5.png")
    frame = pd.read_csv(photos.parent / "patients.csv")
    part = np.where(frame["file"].str.contains("5"), "./test/", "train/")
    frame.assign(file=part + frame["file"]).to_csv(photos.parent / "patients.csv", index=False)
    raw = folder(photos).read()
    assert raw.test is not None and raw.test.groups is not None and raw.train.groups is not None
    assert [raw.group_names[number] for number in raw.test.groups.tolist()] == ["cat2", "dog2"]
    assert set(raw.test.groups) <= set(raw.train.groups)
    # Files of splits that are not used may be in the csv.
    only = folder(photos, splits={"train": "train"}).read()
    assert only.test is None and len(only.train.labels) == 10


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda frame: pd.concat([frame, frame.loc[frame.file == "cat/3.png"]]),
            "CSV names 1 file more than once, e.g. cat/3.png. Keep one row of each.",
        ),
        (
            lambda frame: frame[frame.file.str.startswith("dog")].sort_values("file"),
            "CSV lacks 6 of 12 files, e.g. cat/0.png. Give each file a row with its path below"
            " PHOTOS.",
        ),
        (
            lambda frame: pd.concat([frame, pd.DataFrame({"file": ["x.png"], "group": ["a"]})]),
            "CSV names 1 file not in PHOTOS, e.g. x.png. Remove the rows of files that are not"
            " there, or correct them.",
        ),
        (
            lambda frame: frame.sort_values("file").replace({"cat/0.png": "0.png"}),
            "CSV lacks 1 of 12 files, e.g. cat/0.png and names 1 file not in PHOTOS, e.g. 0.png."
            " Give each file a row with its path below PHOTOS. Remove the rows of files that are"
            " not there, or correct them.",
        ),
        (
            lambda frame: frame.rename(columns={"group": "patient"}),
            "CSV has no column 'group'. Valid values: file, patient.",
        ),
        (
            lambda frame: frame.replace({"cat1": "1.0"}).sort_values("file"),
            "CSV, row 2: the group is 1.0, neither a whole number nor text. Write whole numbers or"
            " text. A gap turns whole numbers into floats: fill it.",
        ),
        (
            lambda frame: frame.assign(group="p1"),
            "all samples of CSV are of one group, 'p1'. Give several, or leave `group` out.",
        ),
    ],
)
def test_a_bad_csv_is_refused(photos: Path, change: Any, said: str) -> None:
    csv = photos.parent / "patients.csv"
    change(pd.read_csv(csv)).to_csv(csv, index=False)
    found = refusal(lambda: folder(photos).read())
    assert found.replace(str(csv), "CSV").replace(str(photos), "PHOTOS") == said


def test_a_csv_that_is_none_is_refused(photos: Path) -> None:
    csv = photos.parent / "patients.csv"
    csv.write_bytes(b"file,group\ncat/0.png,caf\xe9\n")
    assert refusal(lambda: folder(photos).read()).endswith("line 2 is not UTF-8. Save it as UTF-8.")
    csv.rename(csv.with_name("patient.csv"))
    found = refusal(lambda: folder(photos).source_digest())
    assert found == f"there is no {csv}. Did you mean 'patient.csv'?"
