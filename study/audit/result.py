"""The report of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from study.analysis.states import plain_counts
from study.store.files import BACKUP

SHOWN = 3  # problems of a trial in a message


@dataclass(frozen=True)
class Offender:
    """A problem: the trial or part of the study, what was found, and the fix."""

    name: str
    problem: str
    mend: str  # the fix; a JSON key

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}: {self.mend}"


@dataclass
class Check:
    """One check; `counted` is how many items were checked."""

    name: str
    title: str
    counted: int = 0
    twice: int = 0  # trials found twice
    # The running driver, or the next run, will resolve these.
    pending: list[Offender] = field(default_factory=list)
    offenders: list[Offender] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # information, not problems

    def add_offender(
        self, name: str, problem: str, fix: str = BACKUP, pending: bool = False
    ) -> None:
        (self.pending if pending else self.offenders).append(Offender(name, problem, fix))

    def add_differences(self, name: str, problems: Sequence[str], fix: str = BACKUP) -> None:
        """One offender of all problems of a trial, if it has any: the first few, and how many more
        there are."""
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        if problems:
            self.add_offender(name, "; ".join(problems[:SHOWN]) + more, fix)


@dataclass(frozen=True)
class Sample:
    """The trials whose histories in MLflow were compared, how many runs there are, and the seed
    that drew them."""

    trials: list[str]
    runs: int
    seed: int

    def __str__(self) -> str:
        how = f"drawn with the seed {self.seed}; `--histories all` compares each"
        return f"histories in MLflow of {len(self.trials):,} of {self.runs:,} trials, {how}"


@dataclass(frozen=True)
class AuditReport:
    """states: trials by state, as from `count_states`. lost: trials the ledger should have, but has
    not. duplicated: trials counted twice anywhere. sample: None if every history was compared."""

    study: str
    driver: bool
    note: str | None
    checks: list[Check]
    states: dict[str, int]
    lost: int
    duplicated: int
    sample: Sample | None = None

    @property
    def clean(self) -> bool:
        return not any(check.offenders for check in self.checks)

    @property
    def planned(self) -> int:
        return self.states["planned"]

    def to_json(self) -> dict[str, object]:
        states = plain_counts(self.states)
        return {**asdict(self), "states": states, "planned": self.planned, "clean": self.clean}
