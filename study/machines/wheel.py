"""A wheel of the installed calstudy, for machines that must run the same code.

Nobody else's index is asked for it: the name calstudy need not be ours there.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from study.machines.node_facts import PACKAGES
from trainables.problems import UserError

DOOR = "calstudy"
TAG = "py3-none-any"
# The first moment that a ZIP file can name: the same code gives the same wheel.
STAMP = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    content: bytes

    @property
    def version(self) -> str:
        return self.name.split("-")[1]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def installed_wheel() -> Wheel:
    """The wheel of the installed files. Raises UserError if calstudy is not installed."""
    distribution = _distribution()
    described = f"{DOOR}-{distribution.version}.dist-info"
    contents = _code()
    contents |= {f"{described}/{name}": text for name, text in _metadata(distribution).items()}
    record = f"{described}/RECORD"
    rows = [f"{name},sha256={_record_digest(text)},{len(text)}" for name, text in contents.items()]
    contents[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as file:
        for name, text in contents.items():
            entry = ZipInfo(name, STAMP)
            entry.external_attr = 0o644 << 16
            entry.compress_type = ZIP_DEFLATED
            file.writestr(entry, text)
    return Wheel(f"{DOOR}-{distribution.version}-{TAG}.whl", made.getvalue())


def _distribution() -> importlib.metadata.Distribution:
    """As it is installed: what a build leaves beside a checkout has no METADATA."""
    for found in importlib.metadata.distributions(name=DOOR):
        if found.read_text("METADATA"):
            return found
    mend = "Install it (`pip install .` in its folder), and run this again."
    raise UserError("calstudy is not installed here, so no wheel can be made", mend)


def _code() -> dict[str, bytes]:
    """By path in the wheel: every file of our packages, compiled ones aside."""
    found = {}
    for package in (DOOR, *PACKAGES):
        folder = _origin(package).parent
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                found[f"{package}/{path.relative_to(folder)}"] = path.read_bytes()
    return found


def _origin(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _metadata(distribution: importlib.metadata.Distribution) -> dict[str, bytes]:
    """What describes it, by file."""
    kind = f"Wheel-Version: 1.0\nGenerator: {DOOR}\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    found = {"WHEEL": kind, "top_level.txt": "\n".join([DOOR, *sorted(PACKAGES), ""])}
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        found[name] = distribution.read_text(name) or ""
    return {name: text.encode() for name, text in found.items()}


def _record_digest(text: bytes) -> str:
    """As a wheel's RECORD has it (PEP 427)."""
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
