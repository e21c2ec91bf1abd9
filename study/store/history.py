"""A trial's history.json, checked as it is read: people edit files, and disks change them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from study.store.checks import is_number
from trainables.files.regular import NotAFile, read_text
from trainables.problems import FieldError

Row = dict[str, float]  # of one epoch: `epoch`, `time`, and what was measured
MOST_EPOCHS = 10**7
LATEST = 253_370_764_800  # 1 January 9999, in seconds since 1970
NAME = re.compile(r"\w[\w.: -]*(/\w[\w.: -]*)*", re.ASCII)  # of a metric, as MLflow takes it
LONGEST_NAME = 250


class HistoryError(FieldError):
    """A history.json that calstudy did not write: the trial, the file, what is wrong and the
    fix."""

    def __init__(self, trial: str, file: Path, found: str) -> None:
        self.wrong = f"{file.name} {found}"
        super().__init__(trial, f"{file} {found}", "Restore it from a backup.")


def read_history(file: Path, trial: str) -> list[Row]:
    """A trial's rows, one per epoch; none if it left no file. Raises HistoryError."""
    try:
        rows: list[Row] = json.loads(read_text(file))
    except FileNotFoundError:
        return []
    except NotAFile as error:
        raise HistoryError(trial, file, error.found) from None
    except OSError as error:
        raise HistoryError(trial, file, f"cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError, MemoryError):  # an integer of 5,000 digits is a ValueError
        raise HistoryError(trial, file, "is not JSON") from None
    if wrong := _wrong_in(rows):
        raise HistoryError(trial, file, wrong)
    return rows


def _wrong_in(plain: Any) -> str | None:
    if not isinstance(plain, list):
        return "is not a list of epochs"
    wrong = (place for place, row in enumerate(plain, 1) if not _is_row(row))
    first = next(wrong, None)
    return (
        None
        if first is None
        else f"has a row {first} that is not an epoch's, as calstudy writes it"
    )


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(map(is_number, row.values())):
        return False
    epoch = row.get("epoch")
    time = row.get("time")
    if not isinstance(epoch, int) or not 1 <= epoch <= MOST_EPOCHS:
        return False
    # Older ones have no times. False for NaN.
    in_time = time is None or 0 <= row.get("seconds", 0.0) <= time < LATEST
    return in_time and all(len(key) <= LONGEST_NAME and NAME.fullmatch(key) for key in row)
