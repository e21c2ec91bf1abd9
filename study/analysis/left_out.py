"""Trials whose stored predictions are lost: what is computed from predictions leaves them out, and
says so. Their recorded values stay in every table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from study.store.files import PREDICTIONS, lost_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord

MOST_NAMED = 5  # trials that one line names


@dataclass(frozen=True)
class LeftOut:
    """reasons: what is wrong with a trial's predictions.npz, by name. on_front: those of them that
    are on the front by their recorded values."""

    study: StudyFolder
    reasons: dict[str, str] = field(default_factory=dict)
    on_front: tuple[str, ...] = ()

    def kept(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The trials that are not left out."""
        return [record for record in records if record.name not in self.reasons]

    @property
    def lines(self) -> list[str]:
        """Which trials intervals and shares leave out, why, the mend, and what that means; empty
        where none is left out."""
        if not self.reasons:
            return []
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            by_reason.setdefault(reason, []).append(name)
        said = [
            f"{some(names)} {are(names)} left out of intervals and shares: {PREDICTIONS} {reason}."
            for reason, names in by_reason.items()
        ]
        return [*said, f"{mend_of(self.study, list(self.reasons))} {self._meaning}"]

    @property
    def _meaning(self) -> str:
        if not self.on_front:
            return (
                "By recorded values the front is what it would be with them, but the shares are"
                " those of resamples without them."
            )
        return (
            f"By recorded values {some(self.on_front)} {are(self.on_front)} on the front: the"
            " shares of all others are too large, since they are those of resamples without."
        )

    def to_plain(self) -> dict[str, object]:
        return {
            name: {"reason": f"{PREDICTIONS} {reason}", "on_front": name in self.on_front}
            for name, reason in self.reasons.items()
        }


def left_out_of(
    study: StudyFolder, records: Sequence[TrialRecord], front: Collection[TrialRecord]
) -> LeftOut:
    """The complete trials that have no predictions to read. front: of the study."""
    reasons = lost_predictions(study, records)
    return LeftOut(study, reasons, tuple(one.name for one in front if one.name in reasons))


def mend_of(study: StudyFolder, names: Sequence[str]) -> str:
    """What to do about trials whose predictions are lost."""
    restore = f"Restore {'it' if len(names) == 1 else 'them'} from a backup"
    if study.is_confirmation:
        return f"{restore}."
    retrains = study.command("confirm", trial=names[:MOST_NAMED])
    return f"{restore}, or retrain with fresh seeds: `{retrains}`."


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
