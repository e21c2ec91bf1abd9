"""What an audit says: its checks, and what is off."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from study.audit.epochs import Epochs


@dataclass(frozen=True)
class Offender:
    """What is off: of which trial (or part of the study), what was found, and the mend."""

    name: str
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}: {self.mend}"


@dataclass
class Check:
    """One of the things that are proved; `counted` is how many of them were looked at."""

    name: str
    title: str
    counted: int = 0
    twice: int = 0  # trials found a second time
    pending: list[Offender] = field(default_factory=list)  # a driver at work will see to it
    offenders: list[Offender] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is told though nothing is wrong with it

    def add_offender(self, name: str, problem: str, mend: str, pending: bool = False) -> None:
        (self.pending if pending else self.offenders).append(Offender(name, problem, mend))


@dataclass(frozen=True)
class AuditReport:
    """`lost`: planned, not finished, and no driver is at it. `duplicated`: trials counted a second time, anywhere."""

    study: str
    driver: bool
    note: str | None
    checks: list[Check]
    planned: int
    lost: int
    duplicated: int
    epochs: Epochs

    @property
    def clean(self) -> bool:
        return not any(check.offenders for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}
