"""Faults as they happen, a JSON line each; and the table made from them."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "results" / "chaos.jsonl"
END = "end"  # the kind of the line that closes a study
PROMISED_SECONDS = 120.0
COLUMNS = (
    "kind",
    "times",
    "trials planned",
    "lost",
    "duplicated",
    "repeated epochs",
    "promised at most",
    "in order",
    "recovered in s",
)


def append(line: dict[str, Any], file: Path) -> None:
    """Write a line to the end of the file, and to the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(file: Path) -> list[dict[str, Any]]:
    """All whole lines."""
    found = []
    for text in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(text))
        except ValueError:  # the harness was killed while it wrote
            continue
    return found


def counts(lines: list[dict[str, Any]], seed: int) -> Counter[tuple[str, str]]:
    """How many faults of each kind a campaign (its seed) has recorded, by ground: studies
    are named GROUND-NUMBER."""
    return Counter(
        (line["study"].rpartition("-")[0], line["kind"]) for line in lines if line["seed"] == seed
    )


def table(lines: list[dict[str, Any]]) -> str:
    """By kind, in Markdown; a study counts for every kind that struck it, and
    once in the last row."""
    ends = {line["study"]: line for line in lines if line["kind"] == END}
    faults = [line for line in lines if line["kind"] != END and line["study"] in ends]
    rows = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for kind in dict.fromkeys(line["kind"] for line in faults):
        rows.append(_row(kind, [line for line in faults if line["kind"] == kind], ends))
    rows.append(_row("all", faults, ends))
    unclean = [
        line
        for line in faults + list(ends.values())
        if not line["audit"]["clean"] or line["problems"]
    ]
    rows += [
        "",
        (
            f"{len(ends)} studies; {len(unclean)} of their lines with a problem or an audit that is"
            " not clean."
        ),
    ]
    return "\n".join(rows)


def _row(kind: str, faults: list[dict[str, Any]], ends: dict[str, dict[str, Any]]) -> str:
    audits = [ends[study]["audit"] for study in {line["study"] for line in faults}]
    planned, lost, duplicated = (
        sum(audit[key] for audit in audits) for key in ("planned", "lost", "duplicated")
    )
    repeated, promised = (sum(line[key] for line in faults) for key in ("repeated", "promised"))
    waits = sorted(line["recovered_seconds"] for line in faults)
    waited = f"{waits[len(waits) // 2]:.0f} ({waits[-1]:.0f})" if waits else "-"
    well = f"{sum(map(in_order, faults))} of {len(faults)}"
    cells = (kind, len(faults), planned, lost, duplicated, repeated, promised, well, waited)
    return f"| {' | '.join(map(str, cells))} |"


def in_order(fault: dict[str, Any]) -> bool:
    """Whether the run ended with the right exit code, or went on by itself, within
    PROMISED_SECONDS of the fault."""
    ended = fault.get("ended")
    seconds = fault["recovered_seconds"] if ended is None else ended["seconds"]
    return bool(not fault["problems"] and seconds <= PROMISED_SECONDS)
