"""Do a race's unequal seeds lead to false words? Markdown for benchmarks/results/seeds.md.

    python -m benchmarks.experiments.racing_words

Simulated confirmations. A race gives out seeds by a validation split; then all pairs of rows are
compared on a test split, by the intervals of an answer. A network's deviation is the same on both
splits, so a row whose first seeds were unlucky keeps them: the race could bias its mean. Compared
with equal seeds for all rows. In units of what matters.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from study.analysis.racing import standing
from study.store.recorded import LEAST, Race
from study.uncertainty.methods import Methods, Seeds
from study.uncertainty.words import AS_GOOD, BETTER, UNDECIDED, WORSE, word_for

Floats = NDArray[np.float64]
MOST = 12  # seeds of a row
DISAGREE = 0.231  # share of samples that two rows do not both classify alike: on Fashion-MNIST
UNIT = 0.01
RESAMPLES = 200


class World(NamedTuple):
    """truths: of the rows. seeds: the standard deviation of networks. validation, test: samples."""

    name: str
    truths: Sequence[float]
    seeds: float = 0.4
    validation: int = 750
    test: int = 2000

    def of_samples(self, samples: int) -> float:
        """The standard deviation of a network's value through the samples of a split."""
        return math.sqrt(DISAGREE / 2 / samples) / UNIT


class Drawn(NamedTuple):
    """networks: their true values [row, seed], seen on validation and test. resampled: [row, seed,
    resample] of test."""

    networks: Floats
    validation: Floats
    test: Floats
    resampled: Floats

    @classmethod
    def of(cls, world: World, source: np.random.Generator) -> Drawn:
        shape = len(world.truths), MOST
        networks = np.array(world.truths)[:, None] + source.normal(0, world.seeds, shape)

        def on(samples: int, times: int) -> Floats:
            """Half of the variance through samples is shared by a row's networks."""
            spread = world.of_samples(samples) * math.sqrt(0.5)
            shared = source.normal(0, spread, (shape[0], 1, times))
            return shared + source.normal(0, spread, (*shape, times))

        test = networks + on(world.test, 1)[..., 0]
        validation = networks + on(world.validation, 1)[..., 0]
        return cls(networks, validation, test, test[..., None] + on(world.test, RESAMPLES))

    def words(self, seeds: Sequence[int]) -> list[tuple[int, int, str]]:
        """Of all pairs of rows, where each has so many seeds: one, other, and what one is."""
        rows = {
            str(row): Seeds(self.test[row, :count], self.resampled[row, :count])
            for row, count in enumerate(seeds)
        }
        methods = Methods(rows)
        return [
            (one, other, word_for(methods.difference(str(one), str(other)), "ece", 1.0))
            for one, other in itertools.combinations(range(len(rows)), 2)
        ]

    def raced(self) -> list[int]:
        """By row, how many seeds a race gives it."""
        costs = {str(row): of for row, of in enumerate(self.validation.tolist())}
        found = standing(costs, Race(least=LEAST))
        assert found.ended
        return [found.seeds[str(row)] for row in range(len(costs))]


class Tally(NamedTuple):
    """Of one confirmation. wrong: whether a word was. told: the share of pairs with a right word;
    taken: of those with the row that is taken. bias: of the rows' means, through their seeds."""

    trainings: int
    wrong: bool
    told: float
    taken: float
    bias: float

    @classmethod
    def of(cls, drawn: Drawn, world: World, seeds: Sequence[int]) -> Tally:
        best = np.argmin([drawn.validation[row, :count].mean() for row, count in enumerate(seeds)])
        wrong, told, taken = False, [], []
        for one, other, word in drawn.words(seeds):
            gap = world.truths[one] - world.truths[other]
            right = {AS_GOOD: abs(gap) <= 1, BETTER: gap < 0, WORSE: gap > 0}
            wrong |= word != UNDECIDED and not right[word]
            told.append(word != UNDECIDED and right[word])
            if best in (one, other):
                taken.append(told[-1])
        means = [drawn.networks[row, :count].mean() for row, count in enumerate(seeds)]
        bias = float(np.mean(means) - np.mean(world.truths))
        return cls(sum(seeds), wrong, float(np.mean(told)), float(np.mean(taken)), bias)


ROWS = 8
WORLDS = [
    *(
        World(f"all equal, {test} test samples", [0.0] * ROWS, test=test)
        for test in (500, 2000, 10000)
    ),
    World("all equal, seeds of .8", [0.0] * ROWS, seeds=0.8, test=10000),
    World("three worse by 1.01", [0.0] * 5 + [1.01] * 3, test=10000),
    World("0, .5, .. 3.5", np.arange(0, 4, 0.5).tolist()),
    World("0, .5, .. 3.5, 10,000 test samples", np.arange(0, 4, 0.5).tolist(), test=10000),
]


def compared(draws: int) -> Iterator[str]:
    yield "| rows | confirmation | trainings | wrong word | pairs told | of the row taken | bias |"
    yield "|---|---|---|---|---|---|---|"
    for world in WORLDS:
        source = np.random.default_rng(0)
        found: dict[str, list[Tally]] = {}
        for _ in range(draws):
            drawn = Drawn.of(world, source)
            raced = drawn.raced()
            fixed = {f"{count} seeds": [count] * ROWS for count in (2, 3, 5, 8, 12)}
            for name, seeds in {"race": raced, **fixed}.items():
                found.setdefault(name, []).append(Tally.of(drawn, world, seeds))
        for name, each in found.items():
            trainings, wrong, told, taken, bias = np.mean(each, 0)
            error = math.sqrt(wrong * (1 - wrong) / draws)
            of_bias = np.std([one.bias for one in each]) / math.sqrt(draws)
            yield (
                f"| {world.name} | {name} | {trainings:.1f} | {wrong:.3f} ±{error:.3f} |"
                f" {told:.3f} | {taken:.3f} | {bias:+.3f} ±{of_bias:.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.racing_words", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--draws", type=int, default=400, help="confirmations of each world")
    for line in compared(parser.parse_args().draws):
        print(line, flush=True)


if __name__ == "__main__":
    main()
