"""Arrays from files of anybody's."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from trainables.files.arrays import read_arrays
from trainables.problems import FieldError


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("logits.npy", array.getvalue())
        archive.writestr("labels", "0 1 2")
    with pytest.raises(FieldError, match=r"a\.npz: 'labels' is no array. Give logits\.$"):
        read_arrays(tmp_path / "a.npz", "logits")
    assert read_arrays(tmp_path / "a.npz", "logits", only=("logits",))["logits"].tolist() == [
        0,
        1,
        2,
    ]


def test_a_path_through_a_file_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a thesis")
    with pytest.raises(FieldError) as refused:
        read_arrays(tmp_path / "file" / "a.npz", "logits")
    assert refused.value.problem == "cannot be read as npz (Not a directory)."
