"""Facts a machine reports about itself, in plain values.

These functions and those of the modules in nodes.SENT are sent to the nodes of a cluster as source,
whatever code is installed there, so they use only the standard library and each other (only
`prepared` imports calstudy: it is asked once the code is known to match).
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from study.schema.versions import LIBRARIES
from trainables.files.home import default_cache, token_file
from trainables.machine import free_memory, mps_is_running, versions

if TYPE_CHECKING:  # a node that is asked may have no such module
    from trainables.plain import Plain

PACKAGES = ("study", "trainables", "search_spaces")
TRAINS = ("trainables",)  # what runs where a trial trains
# NVIDIA, AMD, either of them under Windows.
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class Facts(TypedDict, total=False):
    """What a machine answers; the keys are fields of `nodes.NodeFacts`."""

    problem: str
    hostname: str
    python: str
    versions: dict[str, str]
    code: str
    code_at: str
    extensions: str | None
    storage: str | None
    written: bool
    lock: str | None
    data: str | None
    data_problem: str
    damaged: list[str]
    unfit: tuple[str, str] | None
    gpus: int | str
    gpu_problems: list[str]
    simulated: bool
    changed: list[str]
    mps: bool
    disks: dict[str, tuple[str, int]]
    memory: int | None
    clock: float
    authentication: bool
    open_token: str | None


# A function of this file and its arguments.
Question = tuple[Callable[..., Facts], tuple[Any, ...]]


def answers(questions: Sequence[Question]) -> Facts:
    found: Facts = {}
    for question, given in questions:
        found |= question(*given)
    return found


def identity() -> Facts:
    """Host name, Python and library versions."""
    return {
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        "versions": versions(LIBRARIES),
    }


def code_files(folder: Path) -> list[Path]:
    """The code and YAML files of a package or extensions folder, sorted."""
    return sorted(
        path for path in folder.rglob("*") if path.suffix in (".py", ".yaml") and path.is_file()
    )


def unfit(token: tuple[str, str], digest: str, wanted: dict[str, str]) -> Facts:
    """Why what trains here would not be the study's, and the mend; None if it would be.

    token: a file that the driver wrote beside the study, and its text. digest: `code` of what
    trains. wanted: versions of libraries; their local part (`+cu128`) does not count.
    """
    path, text = token
    try:
        with open(path) as file:
            found = None if file.read() == text else "another folder is mounted there"
    except OSError as error:
        found = error.strerror or str(error)
    if found is not None:
        return {"unfit": (f"does not see {path} ({found})", "Mount the storage there.")}
    own = code(packages=TRAINS)
    if own["code"] != digest:
        found = f"has other code in {own['code_at']} than the study was started with"
        return {"unfit": (found, "Install the same version there.")}
    if other := other_versions(versions(tuple(wanted)), wanted):
        return {"unfit": (f"has {other}", "Install the same version there.")}
    return {"unfit": None}


def other_versions(found: dict[str, str], wanted: dict[str, str]) -> str:
    """The libraries that are not as wanted, with both versions; empty if all are."""
    return ", ".join(
        f"{name} {found[name]} (the study's is {version})"
        for name, version in wanted.items()
        if found[name].partition("+")[0] != version.partition("+")[0]
    )


def changed(folder: str, digests: dict[str, str]) -> Facts:
    """The files of the extensions folder that are not as the driver has them. calstudy's code must
    be here."""
    from trainables.plugins import changed_files

    return {"changed": [f"{folder}/{file}" for file in changed_files(folder, digests)]}


def code(extensions: str | None = None, packages: Sequence[str] = PACKAGES) -> Facts:
    """sha256 of packages of ours as this process would import them, and their location; sha256 of
    the extensions folder, None if missing."""
    digest = hashlib.sha256()
    places = []
    for name in packages:
        found = importlib.util.find_spec(name)
        if found is None:
            places.append("nowhere")
            continue
        folder = Path(next(iter(found.submodule_search_locations or ())))
        places.append(str(folder.parent))
        digest.update(f"{name} {_folder_digest(folder)}".encode())
    own = None
    if extensions is not None and Path(extensions).is_dir():
        own = _folder_digest(Path(extensions))
    there = ", ".join(dict.fromkeys(places))
    return {"code": digest.hexdigest(), "code_at": there, "extensions": own}


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in code_files(folder):
        digest.update(f"{path.relative_to(folder)} {_file_digest(path)}\n".encode())
    return digest.hexdigest()


def storage(folder: str, token: str, own: str) -> Facts:
    """Why this machine does not see what the driver wrote to `folder` (None if it does), and the
    driver's lock there.

    Writes the token to a file `own` for the driver to read. lock: held, ignored, or why it cannot
    be tested.
    """
    path = Path(folder)
    try:
        if (path / "token").read_text() != token:
            return {"storage": "a different folder is mounted there", "lock": None}
        with (path / own).open("w") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        return {"storage": None, "lock": _lock_state(path / "lock")}
    except OSError as error:
        return {"storage": error.strerror or str(error), "lock": None}


def _lock_state(path: Path) -> str:
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "held"
        except OSError as error:
            return error.strerror or str(error)
    return "ignored"


# Prints for each GPU null, or why torch cannot use it: NVIDIA's driver alone says how many.
TRY_GPUS = """
import json
import sys
import torch

def problem(number):
    try:
        torch.cuda.set_device(number)
        if sys.argv[1] == "bfloat16" and not torch.cuda.is_bf16_supported(False):
            return "it has no bfloat16"
        ones = torch.ones(64, 64, device="cuda", dtype=getattr(torch, sys.argv[1]))
        (ones @ ones).sum().item()
    except torch.OutOfMemoryError:  # others use it
        return None
    except Exception as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]

print(json.dumps([problem(number) for number in range(torch.cuda.device_count())]))
"""


def gpus(precision: str = "float32") -> Facts:
    """How many GPUs torch sees here, or why it fails, and of each that it cannot use in this
    precision the reason. Runs in a subprocess, so that this one does not load CUDA.

    Ray hides GPUs from a task that requests none, so the raylet's environment is used. Without a
    GPU device file or NVIDIA's library torch is not asked.
    """
    simulated = bool(os.environ.get("CALSTUDY_DEVICE"))
    if not any(Path(device).exists() for device in GPU_DEVICES) and not _has_nvml():
        return {"gpus": 0, "simulated": simulated}
    # -P: a file in the working directory must not come before a library.
    command = [sys.executable, "-P", "-c", TRY_GPUS, precision]
    environment = dict(os.environ)
    if "RAY_RAYLET_PID" in os.environ:
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment |= _raylet_devices()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=45, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"gpus": f"torch does not start ({type(error).__name__})"}
    if done.returncode != 0:
        return {"gpus": (done.stderr.strip().splitlines() or ["torch does not start"])[-1]}
    problems: list[str | None] = json.loads(done.stdout.splitlines()[-1])
    bad = [f"GPU {number}: {problem}" for number, problem in enumerate(problems) if problem]
    return {"gpus": len(problems), "gpu_problems": bad, "mps": mps_is_running()}


def _has_nvml() -> bool:
    """Whether NVIDIA's management library is here, by which Ray counts GPUs."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _raylet_devices() -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES in the raylet's environment on this node; empty if unset or
    unreadable."""
    try:
        file = Path(f"/proc/{os.environ['RAY_RAYLET_PID']}/environ")
        written = file.read_bytes().decode(errors="replace")
    except (KeyError, OSError):
        return {}
    pairs = (pair.partition("=") for pair in written.split("\0"))
    return {key: value for key, _, value in pairs if key == "CUDA_VISIBLE_DEVICES"}


def room(storage_root: str) -> Facts:
    """Free bytes on the disks a trial writes to, {what: (path, free)}, and of memory (None if
    unknown)."""
    disks = {}
    places = {
        "storage": Path(storage_root),
        "cache": default_cache(),
        "temp": Path(tempfile.gettempdir()),
    }
    for what, place in places.items():
        path = place.absolute()
        there = next((parent for parent in (path, *path.parents) if parent.exists()), Path("/"))
        disks[what] = (str(path), shutil.disk_usage(there).free)
    return {"disks": disks, "memory": free_memory()}


def token() -> Facts:
    """Whether Ray's token authentication is on, and the token file if other users can read it."""
    path = token_file()
    return {
        "authentication": os.environ.get("RAY_AUTH_MODE", "").lower() == "token",
        "open_token": str(path) if _others_can_read(path) else None,
    }


def _others_can_read(path: Path) -> bool:
    """Group or others may read it, and no parent folder prevents that."""
    try:
        reachable = all(parent.stat().st_mode & 0o011 for parent in path.absolute().parents)
        return bool(path.stat().st_mode & 0o044) and reachable
    except OSError:
        return False


def clock() -> Facts:
    """Seconds since 1970 by this machine's clock."""
    return {"clock": time.time()}


def prepared(trial: dict[str, Plain], digest: str | None, thorough: bool) -> Facts:
    """The digest of a trial's data, prepared here if needed; the problem if it failed; and damaged
    cache files.

    trial: TrialConfig's plain values. digest: the expected one; if it is in the cache, torch is not
    loaded. thorough: check the sha256 of the cached train and validation arrays (of the sealed test
    split only the size is checked).
    """
    found: Facts = {"data": digest}
    if digest is None or not _whole(default_cache() / digest):
        found = _prepare(trial, digest)
    if thorough and found["data"] is not None:
        found["damaged"] = [str(path) for path in _damaged(default_cache() / found["data"])]
    return found


def _prepare(trial: dict[str, Plain], digest: str | None) -> Facts:
    from trainables.config import TrialConfig
    from trainables.loading.cache import prepare
    from trainables.problems import FieldError

    try:
        config = TrialConfig.from_mapping(trial)
        return {"data": prepare(config.data, config.seed, digest=digest).digest}
    except FieldError as error:
        if not error.path.startswith(("data", "extensions")):
            error = error.under("data")
        return {"data": None, "data_problem": str(error)}
    except OSError as error:
        return {"data": None, "data_problem": f"data: {error}"}


def _whole(directory: Path) -> bool:
    """Whether a cache entry exists, and its files have their recorded sizes and sampled digests."""
    from trainables.files.digest import damaged_files

    try:
        return not damaged_files(directory)
    except (OSError, ValueError, KeyError):
        return False


def _damaged(directory: Path) -> list[Path]:
    expected = json.loads((directory / "meta.json").read_text())["sha256"]
    readable = [directory / name for name in expected if not name.startswith("test")]
    return [path for path in readable if _file_digest(path) != expected[path.name]]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
