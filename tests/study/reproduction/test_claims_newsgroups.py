"""The study of claims on 20 Newsgroups: the lines in its head make the table that it reads."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import datasets

import study
from study.schema.reading import read_spec
from trainables.data.table import Table

FILE = Path(study.__file__).parent / "specs" / "papers" / "claims_newsgroups.yaml"
TEXTS = {"train": 400, "test": 100}


def lines_of_the_head() -> str:
    """The Python in the comment: its indented lines from the first import on."""
    lines = [
        line.removeprefix("#   ") for line in FILE.read_text().splitlines() if line[:4] == "#   "
    ]
    return "\n".join(lines[lines.index("import numpy as np") :])


def made_up(subset: str, remove: tuple[str, ...]) -> SimpleNamespace:
    """Texts of 20 classes; the words of the test texts are in no training text."""
    assert remove == ("headers",)
    labels = np.arange(TEXTS[subset]) % 20
    data = [
        " ".join(f"{subset}{(label * 31 + row + word) % 600}" for word in range(20))
        for row, label in enumerate(labels)
    ]
    return SimpleNamespace(data=data, target=labels)


def test_the_lines_in_its_head_make_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = read_spec(FILE)
    monkeypatch.setattr(datasets, "fetch_20newsgroups", made_up)
    monkeypatch.chdir(tmp_path)
    exec(lines_of_the_head(), {})
    assert isinstance(spec.data, Table)
    made = tmp_path / Path(spec.data.path).name
    raw = Table(path=str(made)).read()
    assert raw.validation is not None and raw.test is not None
    assert raw.train.images.shape == (360, 200) and raw.validation.images.shape == (40, 200)
    assert np.bincount(raw.validation.labels).tolist() == 20 * [2], "two of each class"
    assert np.bincount(raw.test.labels).tolist() == 20 * [5]
    assert raw.train.images.any()
    assert not raw.test.images.any(), "words and directions come from train alone"
