"""Objectives given to a study afterwards: it is then seen as if it had these, and nothing of it is
changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from study.schema.objective import Objective, changes_with_temperature, served_by_default
from study.store.trials import TrialRecord, Trials

LEFT_OUT = "left out"


@dataclass(frozen=True)
class OtherObjectives:
    """objectives: those given. own: the study's, which it searched and stopped for.

    measured: metrics that trials did not record, by trial. left_out: why a complete trial has no
    value of an objective, by name.
    """

    objectives: tuple[Objective, ...]
    own: tuple[Objective, ...]
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """What every output begins with."""
        return f"objectives given afterwards; searched and stopped for {listed(self.own)}"

    @property
    def option(self) -> dict[str, str]:
        """The option of a command that gives them."""
        return {"objectives": ",".join(one.metric for one in self.objectives)}

    @property
    def suffix(self) -> str:
        """`-accuracy-nll`: what the names of files have, so that the study's own stay."""
        return "".join(f"-{one.metric}" for one in self.objectives)

    @property
    def serves(self) -> str | None:
        """What a registered model gives by these; None where they do not say."""
        if not any(changes_with_temperature(one.metric) for one in self.objectives):
            return None
        return served_by_default(self.objectives)

    def of(self, records: Trials) -> Trials:
        """The trials with what was measured of them afterwards."""
        return Trials(
            {
                label: [self._with_measured(record) for record in found]
                for label, found in records.by_label.items()
            },
            records.places,
        )

    def _with_measured(self, record: TrialRecord) -> TrialRecord:
        more = self.measured.get(record.name)
        return replace(record, metrics={**record.metrics, **more}) if more else record


def listed(objectives: Sequence[Objective]) -> str:
    """`accuracy, ece`."""
    return ", ".join(one.metric for one in objectives)


def selected_by_hand(given: OtherObjectives) -> str:
    """What is said of a model that was named after an answer by these objectives."""
    return (
        f"selected by hand for {listed(given.objectives)}, given afterwards; the study searched and"
        f" stopped for {listed(given.own)}"
    )
