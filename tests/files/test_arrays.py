"""Arrays from files of anybody's, and how much memory they may take."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from trainables.fields import FieldError
from trainables.files.arrays import memory, read_arrays

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine(root: Path, own: str, **files: str) -> Path:
    """Our own cgroups, and files under /sys/fs/cgroup by their paths, with __ for /."""
    for name, text in {
        "proc/self/cgroup": own,
        **{f"sys/fs/cgroup/{name}": files[name] for name in files},
    }.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/job_7/step\n", {}, PHYSICAL),
        ("0::/job_7/step\n", {"job_7__step__memory.max": "4096000\n"}, 4096000),
        (
            "0::/job_7/step\n",
            {"job_7__memory.max": "4096000\n", "job_7__step__memory.max": "max\n"},
            4096000,
        ),
        ("0::/\n", {"memory.max": "4096000\n"}, 4096000),
        ("0::/\n", {"memory.max": f"{PHYSICAL * 2}\n"}, PHYSICAL),
        (
            "4:memory:/slurm/job_7\n0::/\n",
            {"memory__slurm__job_7__memory.limit_in_bytes": "4096000\n"},
            4096000,
        ),
        ("4:memory:/slurm/job_7\n0::/\n", {"memory__memory.limit_in_bytes": "4096000\n"}, 4096000),
        (
            "4:memory:/\n0::/\n",
            {"memory__memory.limit_in_bytes": "9223372036854771712\n"},
            PHYSICAL,
        ),
    ],
)
def test_memory_is_what_the_cgroups_allow(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    assert memory(machine(tmp_path, own, **files)) == expected


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("logits.npy", array.getvalue())
        archive.writestr("labels", "0 1 2")
    with pytest.raises(FieldError, match=r"a\.npz: 'labels' is no array; give logits\.$"):
        read_arrays(tmp_path / "a.npz", "logits")
    assert read_arrays(tmp_path / "a.npz", "logits", only=("logits",))["logits"].tolist() == [
        0,
        1,
        2,
    ]
