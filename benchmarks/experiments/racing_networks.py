"""A race among real networks: chosen by some test samples, judged by the others. Markdown.

    python -m benchmarks.experiments.racing_networks    # three minutes on one core

The rows are of benchmarks/results/race, 12 networks each. One part: all seeds are measured on the
same samples, as on a validation split. Folds: seed k is measured on part k mod 5. Loss: the true
sum of the chosen row, less the lowest of the draw's rows; the truth is the mean over all seeds, on
samples that no seed was measured on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.experiments.racing import Rule, shown, standard_error
from benchmarks.race.kept import Kept, Scores
from study.analysis import racing
from study.analysis.rule import SHARE_OF_NLL
from study.report.style import COLOURS, new_figure, our_settings
from study.schema.objective import RAW, TEMPERATURE
from study.store.recorded import Race
from study.uncertainty.resampling import BINS
from trainables.metrics.binned import equal_width_index

Floats = NDArray[np.float64]
FOLDER = Path(__file__).parents[1] / "results" / "race"
SIZES = (300, 750, 1000, 1500, 3000)  # of validation
FOLDS = 5  # where they leave a third of the samples for the truth
AMONG, ROWS = 20, 10  # the lowest sums; rows of a choice, at random
CHOICES = {
    **{f"{one} seeds": Rule(0, one) for one in (2, 3, 5, 8, 12)},
    "race to 1": Rule(0, race=Race(until=1.0)),
    "race to .5": Rule(0, race=Race(until=0.5)),
    "race": Rule(0, race=Race()),
    "race to .1": Rule(0, race=Race(until=0.1)),
}


class Draw(NamedTuple):
    """Sums of rows. single, folds: by seed [row, seed], all on one part, or each on part k mod
    FOLDS; empty where the parts are too large. others, beyond: the truth [row], mean over seeds, on
    all but the one part, and on all but the FOLDS parts."""

    single: Floats
    others: Floats
    folds: Floats
    beyond: Floats


def columns(scores: Scores) -> NDArray[np.float32]:
    """[N, 2 + BINS]: what adds up over samples: errors, NLL, and hits less confidence by bin."""
    found = np.zeros((len(scores.hits), 2 + BINS), np.float32)
    found[:, 0] = 1 - scores.hits
    found[:, 1] = scores.nll
    bins = equal_width_index(torch.from_numpy(scores.confidence), BINS).numpy()
    found[np.arange(len(bins)), 2 + bins] = scores.hits - scores.confidence
    return found


class Set(NamedTuple):
    """A set's rows with the lowest sums. total: what adds up, of all samples [row, seed, column].
    parts: by size, of the samples of a part [draw, part, row, seed, column]."""

    name: str
    total: Floats
    parts: dict[int, Floats]
    samples: int
    matters: dict[str, float]

    @classmethod
    def of(cls, file: Path, form: str, draws: int) -> Set:
        kept = Kept.read(file)
        rows = [row for row, of in kept.scores if of == form]
        samples = len(kept.scores[rows[0], form][0].hits)
        orders = [np.random.default_rng(draw).permutation(samples) for draw in range(draws)]
        chosen = {
            size: np.zeros((draws, _parts(size, samples), samples), np.float32) for size in SIZES
        }
        for size, masks in chosen.items():
            for mask, order in zip(masks, orders, strict=True):
                for part in range(len(mask)):
                    mask[part, order[part * size : (part + 1) * size]] = 1
        networks = [[columns(one) for one in kept.scores[row, form]] for row in rows]
        total = np.array([[one.sum(0, dtype=np.float64) for one in of] for of in networks])
        found = cls(file.stem, total, {}, samples, kept.facts["matters"])
        lowest = found.sums(total, samples).mean(1).argsort()[:AMONG]
        parts = {}
        for size, masks in chosen.items():
            flat = masks.reshape(-1, samples)
            values = np.array([[flat @ one for one in networks[row]] for row in lowest], np.float64)
            values = values.reshape(*values.shape[:2], draws, -1, 2 + BINS)
            parts[size] = np.moveaxis(values, (2, 3), (0, 1))
        return found._replace(total=total[lowest], parts=parts)

    def sums(self, added: Floats, samples: int) -> Floats:
        matters, means = self.matters, added / samples
        ece = np.abs(means[..., 2:]).sum(-1)
        nll = SHARE_OF_NLL * means[..., 1] / matters["nll"]
        found: Floats = means[..., 0] / matters["accuracy"] + ece / matters["ece"] + nll
        return found

    def draws(self, size: int) -> Iterator[Draw]:
        for number, parts in enumerate(self.parts[size]):
            source = np.random.default_rng([number, 1])
            rows = source.choice(parts.shape[1], ROWS, replace=False)
            own, total = parts[:, rows], self.total[rows]
            single = self.sums(own, size)
            others = self.sums(total - own[0], self.samples - size).mean(1)
            if len(own) < FOLDS:
                yield Draw(single[0], others, np.empty((0, 0)), np.empty(0))
                continue
            seeds = np.arange(single.shape[-1])
            folds = single[seeds % FOLDS, :, seeds].T
            beyond = self.sums(total - own.sum(0), self.samples - FOLDS * size).mean(1)
            yield Draw(single[0], others, folds, beyond)


def _parts(size: int, samples: int) -> int:
    return FOLDS if FOLDS * size <= samples * 2 / 3 else 1


def sets(form: str, draws: int) -> list[Set]:
    return [Set.of(file, form, draws) for file in sorted(FOLDER.glob("*.json"))]


class Played(NamedTuple):
    """One part for all seeds: by size and choice, losses and trainings [2, set, draw]; and the
    table's lines of folds."""

    names: list[str]
    results: dict[int, dict[str, Floats]]
    folds: list[str]

    @classmethod
    def of(cls, draws: int, form: str) -> Played:
        found = sets(form, draws)
        results, folds = {}, []
        for size in SIZES:
            drawn = {one.name: list(one.draws(size)) for one in found}
            choices = [(one.single, one.others) for of in drawn.values() for one in of]
            results[size] = {
                name: _losses(choices, rule).reshape(2, len(found), draws)
                for name, rule in CHOICES.items()
            }
            if FOLDS * size <= found[0].samples * 2 / 3:
                folds += list(_folds(size, drawn))
        return cls([one.name for one in found], results, folds)

    def table(self) -> Iterator[str]:
        yield f"| set | validation | {' | '.join(CHOICES)} |"
        yield "|---|---|" + "---|" * len(CHOICES)
        for size, results in self.results.items():
            for place, name in enumerate([*self.names, "mean"]):
                own = slice(None) if name == "mean" else slice(place, place + 1)
                cells = [
                    f"{shown(of[0, own])} ({of[1, own].mean():.0f})" for of in results.values()
                ]
                yield f"| {name} | {size} | {' | '.join(cells)} |"

    def folds_table(self) -> Iterator[str]:
        heads = " | ".join(f"{name}: folds less one part" for name in self.names)
        yield f"| validation | rule | one part (trainings) | folds (trainings) | {heads} | mean |"
        yield "|---|---|---|---|" + "---|" * (len(self.names) + 1)
        yield from self.folds

    def draw(self, file: Path) -> None:
        """Loss by trainings: as many seeds for each row, and the race."""
        sizes = [size for size in SIZES if size != 1000]
        with our_settings():
            figure = new_figure()
            figure.set_size_inches(8.4, 2.9)
            for axes, size in zip(figure.subplots(1, len(sizes), sharey=True), sizes, strict=True):
                for colour, races in zip(COLOURS, (False, True), strict=False):
                    kinds = [
                        one for name, one in self.results[size].items() if ("race" in name) == races
                    ]
                    trainings = [one[1].mean() for one in kinds]
                    axes.errorbar(
                        trainings,
                        [one[0].mean() for one in kinds],
                        [standard_error(one[0]) for one in kinds],
                        color=colour,
                        marker="o",
                        ms=3,
                        lw=1,
                        label="race" if races else "as many seeds for each",
                    )
                axes.set(xlabel="trainings", ylim=(0, None))
                axes.set_title(f"{size:,} validation samples", fontsize=9)
                axes.grid(alpha=0.3)
            figure.axes[0].set_ylabel("lost by the choice, units")
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=2)
            figure.savefig(file, dpi=100)


def _losses(choices: Sequence[tuple[Floats, Floats]], rule: Rule | FoldRule) -> Floats:
    """[2, choice]: loss and trainings. choices: sums by row and seed, and the truth."""
    found = []
    for costs, truth in choices:
        row, spent = rule.choose(costs)
        found.append((truth[row] - truth.min(), spent))
    return np.array(found).T


class FoldRule(NamedTuple):
    """The race, which knows of each seed's fold: rows and folds add up, by least squares over the
    seeds that it has. A fold's mean over its rows would not do: later folds have only good rows."""

    race: Race

    def choose(self, costs: Floats) -> tuple[int, int]:
        with mock.patch.object(racing, "_likeliest", _likeliest_in_folds):
            return Rule(0, race=self.race).choose(costs)


def _likeliest_in_folds(
    counted: Mapping[str, Sequence[float]], asked: Mapping[str, int], until: float
) -> tuple[str | None, tuple[str, ...]]:
    """As the race's own, of seeds whose k-th is measured on fold k mod FOLDS."""
    rows = list(counted)
    known = _design([len(of) for of in counted.values()])
    planned = _design([len(of) + asked.get(row, 0) for row, of in counted.items()])
    values = np.concatenate([np.asarray(of) for of in counted.values()])
    effects = np.linalg.pinv(known) @ values
    freedom = len(values) - np.linalg.matrix_rank(known)
    variance = ((values - known @ effects) ** 2).sum() / freedom
    leader = int(effects[: len(rows)].argmin())
    beside = np.zeros((len(rows), planned.shape[1]))
    beside[:, : len(rows)] = np.eye(len(rows)) - np.eye(len(rows))[leader]
    spread = np.einsum("ij,jk,ik->i", beside, np.linalg.pinv(planned.T @ planned), beside)
    least = beside @ effects - racing.SURE * np.sqrt(variance * spread)
    rivals = [row for row in range(len(rows)) if row != leader and least[row] < -until]
    return rows[leader], tuple(rows[row] for row in sorted(rivals, key=lambda one: least[one]))


def _design(seeds: Sequence[int]) -> Floats:
    """[N, rows + FOLDS]: which row and which fold each seed is of, row by row."""
    row = np.repeat(np.arange(len(seeds)), seeds)
    fold = np.concatenate([np.arange(count) % FOLDS for count in seeds])
    return np.hstack([np.eye(len(seeds))[row], np.eye(FOLDS)[fold]])


def _centred(folds: Floats) -> Floats:
    """Less the mean of all rows and seeds of the same fold, which no study knows beforehand."""
    found = folds.copy()
    for part in range(FOLDS):
        found[:, part::FOLDS] -= found[:, part::FOLDS].mean()
    return found


def _folds(size: int, drawn: Mapping[str, Sequence[Draw]]) -> Iterator[str]:
    flat = [one for of in drawn.values() for one in of]
    single = [(one.single, one.beyond) for one in flat]
    folds = [(one.folds, one.beyond) for one in flat]
    centred = [(_centred(one.folds), one.beyond) for one in flat]
    pairs: dict[str, tuple[Rule | FoldRule, list[tuple[Floats, Floats]]]] = {
        name: (rule, folds) for name, rule in CHOICES.items()
    }
    pairs["race, each fold's mean taken off"] = (CHOICES["race"], centred)
    pairs["race, fold effects by least squares"] = (FoldRule(Race()), folds)
    for name, (rule, other) in pairs.items():
        alone = CHOICES["race"] if isinstance(rule, FoldRule) else rule
        one = _losses(single, alone).reshape(2, len(drawn), -1)
        many = _losses(other, rule).reshape(2, len(drawn), -1)
        cells = [f"{shown(of[0])} ({of[1].mean():.1f})" for of in (one, many)]
        less = many[0] - one[0]
        cells += [shown(of[None]) for of in less] + [shown(less)]
        yield f"| {size} | {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.racing_networks",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument("--draws", type=int, default=200, help="choices of each set and size")
    parser.add_argument("--form", choices=(RAW, TEMPERATURE), default=RAW)
    parser.add_argument("--figure", type=Path, help="where to draw losses by trainings")
    given = parser.parse_args()
    played = Played.of(given.draws, given.form)
    print(*played.table(), "", *played.folds_table(), sep="\n")
    if given.figure is not None:
        played.draw(given.figure)


if __name__ == "__main__":
    main()
