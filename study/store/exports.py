"""Which of a study's models were registered, as far as its folder knows: what `answer` need not
ask MLflow for. Anybody may delete the file, and MLflow's versions."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from trainables.files.atomic import write_whole

FILE = "registered.json"
LARGEST = 2**20  # bytes, of far more exports than a study sees


@dataclass(frozen=True)
class ExportedModel:
    study: str  # the search, or its confirmation
    trial: str
    serves: str
    uri: str  # models:/digits/1
    tracking: str  # without credentials
    selected_for: str = ""  # by hand, for objectives given afterwards


def exported_models(directory: Path) -> list[ExportedModel]:
    """Those noted in a study's folder, the latest last; none of a file that is damaged."""
    file = directory / FILE
    with suppress(OSError, ValueError, TypeError):
        if file.is_file() and file.stat().st_size <= LARGEST:
            return [ExportedModel(**one) for one in json.loads(file.read_text())]
    return []


def note_export(directory: Path, made: ExportedModel) -> None:
    """Note one; a folder that cannot be written to stays as it is."""
    others = [one for one in exported_models(directory) if one != made]
    plain = [asdict(one) for one in (*others, made)]
    with suppress(OSError):
        write_whole(directory / FILE, json.dumps(plain).encode())
