"""What a study's trials are together, in its MLflow: the front, its knee, hypervolume, the answer.

On the study's own run they are metrics and tags with names of trials; each of these trials has the
same tag. What no longer holds loses its tag.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from study.analysis.ranking import Ranking
from study.tracking.client import PREFIX

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from study.store.study import StudyFolder
    from study.store.trials import Trials

FRONT = PREFIX + "front"
KNEE = PREFIX + "knee"
ANSWER = PREFIX + "answer"
YES = "yes"  # a trial's value of such a tag
NO_SERIES = 0  # the step of values that no curve is drawn of
LONGEST = 5000  # characters of a tag's value that every server takes


@dataclass(frozen=True)
class StudySummary:
    """The trials with each tag, in order; and the study's metrics."""

    marked: Mapping[str, Sequence[str]]
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the study's own run; empty text for a tag of no trial."""
        return {tag: listed(names) for tag, names in self.marked.items()}

    def tags_of(self, trial: str) -> dict[str, str]:
        """The tags of a trial's run; empty text for one that it must not have."""
        return {tag: YES if trial in names else "" for tag, names in self.marked.items()}


def summary_of(study: StudyFolder, records: Trials) -> StudySummary | None:
    """The front by the study's own objectives; None of a confirmation, which selects nothing."""
    if study.confirms is not None:
        return None
    ranking = Ranking(study, records)
    knee = ranking.knee
    marked = {
        FRONT: [record.name for record in ranking.front],
        KNEE: [] if knee is None else [knee.name],
    }
    metrics = {"front_size": float(len(ranking.front)), "hypervolume": ranking.hypervolume}
    return StudySummary(marked, metrics)


def listed(names: Iterable[str]) -> str:
    """Names as a tag's value: whole names, and how many more there are."""
    every = list(names)
    text = ", ".join(every)
    kept = len(every)
    while len(text) > LONGEST:
        kept -= 1
        text = f"{', '.join(every[:kept])} and {len(every) - kept} more"
    return text


def set_tags(
    client: MlflowClient, run_id: str, there: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    """Make a run's tags those wanted; an empty text removes one. there: what it has."""
    for tag, value in wanted.items():
        if value and there.get(tag) != value:
            client.set_tag(run_id, tag, value)
        elif not value and tag in there:
            client.delete_tag(run_id, tag)


def log_values(
    client: MlflowClient, run_id: str, there: Mapping[str, float], wanted: Mapping[str, float]
) -> None:
    """Log the metrics of the study's own run that have changed; of one step, the latest counts."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    points = [
        Metric(name, value, now, NO_SERIES)
        for name, value in wanted.items()
        if math.isfinite(value) and there.get(name) != value
    ]
    if points:
        client.log_batch(run_id, points)
