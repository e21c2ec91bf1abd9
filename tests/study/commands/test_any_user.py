"""A container's user: any number, unknown to the system, without HOME and git, on a file
system that is read-only."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import patient
from tests.study.command_line import write_spec

pytestmark = pytest.mark.platform

ROOT = Path(__file__).resolve().parents[3]
UID = 12345
CODE = (sys.base_prefix, sys.prefix, str(ROOT))  # what its Python reads


def why_not() -> str | None:
    """Why no such user can be played here."""
    if os.geteuid() != 0:
        return "only root can become another user"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing"
    if subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True
    ).returncode:
        return "no mount namespace can be made"
    readable = [Path(folder).stat().st_mode & 0o005 == 0o005 for folder in CODE]
    return None if all(readable) else "the code is readable by its owner alone"


def hidden(folder: str) -> str | None:
    """The first folder above that others may not enter, such as /root."""
    parents = reversed(Path(folder).parents)
    return next((str(parent) for parent in parents if not parent.stat().st_mode & 0o001), None)


def as_mounted(place: Path) -> str:
    """Shell commands: all is read-only but `place`/rw, and the code can be reached."""
    lines = ["set -e"]
    blocked = {folder: above for folder in CODE if (above := hidden(folder)) is not None}
    for number, folder in enumerate(blocked):
        stash = place / f"stash{number}"
        lines += [f"mkdir {stash}", f"mount --bind {shlex.quote(folder)} {stash}"]
    lines += [f"mount -t tmpfs -o mode=755 none {above}" for above in sorted({*blocked.values()})]
    for number, folder in enumerate(blocked):
        quoted = shlex.quote(folder)
        lines += [f"mkdir -p {quoted}", f"mount --move {place}/stash{number} {quoted}"]
    lines += [f"mount -o remount,ro {above}" for above in sorted({*blocked.values()})]
    lines += [f"mount --bind {place}/rw {place}/rw", "mount -o remount,ro,bind /", f"cd {place}/rw"]
    return "\n".join(lines)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with `rw`, which is the user's. Near the root: Ray's sockets have short paths."""
    if why := why_not():
        pytest.skip(f"no test of an unknown user: {why}")
    with tempfile.TemporaryDirectory(prefix="any-", dir="/tmp") as made:
        place = Path(made)
        place.chmod(0o755)
        for folder in ("rw/tmp", "rw/bin"):
            (place / folder).mkdir(parents=True)
        # Through which Ray starts its workers.
        (place / "rw" / "bin" / "bash").symlink_to("/bin/bash")
        write_spec(place / "rw" / "small.yaml", methods=["cross_entropy"], trials=2)
        subprocess.run(["chown", "--recursive", f"{UID}:{UID}", place / "rw"], check=True)
        yield place


# One process for all: most of a command's time is its imports.
IN_TURN = """
import os, sys
from study.cli import main

codes = os.fdopen(os.dup(1), "w")
for number, words in enumerate(sys.argv[1:]):
    for of, ending in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{number}.{ending}", os.O_WRONLY | os.O_CREAT, 0o644), of)
    try:
        main(words.split())
    except SystemExit as end:
        print(end.code or 0, file=codes, flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_study_runs_and_is_read_and_shipped(place: Path) -> None:
    commands = [
        "run small.yaml --cpus 1",
        "confirm small --seeds 1 --cpus 1",
        "report small",
        "export small --name small",
        "verify models:/small/1 --json",
        "audit small --json",
        "plan ~no-such-user/small.yaml",
    ]
    become = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    environment = (
        f"env -i PATH={place}/rw/bin TMPDIR={place}/rw/tmp PYTHONPATH={shlex.quote(str(ROOT))}"
    )
    asked = shlex.join([sys.executable, "-P", "-c", IN_TURN, *commands])
    script = f"{as_mounted(place)}\nexec {become} {environment} {asked} </dev/null"
    namespace = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "--propagation",
        "private",
    ]
    done = subprocess.run(
        [*namespace, "bash", "-c", script], capture_output=True, text=True, timeout=patient(400)
    )
    said = "\n".join(file.read_text() for file in sorted((place / "rw").glob("*.err")))
    assert done.stdout.split() == ["0"] * 6 + ["2"], said + done.stderr
    assert "Traceback" not in said and "Matplotlib" not in said
    assert json.loads((place / "rw" / "4.out").read_text())["ok"]
    assert len((place / "rw" / "6.err").read_text().splitlines()) == 1
    own = place / "rw" / "tmp" / f"calstudy-{UID}"
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (UID, 0o700)
    assert {".cache", ".ray"} <= {*os.listdir(own)}
    study = (place / "rw" / "studies" / "small" / "study.yaml").read_text()
    assert "git_commit" not in study
