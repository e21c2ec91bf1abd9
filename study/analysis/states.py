"""The state of each trial now, and the one way to count them, for all that show it.

Read on any machine that sees the storage. Whether a driver runs is told by its lock, and whether a
trial trains by its log, which was written since that driver began. Where a file system shares no
locks between machines (`calstudy doctor` says so), a study that runs elsewhere looks stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from study.analysis.ranking import Ranking
from study.store.driver_lock import driver_is_alive
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials

# What people read for each state. Excluded: complete, but it does not count. To do: planned and
# not begun, or waiting for its turn while a driver runs.
WORDS = {
    "complete": "complete",
    "excluded": "excluded",
    "pruned": "stopped early",
    "failed": "failed",
    "running": "running",
    "interrupted": "interrupted",
    "to_do": "to do",
}
DONE = ("complete", "excluded", "pruned", "failed")

Counts = dict[str, int]


@dataclass(frozen=True)
class Snapshot:
    """A study at one moment. alive: whether a driver runs it. states: by trial, keys of WORDS."""

    alive: bool
    planned: Mapping[str, int]  # by method
    records: Trials
    states: Mapping[str, str]
    ranking: Ranking

    @classmethod
    def of(cls, study: StudyFolder, records: Trials, alive: bool) -> Snapshot:
        ranking = Ranking(study, records)
        states = {each.name: state_now(study, each, alive) for each in records}
        states |= dict.fromkeys(ranking.by_rule, "excluded")
        return cls(alive, records.planned(study.planned), records, states, ranking)

    @property
    def counts(self) -> dict[str, Counts]:
        """The counts of each method, by label."""
        return {
            label: count_states(self.planned[label], [self.states[record.name] for record in found])
            for label, found in self.records.by_label.items()
        }


def snapshot(study: StudyFolder) -> Snapshot:
    """The study now. The driver is read first: no trial that ends meanwhile looks interrupted."""
    alive = driver_is_alive(study.directory, study.ledger)
    return Snapshot.of(study, study.records(), alive)


def state_now(study: StudyFolder, record: TrialRecord, alive: bool) -> str:
    """A key of WORDS. alive: whether a driver ran the study when the record was read.

    The ledger has a trial as running from when it is proposed to when it is done. With a driver it
    trains (`running`) or waits for its turn (`to_do`); without one it was `interrupted` if it had
    begun.
    """
    if record.state != "running":
        return record.state
    if alive:
        return "running" if study.trains(record) else "to_do"
    return "interrupted" if study.began(record) else "to_do"


def count_states(planned: int, states: Iterable[str]) -> Counts:
    """{planned, and each of WORDS}; planned is their sum: trials not proposed yet are to do."""
    found = Counter(states)
    planned = max(planned, found.total())
    counts = {state: found[state] for state in WORDS}
    counts["to_do"] += planned - found.total()
    return {"planned": planned, **counts}


def plain_counts(counts: Counts) -> Counts:
    """For JSON: `set_aside` is what `excluded` was called, for one version."""
    return {**counts, "set_aside": counts["excluded"]}


def summed(counts: Iterable[Counts]) -> Counts:
    """The counts of several methods together."""
    total = Counter(dict.fromkeys(("planned", *WORDS), 0))
    for each in counts:
        total.update(each)
    return dict(total)


def done(counts: Counts) -> int:
    """Trials that came to an end, whichever."""
    return sum(counts[state] for state in DONE)


def in_words(counts: Counts) -> str:
    """`3 complete, 1 failed, 2 to do`."""
    shown = [key for key in WORDS if counts[key] or key == "complete"]
    return ", ".join(f"{counts[key]:,} {WORDS[key]}" for key in shown)


def saved_line(study: StudyFolder, records: Iterable[TrialRecord]) -> str | None:
    """The epochs that early stopping has saved; None if it stopped no trial."""
    pruned = [record.epoch for record in records if record.state == "pruned"]
    early = [epoch for epoch in pruned if epoch is not None]
    if not early:
        return None
    trials = f"{len(early):,} trial{'s' * (len(early) > 1)}"
    whole = int(study.plain["epochs"])
    saved = sum(whole - epoch for epoch in early)
    planned = whole * study.planned * len(study.labels)
    return (
        f"early stopping ended {trials} after epoch {max(early)} of {whole}: {saved:,} of"
        f" {planned:,} epochs saved"
    )


def stopped_line(counts: Counts, goes_on: str) -> str | None:
    """The line on a study that nobody runs; None if all its trials are done."""
    left = [f"{counts[key]:,} {WORDS[key]}" for key in ("interrupted", "to_do") if counts[key]]
    return f"the study is not running; {' and '.join(left)}. Resume: {goes_on}" if left else None
