"""A race: which models of a confirmation get more seeds, and when it ends.

As Hoeffding races (Maron and Moore 1994) and irace do, it drops models as they fall behind, in the
sum by which the answer is chosen. Each has two seeds first. Then seeds go to those that may still
be best, until none is likely to be better than the leader by more than the race allows, and the
leader has a few seeds. Everything here is a function of recorded values: a restart decides what no
restart would have.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from study.analysis.pareto import measured_in
from study.analysis.ranking import rules_of
from study.analysis.rule import in_units, mean_trial
from study.store.recorded import FIRST, Race
from study.store.study import StudyFolder
from study.store.trials import Place, TrialRecord, Trials

# Standard errors: each of the others is better by more with a probability of about 10% at most.
SURE = 1.28
Costs = Mapping[str, Sequence[float | None]]  # by model, seed by seed; None: it failed
Seeds = Mapping[str, int]  # by model


@dataclass(frozen=True)
class Standing:
    """Where a race stands.

    seeds: how many each model is to have by now. leader: the one with the lowest mean. rivals:
    those that may be better by more than is allowed, the likeliest first. ended: whether no more
    seeds are asked; without rivals, the choice is settled.
    """

    seeds: dict[str, int]
    leader: str | None = None
    rivals: tuple[str, ...] = ()
    ended: bool = False


def standing(
    costs: Costs, race: Race, out: Callable[[Seeds], Collection[str]] = lambda seeds: ()
) -> Standing:
    """Where the race stands.

    costs: of the seeds that have ended, up to the first that has not: sums in units of what
    matters, smaller is better. out: who does not count, with their first so many seeds.

    Decided in rounds of `at_once` seeds, each when all seeds of the rounds before have ended: what
    later seeds gave, or in which order seeds ended, changes no decision.
    """
    now = Standing(dict.fromkeys(costs, FIRST))
    while not now.ended and all(len(costs[one]) >= count for one, count in now.seeds.items()):
        left_out = out(now.seeds)
        counted = {
            one: [cost for cost in costs[one][:count] if cost is not None]
            for one, count in now.seeds.items()
            if one not in left_out
        }
        leader, rivals = _likeliest(counted, {}, race.until)
        more = _next_round(counted, now.seeds, race)
        now = Standing(dict(Counter(now.seeds) + more), leader, rivals, not more)
    return now


def _next_round(counted: Mapping[str, Sequence[float]], seeds: Seeds, race: Race) -> Counter[str]:
    """How many more seeds each model gets; none: the race has ended."""
    left = math.inf if race.trainings is None else race.trainings - sum(seeds.values())
    # One whose first seeds failed has as many again.
    again = [
        one
        for one, values in counted.items()
        if len(values) < FIRST and seeds[one] < min(2 * FIRST, race.at_most)
    ]
    more = Counter(again[: int(min(left, len(again)))])
    while not again and more.total() < min(race.at_once, left):
        leader, rivals = _likeliest(counted, more, race.until)
        able = (
            one
            for rival in rivals
            for one in sorted((rival, str(leader)), key=lambda each: seeds[each] + more[each])
            if seeds[one] + more[one] < race.at_most
        )
        if (one := next(able, None)) is None:
            break
        more[one] += 1
    leader, _ = _likeliest(counted, {}, race.until)
    if leader is not None and not more:  # settled: its own spread must be known, too
        lacking = min(race.least, race.at_most) - seeds[leader]
        more[leader] = int(max(0, min(lacking, left)))
    return +more


def _likeliest(
    counted: Mapping[str, Sequence[float]], asked: Seeds, until: float
) -> tuple[str | None, tuple[str, ...]]:
    """The model with the lowest mean, and those that may be better by more than `until`.

    The seeds' variance is one for all, pooled: one's own has one degree of freedom at two seeds.
    asked: seeds that are not known yet, which count as seeds only.
    """
    found = {one: values for one, values in counted.items() if len(values) >= FIRST}
    if not found:
        return None, ()
    means = {one: statistics.fmean(values) for one, values in found.items()}
    squares = math.fsum((value - means[one]) ** 2 for one in found for value in found[one])
    variance = squares / sum(len(values) - 1 for values in found.values())
    sizes = {one: len(values) + asked.get(one, 0) for one, values in found.items()}
    leader = min(means, key=lambda one: means[one])
    least = {
        one: means[one]
        - means[leader]
        - SURE * math.sqrt(variance / size + variance / sizes[leader])
        for one, size in sizes.items()
        if one != leader
    }
    rivals = [one for one in least if least[one] < -until]
    return leader, tuple(sorted(rivals, key=lambda one: least[one]))


# ---- of a study ----------------------------------------------------------------------------------


def standing_of(study: StudyFolder, records: Trials) -> Standing | None:
    """Where the race of a confirmation stands; None where it has none."""
    race = study.recorded.race
    if race is None:
        return None
    ended = {label: _until_open(found) for label, found in records.by_label.items()}
    rules = rules_of(study)

    def out(seeds: Seeds) -> Collection[str]:
        counted = {one: _complete(ended[one][:count]) for one, count in seeds.items()}
        means = {one: mean_trial(one, found) for one, found in counted.items() if found}
        aside = rules.excluded([*means.values()])
        return [one for one, mean in means.items() if mean.name in aside]

    costs = {one: [_cost(study, record) for record in found] for one, found in ended.items()}
    return standing(costs, race, out)


def places_of(study: StudyFolder, records: Trials, now: Standing) -> dict[str, Place]:
    """By label, how many trials are planned so far, where its race stands so."""
    planned = {label: max(now.seeds[label], len(of)) for label, of in records.by_label.items()}
    race = study.recorded.race
    if race is not None and now.ended and now.leader is not None:
        for label in race.also:
            planned[label] = max(planned[label], now.seeds[now.leader])
    return {label: Place(count, not now.ended) for label, count in planned.items()}


def _until_open(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    found = []
    for record in records:
        if record.is_open:
            break
        found.append(record)
    return found


def _complete(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.state == "complete"]


def _cost(study: StudyFolder, record: TrialRecord) -> float | None:
    if record.state != "complete" or not measured_in([record], study.served):
        return None
    cost = math.fsum(in_units(study, record).values())
    return cost if math.isfinite(cost) else None
