"""A wheel of the installed calstudy, for machines that must run the same code.

Nobody else's index is asked for it: the name calstudy need not be ours there.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from study.machines.node_facts import PACKAGES
from trainables.files.atomic import replacing
from trainables.problems import UserError

DOOR = "calstudy"
TAG = "py3-none-any"
# The first moment that a ZIP file can name: the same code gives the same wheel.
STAMP = (1980, 1, 1, 0, 0, 0)


def wheel_name() -> str:
    """The file's name. Raises UserError if calstudy is not installed."""
    return f"{DOOR}-{_distribution().version}-{TAG}.whl"


def build_wheel(file: Path) -> str:
    """Write a wheel of the installed files; its SHA-256 in hex. Raises UserError if calstudy is not
    installed."""
    contents = {**_code(), **_metadata()}
    record = f"{_described()}/RECORD"
    rows = [f"{name},sha256={_record_digest(text)},{len(text)}" for name, text in contents.items()]
    contents[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with replacing(file) as partial, ZipFile(partial, "w", ZIP_DEFLATED) as made:
        for name, text in contents.items():
            entry = ZipInfo(name, STAMP)
            entry.external_attr = 0o644 << 16
            entry.compress_type = ZIP_DEFLATED
            made.writestr(entry, text)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _distribution() -> importlib.metadata.Distribution:
    """As it is installed: what a build leaves beside a checkout has no METADATA."""
    for found in importlib.metadata.distributions(name=DOOR):
        if found.read_text("METADATA"):
            return found
    mend = "Install it (`pip install .` in its folder), and run this again."
    raise UserError("calstudy is not installed here, so no wheel can be made", mend)


def _described() -> str:
    """The folder of the wheel's metadata."""
    return f"{DOOR}-{_distribution().version}.dist-info"


def _code() -> dict[str, bytes]:
    """By path in the wheel: every file of our packages, compiled ones aside."""
    found = {f"{DOOR}.py": _origin(DOOR).read_bytes()}
    for package in PACKAGES:
        folder = _origin(package).parent
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                found[f"{package}/{path.relative_to(folder)}"] = path.read_bytes()
    return found


def _origin(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _metadata() -> dict[str, bytes]:
    installed = _distribution()
    described = f"Wheel-Version: 1.0\nGenerator: {DOOR}\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    texts = {
        "METADATA": installed.read_text("METADATA") or "",
        "WHEEL": described,
        "entry_points.txt": installed.read_text("entry_points.txt") or "",
        "top_level.txt": "\n".join([DOOR, *sorted(PACKAGES), ""]),
        "licenses/LICENSE": installed.read_text("licenses/LICENSE") or "",
    }
    return {f"{_described()}/{name}": text.encode() for name, text in texts.items()}


def _record_digest(text: bytes) -> str:
    """As a wheel's RECORD has it (PEP 427)."""
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
