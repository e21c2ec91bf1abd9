"""Seeds by a race, or as many for each row: which chooses better? Markdown for
benchmarks/results/seeds.md.

    python -m benchmarks.experiments.racing    # a quarter of an hour on one core

Studies of methods x schedules, searched by the product's sampler on surrogates of recorded
trainings, then confirmed by each rule with the same seeds; and rows without a difference. A sum is
in units of what matters, as study/analysis/rule.py adds it. Regret: the true sum of the chosen row,
less the lowest there is. racing_networks.py has real networks.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray

from benchmarks.search import curves, sampling, stopping
from benchmarks.search.sampling import Surrogate
from study.analysis.racing import standing
from study.analysis.rule import SHARE_OF_NLL
from study.store.recorded import Race

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PER_UNIT = np.array([1 / 0.01, 1 / 0.01, SHARE_OF_NLL / 0.02])  # of 1 - accuracy, ECE, NLL
MOST = 12  # seeds of a row
FLOOR = 2.0  # units of accuracy below the best, in which a row may be on the front
RESAMPLES = 2000


class Rule(NamedTuple):
    """Who is confirmed: the front and the `wide` lowest sums. How: so many seeds each, or a race.
    The front comes with one lowest sum, as the product's. seeds 0: the lowest sum in the search."""

    wide: int
    seeds: int = 0
    race: Race | None = None

    def choose(self, costs: Floats, seen: Floats | None = None) -> tuple[int, int]:
        """The row, and the trainings. costs: sums by row and seed. seen: in the search, by row."""
        if self.race is not None:
            found = standing({str(row): of for row, of in enumerate(costs.tolist())}, self.race)
            assert found.ended and found.leader is not None
            return int(found.leader), sum(found.seeds.values())
        values = costs[:, : self.seeds].mean(1) if self.seeds or seen is None else seen
        return int(values.argmin()), self.seeds * len(costs)


TODAY, RACE = Rule(1, 3), Rule(8, race=Race())  # today: before there was a race
FIXED = {
    "front": [Rule(1, seeds) for seeds in range(1, MOST + 1)],
    "front + 8 lowest": [Rule(8, seeds) for seeds in range(1, MOST + 1)],
}
RULES = {
    "none: best as seen": Rule(1),
    **{f"front, {one} seeds": Rule(1, one) for one in (1, 3, 5, 12)},
    **{f"front + 8 lowest, {one} seeds": Rule(8, one) for one in (1, 3, 5, 12)},
    "front, race": Rule(1, race=Race()),
    "front + 4 lowest, race": Rule(4, race=Race()),
    "**front + 8 lowest, race**": RACE,
    "front + 12 lowest, race": Rule(12, race=Race()),
    "front + 8 lowest, race, 2 at once": Rule(8, race=Race(at_once=2)),
    "front + 8 lowest, race, 8 at once": Rule(8, race=Race(at_once=8)),
    "front + 8 lowest, race to .5": Rule(8, race=Race(until=0.5)),
    "front + 8 lowest, race to 1": Rule(8, race=Race(until=1.0)),
}
SHORTER = {  # also after fewer trials
    "front, 3 seeds": TODAY,
    "front + 8 lowest, 3 seeds": Rule(8, 3),
    "front + 8 lowest, race": RACE,
    "front + 8 lowest, race to .5": Rule(8, race=Race(until=0.5)),
}
TRIALS = (4, 6, 8, 12, 16, 24)  # of a method: the first of the same searches


# ---- recorded worlds -----------------------------------------------------------------------------


@dataclass
class Clipped(Surrogate):
    """No value is below `least`: the best that is predicted at a recorded setting."""

    least: Floats = field(default_factory=lambda: np.array(0.0))

    def at(self, places: Floats) -> Floats:
        return np.maximum(super().at(places), self.least)


class Method(NamedTuple):
    """One method's surrogate of error and ECE, which a sampler sees; and that with NLL besides."""

    searched: Clipped
    whole: Clipped

    @classmethod
    def of(cls, pool: Sequence[curves.Training], label: str) -> Method:
        """The noise, of all three together, has a mean of 1: the mean of seeds is the truth."""
        found = sampling.fit(pool, label)
        epochs = curves.spec_of(pool[0].set, pool[0].schedule).epochs
        own = [one for one in pool if one.method == label]
        own = [one for one in own if stopping.Trial(label, False, one.rows, epochs).has_result]
        places = sampling.scaled([one.params for one in own], found.space)
        nll = np.log([one.rows[-1][curves.METRICS.index("nll")] for one in own])
        targets = np.column_stack([sampling.logarithms(own, epochs), nll])
        noise = sampling.deviations(own, targets)
        noise -= np.log(np.exp(noise).mean(0))
        models = [*found.models, sampling.fitted(places, nll)]
        whole = Clipped(found.space, found.defaults, models, noise)
        whole.least = whole.at(places).min(0)
        return cls(
            replace(whole, models=models[:2], noise=noise[:, :2], least=whole.least[:2]), whole
        )


class Searched(NamedTuple):
    """The trials of a study. number: within its method. seen: the sum's terms in the search. true:
    sums. seeds: sums of MOST fresh seeds each."""

    number: Ints
    seen: Floats
    true: Floats
    seeds: Floats

    @classmethod
    def of(cls, method: Method, seed: int) -> Searched:
        trials = TRIALS[-1]
        tried = sampling.search(method.searched, sampling.ours(method.searched), trials, seed)
        noise = np.exp(method.whole.noise)
        true = method.whole.truth(tried)
        # The noise that `search` draws first.
        own = np.random.default_rng(seed).integers(len(noise), size=trials)
        fresh = np.random.default_rng([seed, 1]).integers(len(noise), size=(trials, MOST))
        seeds = (true[:, None] * noise[fresh]) @ PER_UNIT
        return cls(np.arange(trials), true * noise[own] * PER_UNIT, true @ PER_UNIT, seeds)

    def candidates(self, trials: int, wide: int, floor: float) -> Ints:
        """Of each method's first trials. floor: units of accuracy below the best, in the front."""
        counted = np.flatnonzero(self.number < trials)
        wrong = self.seen[counted, 0]
        near = counted[wrong <= wrong.min() + floor]
        points = {row: (self.seen[row, 0], self.seen[row, 1]) for row in near}
        front = stopping.front(list(points.values()))
        lowest = counted[self.seen[counted].sum(1).argsort(kind="stable")[:wide]]
        return np.array(
            list(dict.fromkeys([*(row for row in near if points[row] in front), *lowest]))
        )


@dataclass(frozen=True)
class Replays:
    """studies: by set, replay by replay. best: by set, the lowest true sum of all settings."""

    studies: Mapping[str, Sequence[Searched]]
    best: Mapping[str, float]
    floor: float

    @classmethod
    def of(cls, replays: int, floor: float) -> Replays:
        trainings = curves.read()
        studies, best = {}, {}
        for name in curves.SETS:
            methods = []
            for schedule in curves.SCHEDULES:
                pool = [one for one in trainings if (one.set, one.schedule) == (name, schedule)]
                labels = sorted({one.method for one in pool})
                methods += [Method.of(pool, label) for label in labels]
            studies[name] = [
                Searched(*map(np.concatenate, zip(*parts, strict=True)))
                for parts in (
                    [Searched.of(one, 100 * replay + place) for place, one in enumerate(methods)]
                    for replay in range(replays)
                )
            ]
            source = np.random.default_rng(0)
            grids = [
                one.whole.at(source.random((sampling.GRID, len(one.whole.space))))
                for one in methods
            ]
            lowest = [float((grid @ PER_UNIT).min()) for grid in grids]
            best[name] = min(lowest + [float(one.true.min()) for one in studies[name]])
        return cls(studies, best, floor)

    @property
    def methods(self) -> int:
        return int((next(iter(self.studies.values()))[0].number == 0).sum())

    def play(self, rule: Rule, trials: int = TRIALS[-1]) -> Floats:
        """[2, set, replay]: regret, and trainings of the confirmation."""
        found = []
        for name, studies in self.studies.items():
            for study in studies:
                rows = study.candidates(trials, rule.wide, self.floor)
                row, spent = rule.choose(study.seeds[rows], study.seen[rows].sum(1))
                found.append((study.true[rows[row]] - self.best[name], spent))
        return np.array(found).T.reshape(2, len(self.studies), -1)

    def tried(self, trials: int) -> Floats:
        """[set, replay]: the regret of the best setting that was tried."""
        return np.array(
            [
                [study.true[study.number < trials].min() - self.best[name] for study in studies]
                for name, studies in self.studies.items()
            ]
        )


def standard_error(values: Floats) -> float:
    """Of the mean of the sets' means. values: [set, replay]."""
    return math.sqrt((values.var(1, ddof=1) / values.shape[1]).sum()) / len(values)


def shown(values: Floats) -> str:
    return f"{values.mean():.3f} ±{standard_error(values):.3f}"


def at_equal_trainings(race: Floats, fixed: Floats) -> float:
    """Regret of a race, relative to as many fixed seeds. race: [2, set, replay]; fixed: of 1, 2, ..
    seeds, between which it is interpolated, set by set."""
    race, fixed = race.mean(-1), fixed.mean(-1)
    alike = [
        np.interp(race[1, place], fixed[:, 1, place], fixed[:, 0, place])
        for place in range(race.shape[1])
    ]
    return float(race[0].mean() / np.mean(alike))


def times_fewer(shorter: Floats, today: Floats, searches: Floats) -> float:
    """All trainings of today's rule, over those with which another rule has its regret.

    0: it never has. shorter: after fewer trials [n, 2, set, replay]. searches: trainings of n
    searches.
    """
    regret, spent = shorter.mean((-1, -2)).T
    wanted, confirmed = today.mean((-1, -2))
    whole = confirmed + searches[-1]
    spent = np.log(spent + searches)
    enough = np.flatnonzero(regret <= wanted + 1e-9)
    if not len(enough):
        return 0.0
    last = enough[0]
    if last == 0:
        return float(whole / math.exp(spent[0]))  # at least
    ends = slice(last - 1, last + 1)
    reached = np.interp(-wanted, -regret[ends], spent[ends])
    return float(whole / math.exp(reached))


def by_rule(found: Replays) -> Iterator[str]:
    sets = list(found.studies)
    yield f"| rule | {' | '.join(sets)} | mean | trainings of each | mean | less today's |"
    yield "|---|" + "---|" * (len(sets) + 4)
    today = found.play(TODAY)[0]
    for name, rule in RULES.items():
        regret, spent = found.play(rule)
        cells = [shown(one[None]) for one in regret] + [shown(regret)]
        each = ", ".join(f"{one:.1f}" for one in spent.mean(1))
        cells += [each, f"{spent.mean():.1f}", shown(regret - today)]
        yield f"| {name} | {' | '.join(cells)} |"


def by_trials(found: Replays) -> Iterator[str]:
    """With all trainings, the search's too."""
    yield f"| trials a method | search | best tried | {' | '.join(SHORTER)} |"
    yield "|---|" + "---|" * (2 + len(SHORTER))
    for trials in TRIALS:
        search = trials * found.methods
        cells = [f"{search}", shown(found.tried(trials))]
        for rule in SHORTER.values():
            regret, spent = found.play(rule, trials)
            cells.append(f"{shown(regret)} ({search + spent.mean():.0f})")
        yield f"| {trials} | {' | '.join(cells)} |"


def ratios(found: Replays) -> Iterator[str]:
    """The 95% is of resampled replays."""
    sets, replays = list(found.studies), len(next(iter(found.studies.values())))
    today, race = found.play(TODAY), found.play(RACE)
    searches = np.array(TRIALS) * found.methods
    parts: dict[str, tuple[Callable[..., float], list[Floats]]] = {}
    for name, fixed in FIXED.items():
        of = np.array([found.play(rule) for rule in fixed])
        parts[f"regret at equal trainings, of {name}"] = at_equal_trainings, [race, of]
    for name, rule in SHORTER.items():
        of = np.array([found.play(rule, trials) for trials in TRIALS])
        parts[f"times fewer, {name}"] = partial(times_fewer, searches=searches), [of, today]
    yield f"| ratio | {' | '.join(sets)} | all | 95% |"
    yield "|---|" + "---|" * (len(sets) + 2)
    again = np.random.default_rng(0).integers(replays, size=(RESAMPLES, replays))
    for name, (ratio, arrays) in parts.items():
        each = [ratio(*(of[..., [one], :] for of in arrays)) for one in range(len(sets))]
        each.append(ratio(*arrays))
        drawn = [ratio(*(of[..., chosen] for of in arrays)) for chosen in again]
        low, high = np.quantile(drawn, [0.025, 0.975])
        yield f"| {name} | {' | '.join(f'{one:.2f}' for one in each)} | {low:.2f}..{high:.2f} |"


# ---- rows without a difference -------------------------------------------------------------------


def equal(draws: int = 1000, spread: float = 0.8) -> Iterator[str]:
    """Seeds are normal around one truth."""
    yield "| rows | trainings, mean | 5% to 95% | most | choice settled |\n|---|---|---|---|---|"
    source = np.random.default_rng(0)
    for rows in (2, 5, 10, 20):
        spent, settled = [], []
        for _ in range(draws):
            costs = source.normal(0, spread, (rows, MOST)).tolist()
            found = standing({str(row): of for row, of in enumerate(costs)}, Race())
            assert found.ended
            spent.append(sum(found.seeds.values()))
            settled.append(not found.rivals)
        low, high = np.quantile(spent, [0.05, 0.95])
        yield (
            f"| {rows} | {np.mean(spent):.1f} | {low:.0f} to {high:.0f} | {max(spent)} |"
            f" {np.mean(settled):.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.racing", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--replays", type=int, default=60, help="searches of each world")
    parser.add_argument("--floor", type=float, default=FLOOR, help="units of accuracy in the front")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    found = Replays.of(given.replays, given.floor)
    for table in (by_rule(found), by_trials(found), ratios(found), equal()):
        print(*table, "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
