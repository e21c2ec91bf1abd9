"""What MLflow says of the study's trials together: its front, knee and hypervolume, and whose the
answer is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.tracking.client import PREFIX
from study.tracking.reader import TrackedRun
from study.tracking.standing import ANSWER, FRONT, Standing, standing_of

SHOWN = 3  # trials in a message


def check_standing(
    facts: Evidence, parent: TrackedRun, trials: Mapping[str, Mapping[str, str]], check: Check
) -> None:
    """The tags of the study's run and of its trials', by name, are those of the ledger.

    Nothing is asked of a run that has not ended, or that a version wrote which had no such tags.
    """
    standing = standing_of(facts.study, facts.records)
    if standing is None or not parent.ended or FRONT.removeprefix(PREFIX) not in parent.tags:
        return
    for problem in _problems(standing, parent, trials):
        fix = f"correct it with {facts.sync}"
        check.add_offender(facts.study.name, problem, fix, facts.goes_on_later)


def _problems(
    standing: Standing, parent: TrackedRun, trials: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    for tag, value in standing.tags.items():
        key = tag.removeprefix(PREFIX)
        if parent.tags.get(key, "") != value:
            there = parent.tags.get(key) or "empty"
            yield f"its {key} in MLflow is {there}, not {value or 'empty'}"
        wanted = set(standing.marked[tag])
        yield from _marked_otherwise(key, wanted & trials.keys(), trials)
    for name, metric in standing.metrics.items():
        if parent.last.get(name) != metric:
            yield f"its {name} in MLflow is {parent.last.get(name)}, not {metric}"
    key = ANSWER.removeprefix(PREFIX)
    named = {parent.tags.get(key, "")} & trials.keys()  # none for a method's default
    yield from _marked_otherwise(key, named, trials)


def _marked_otherwise(
    key: str, wanted: set[str], trials: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Trials with a tag that they must not have, or without one that they must."""
    other = sorted(wanted ^ {name for name, tags in trials.items() if key in tags})
    if other:
        more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        yield f"the tag {PREFIX}{key} of {', '.join(other[:SHOWN])}{more} is wrong"
