"""What is said of a race: when it ends, and how it ended."""

from __future__ import annotations

from study.analysis.racing import standing_of
from study.answer.confirmation import Confirmation
from study.answer.phrases import counted
from study.schema.objective import in_words
from study.store.recorded import Race
from study.store.study import StudyFolder


def when_it_ends(search: StudyFolder, race: Race) -> str:
    """`until no other model is likely to be better by 0.0025 in ECE, or has 12 seeds`."""
    ends = f"until {_settled(search, race)}, or has {counted(race.at_most, 'seed')}"
    if race.trainings is not None:
        ends += f", or after {counted(race.trainings, 'training')} in all"
    return ends


def how_it_ended(found: Confirmation) -> str | None:
    """How a race ended, and after how many trainings; None if there was none, or it goes on."""
    race = found.study.recorded.race
    now = None if race is None else standing_of(found.study, found.records)
    if race is None or now is None or not now.ended:
        return None
    names = {row.label: row.name for row in found.rows}
    after = f"after {counted(sum(now.seeds.values()), 'training')}"
    if now.leader is None:
        return f"The race ended {after}: no model has two seeds that count."
    if not now.rivals:
        return f"The race ended {after}: {_settled(found.search, race)}."
    left = ", ".join(names.get(one, one) for one in now.rivals)
    limit = f"--at-most {race.at_most}"
    if race.trainings is not None and sum(now.seeds.values()) >= race.trainings:
        limit = f"--trainings {race.trainings}"
    return f"The race ended {after} ({limit}): {left} may still be better."


def _settled(search: StudyFolder, race: Race) -> str:
    """`no other model is likely to be better by 0.0025 in accuracy or 0.0025 in ECE`."""
    amounts = [
        f"{race.until * search.units[one.metric]:.2g} in {in_words(one.metric)}"
        for one in search.served
    ]
    return f"no other model is likely to be better by {' or '.join(amounts)}"
