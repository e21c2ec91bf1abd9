"""This machine with trials that harm themselves, at a moment of their training that is
one of their parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import Fault, Ground, Stage, Strike
from study.store.trials import TrialRecord

EXTENSIONS = Path(__file__).resolve().parents[1] / "extensions"
# A trial of this ground trains for a second or two.
MINUTES = 0.15
STRIKE_SECONDS = 300.0
# What a deed must come to: the trial's state, and what its reason must say.
COMES_TO = {
    "nan": ("failed", "nan"),
    "raises": ("failed", "no such luck"),
    "kills_itself": ("failed", "its worker process has died"),
    "kills_itself_once": ("complete", ""),
    "hangs": ("failed", "stopped after"),
    "leaks": ("failed", "Ray's memory monitor"),
    "prints": ("complete", ""),
}
OTHERS = ("leaks", "prints")  # have a ground of their own


def _fault(deed: str) -> Fault:
    """The fault that trials of one label are: the next of them that has struck."""

    def struck(stage: Stage) -> Strike:
        assert isinstance(stage.ground, Trials)
        note = wait_for(
            lambda: stage.see_to_driver() or stage.ground.next_strike(deed), STRIKE_SECONDS
        )
        if not note:
            raise TimeoutError(f"{STRIKE_SECONDS:g} s without a trial that {deed}")
        name = stage.ground.trial_of(stage, note)
        return Strike(
            int(note.read_text()),
            trial=name,
            recovered=lambda: stage.records()[name].state != "running" or not stage.alive,
            check=lambda: _wrong(stage.records()[name], *COMES_TO[deed]),
        )

    struck.__name__ = f"trial_{deed}"
    return struck


def _wrong(record: TrialRecord, state: str, words: str) -> list[str]:
    if record.state == state and words in (record.reason or ""):
        return []
    return [f"{record.name} is {record.state} ({record.reason}), not {state} ({words})"]


class Trials(Ground):
    """A label for each deed, with as many trials as are to strike; and one that harms nobody."""

    faults: ClassVar = {f"trial_{deed}": _fault(deed) for deed in COMES_TO if deed not in OTHERS}
    strikes_by_itself = True
    most_faults = 60

    @classmethod
    def keys(cls, times: dict[str, int]) -> dict[str, Any]:
        deeds = [
            {"label": kind, "name": "struck", "deed": kind.removeprefix("trial_")} for kind in times
        ]
        return {
            "model": {"name": "mlp", "width": 256},
            "epochs": 30,
            "checkpoint_seconds": 0.3,
            "methods": ["cross_entropy", *deeds],
            "search_space": {"method.moment": {"low": 0.1, "high": 0.9}},
            "trials": max(times.values()),
            "trial_minutes": MINUTES,
            "extensions": str(EXTENSIONS),
        }

    def __enter__(self) -> Ground:
        super().__enter__()
        self.strikes = self.directory / "strikes"
        self.strikes.mkdir()
        self._told: set[Path] = set()
        return self

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "CALSTUDY_CHAOS_STRIKES": str(self.strikes)}

    def next_strike(self, deed: str) -> Path | None:
        """A note of that deed that has not been told of yet."""
        for note in sorted(self.strikes.glob(f"{deed}@*"), key=lambda note: note.stat().st_mtime):
            if note not in self._told and note.read_text():
                self._told.add(note)
                return note
        return None

    def trial_of(self, stage: Stage, note: Path) -> str:
        """The trial whose parameters say what the note does."""
        deed, _, moment = note.name.partition("@")
        for record in stage.records().values():
            if record.label == f"trial_{deed}" and repr(record.params["method.moment"]) == moment:
                return record.name
        raise LookupError(f"no trial of {note.name}")


class Printing(Trials):
    """As `Trials`, without a limit of time: a trial that prints two gigabytes ends well."""

    faults: ClassVar = {"trial_prints": _fault("prints")}

    @classmethod
    def keys(cls, times: dict[str, int]) -> dict[str, Any]:
        return {**super().keys(times), "trial_minutes": None}
