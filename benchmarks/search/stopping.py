"""Rules of early stopping, replayed on recorded trainings.

All trials of a set last equally long, so trials that only ever stop reach a rung in the order in
which they began, with any number of slots: a replay takes them one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.curves import METRICS, Training, spec_of
from study.analysis.prediction import kept_between
from study.analysis.rungs import RungEntry, goes_on

TRIALS = 24  # of a method
CLASSES = 10  # of every set
UNSTOPPED = "cross_entropy"


@dataclass(frozen=True)
class Trial:
    """A training as a replayed study has it. rows: METRICS by epoch; epochs: of a whole
    training."""

    method: str
    protected: bool
    rows: list[list[float]]
    epochs: int

    def costs(self, epoch: int, by: Sequence[str]) -> tuple[float, ...]:
        row = dict(zip(METRICS, self.rows[epoch - 1], strict=True))
        return tuple(1 - row[name] if name == "accuracy" else row[name] for name in by)

    @property
    def has_result(self) -> bool:
        """It did not diverge, and is better than chance by three standard
        deviations of 1,000 samples."""
        chance = 1 / CLASSES
        least = chance + 3 * math.sqrt(chance * (1 - chance) / 1000)
        return len(self.rows) == self.epochs and self.rows[-1][0] > least

    @property
    def result(self) -> tuple[float, float]:
        """(error, ECE)."""
        error, ece = self.costs(self.epochs, ("accuracy", "ece"))
        return error, ece


# Of one method's trials in the order they began, the epochs that each trains.
Rule = Callable[[Sequence[Trial]], list[int]]


def rung(by: Sequence[str], at: float, keep: float, protects: bool = True) -> Rule:
    """The product's rule. at: a fraction of the epochs, rounded."""

    def trained(trials: Sequence[Trial]) -> list[int]:
        entries: list[RungEntry] = []
        spent = []
        for number, trial in enumerate(trials):
            epoch = round(at * trial.epochs)
            spent.append(len(trial.rows))
            if len(trial.rows) < epoch:  # it diverged before
                continue
            entry = RungEntry(len(entries), number, trial.costs(epoch, by))
            if not (protects and trial.protected) and not goes_on(entry, entries, keep):
                spent[-1] = epoch
            entries.append(entry)
        return spent

    return trained


def rungs(by: Sequence[str], fractions: Sequence[float], keep: float) -> Rule:
    """Several rungs, one after the other."""

    def trained(trials: Sequence[Trial]) -> list[int]:
        spent = [len(trial.rows) for trial in trials]
        left = list(range(len(trials)))
        for at in fractions:
            found = rung(by, at, keep)([trials[place] for place in left])
            for place, epochs in zip(left, found, strict=True):
                spent[place] = epochs
            left = [place for place in left if spent[place] == len(trials[place].rows)]
        return spent

    return trained


def everything(trials: Sequence[Trial]) -> list[int]:
    return [len(trial.rows) for trial in trials]


@dataclass(frozen=True)
class Outcome:
    """As shares of the study without stopping. `of_methods`: of each method's own front,
    mean over the methods."""

    epochs: float
    hypervolume: float
    front: float
    hypervolume_of_methods: float
    front_of_methods: float


def volume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Area between points and the reference; smaller is better."""
    area, lowest = 0.0, reference[1]
    for first, second in sorted(points):
        if first < reference[0] and second < lowest:
            area += (reference[0] - first) * (lowest - second)
            lowest = second
    return area


def front(points: Sequence[tuple[float, float]]) -> set[tuple[float, float]]:
    kept: set[tuple[float, float]] = set()
    lowest = math.inf
    for point in sorted(points):
        if point[1] < lowest:
            kept.add(point)
            lowest = point[1]
    return kept


def outcome(study: Mapping[str, Sequence[Trial]], spent: Mapping[str, Sequence[int]]) -> Outcome:
    """The reference point is the worst of the methods' defaults, as the product's."""
    trials = [
        (trial, count)
        for label in study
        for trial, count in zip(study[label], spent[label], strict=True)
    ]
    defaults = [
        trial.result
        for trial, _ in trials
        if trial.protected and trial.method != UNSTOPPED and trial.has_result
    ]
    reference = max(error for error, _ in defaults), max(ece for _, ece in defaults)
    of_study = _kept(trials, reference)
    of_methods = [
        _kept([each for each in trials if each[0].method == label], reference) for label in study
    ]
    volumes, fronts = (
        [share for share in shares if share is not None] for shares in zip(*of_methods, strict=True)
    )
    return Outcome(
        sum(count for _, count in trials) / sum(len(trial.rows) for trial, _ in trials),
        of_study[0] or 0.0,
        of_study[1] or 0.0,
        float(np.mean(volumes)),
        float(np.mean(fronts)),
    )


def _kept(
    trials: Sequence[tuple[Trial, int]], reference: tuple[float, float]
) -> tuple[float | None, float | None]:
    """The shares of the trials' hypervolume and front that those trained to their end
    keep; None: of nothing."""
    found = [(trial.result, count == trial.epochs) for trial, count in trials if trial.has_result]
    of_all, kept = [point for point, _ in found], [point for point, whole in found if whole]
    every, best = volume(of_all, reference), front(of_all)
    return volume(kept, reference) / every if every else None, (
        len(best & set(kept)) / len(best) if best else None
    )


def fewer(study: Mapping[str, Sequence[Trial]], share: float) -> dict[str, list[int]]:
    """Of each method only its first trials, for that share of all epochs: the methods take
    turns, as in a study."""
    budget = share * sum(len(trial.rows) for trials in study.values() for trial in trials)
    spent = {label: [0] * len(trials) for label, trials in study.items()}
    for number in range(max(map(len, study.values()))):
        for label, trials in study.items():
            if number < len(trials) and budget >= len(trials[number].rows) / 2:
                budget -= len(trials[number].rows)
                spent[label][number] = len(trials[number].rows)
    return spent


def drawn(
    trainings: Sequence[Training], source: np.random.Generator, count: int = TRIALS
) -> dict[str, list[Trial]]:
    """A study by method: its defaults, then other settings in random order,
    each by one of its seeds."""
    spec = spec_of(trainings[0].set, trainings[0].schedule)
    study = {}
    for variant in spec.variants:
        by_setting: dict[int, list[Training]] = {}
        for one in trainings:
            if one.method == variant.label:
                by_setting.setdefault(one.setting, []).append(one)
        first = len(variant.space.defaults)
        others = source.permutation(
            [number for number in sorted(by_setting) if number >= first]
        ).tolist()
        chosen = [*range(first), *others][:count]
        study[variant.label] = [
            Trial(
                variant.label,
                number < first or variant.label == UNSTOPPED,
                by_setting[number][source.integers(len(by_setting[number]))].rows,
                spec.epochs,
            )
            for number in chosen
        ]
    return study


OURS = "Brier + ECE, 1/2 at .4"


def rules() -> dict[str, Rule]:
    found: dict[str, Rule] = {
        "ASHA on accuracy, 1/3 at .4": rung(["accuracy"], 0.4, 1 / 3, protects=False)
    }
    for name, by in (
        ("accuracy", ["accuracy"]),
        ("NLL", ["nll"]),
        ("ECE", ["ece"]),
        ("accuracy + ECE", ["accuracy", "ece"]),
    ):
        found[f"{name}, 1/2 at .4"] = rung(by, 0.4, 0.5)
    for at, keeps in (
        (0.2, ("1/2", "2/3")),
        (0.33, ("1/3", "1/2", "2/3")),
        (0.4, ("1/3", "1/2", "2/3")),
        (0.5, ("1/3", "1/2")),
        (0.58, ("1/3",)),
        (0.6, ("1/4", "1/3", "1/2")),
    ):
        for keep in keeps:
            above, below = map(int, keep.split("/"))
            found[f"Brier + ECE, {keep} at {at:.2g}".replace("0.", ".")] = rung(
                ["brier", "ece"], at, above / below
            )
    found["Brier + ECE, 1/3 at 1/9 and 1/3"] = rungs(["brier", "ece"], (1 / 9, 1 / 3), 1 / 3)
    return found


def replay(
    trainings: Sequence[Training], chosen: Mapping[str, Rule], repeats: int
) -> dict[str, list[Outcome]]:
    """Outcomes by rule; the repeats are paired. Before each comes, as a baseline, fewer
    trials for its epochs."""
    found: dict[str, list[Outcome]] = {}
    for repeat in range(repeats):
        study = drawn(trainings, np.random.default_rng(repeat))
        for name, rule in chosen.items():
            spent = {label: rule(trials) for label, trials in study.items()}
            found.setdefault(name, []).append(result := outcome(study, spent))
            found.setdefault(f"fewer than {name}", []).append(
                outcome(study, fewer(study, result.epochs))
            )
    return found


def epochs_left(
    study: Mapping[str, Sequence[Trial]], spent: Mapping[str, Sequence[int]], at: float, keep: float
) -> tuple[float, float, float]:
    """The share of a study's epochs that a rule left, and what `plan --probe` expects
    at least and at most."""
    least = most = 0.0
    for trials in study.values():
        epochs = trials[0].epochs
        rest = epochs - max(1, round(at * epochs))
        kept = kept_between(sum(trial.protected for trial in trials), len(trials), keep)
        least, most = (so_far + rest * of for so_far, of in zip((least, most), kept, strict=True))
        least, most = (so_far + (epochs - rest) * len(trials) for so_far in (least, most))
    whole = sum(trial.epochs for trials in study.values() for trial in trials)
    return sum(map(sum, spent.values())) / whole, least / whole, most / whole


def ranking(trainings: Sequence[Training], at: float) -> dict[str, float]:
    """Spearman's correlation of each metric at a fraction of training with the final
    ECE, mean over methods."""
    from scipy.stats import spearmanr

    spec = spec_of(trainings[0].set, trainings[0].schedule)
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for variant in spec.variants:
        trials = [
            Trial(one.method, False, one.rows, spec.epochs)
            for one in trainings
            if one.method == variant.label
        ]
        trials = [trial for trial in trials if trial.has_result]
        for name in METRICS:
            early = [trial.costs(round(at * trial.epochs), [name])[0] for trial in trials]
            found[name].append(
                float(spearmanr(early, [trial.result[1] for trial in trials]).statistic)
            )
    return {name: float(np.mean(values)) for name, values in found.items()}


def interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean and 95% interval by Student's t."""
    from scipy.stats import t

    mean, half = (
        float(np.mean(values)),
        float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5),
    )
    return mean, mean - half, mean + half


def table(found: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """The target is at most .78 of the epochs, .99 of the hypervolume and .9
    of the front, of the study's."""
    yield (
        "| rule | epochs | hypervolume | front | over fewer trials | of methods: hypervolume, front"
        " | target |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, outcomes in found.items():
        if name.startswith("fewer than "):
            continue
        of = {key.name: [getattr(one, key.name) for one in outcomes] for key in fields(Outcome)}
        fewer_trials = [one.hypervolume for one in found[f"fewer than {name}"]]
        epochs, volume_kept, front_kept, *of_methods = (interval(values) for values in of.values())
        gain = interval(
            [one - other for one, other in zip(of["hypervolume"], fewer_trials, strict=True)]
        )
        met = epochs[0] <= 0.78 and volume_kept[0] >= 0.99 and front_kept[0] >= 0.9
        cells = [
            f"{mean:.3f} ({low:.3f}, {high:.3f})" for mean, low, high in (volume_kept, front_kept)
        ]
        cells += [
            f"{gain[0]:+.3f} ({gain[1]:+.3f}, {gain[2]:+.3f})",
            ", ".join(f"{one[0]:.3f}" for one in of_methods),
        ]
        yield f"| {name} | {epochs[0]:.2f} | {' | '.join(cells)} | {'met' if met else 'missed'} |"
    ours = found[f"fewer than {OURS}"]
    means = [float(np.mean([getattr(one, key.name) for one in ours])) for key in fields(Outcome)]
    yield (
        f"| fewer trials, for the epochs of {OURS} | {means[0]:.2f} | {means[1]:.3f} |"
        f" {means[2]:.3f} | | {means[3]:.3f}, {means[4]:.3f} | |"
    )
