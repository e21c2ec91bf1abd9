"""Tables of simulated studies: regrets of rules, words and their errors, directions
of a temperature, resolution."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from benchmarks.experiments.answer_world import rules
from benchmarks.experiments.answer_world.networks import RAW, TEMPERATURE
from benchmarks.experiments.answer_world.rules import (
    AS_GOOD,
    MAIN,
    MATTERS,
    RULES,
    SIGNS,
    UNDECIDED,
    Disagreement,
)
from benchmarks.experiments.answer_world.simulate import (
    LEVEL_OF_WORDS,
    SEEDS,
    SERVED,
    Plain,
    rows_of,
    taken,
    trials_of,
)
from benchmarks.experiments.answer_world.world import KINDS, Floats, Settings, Truth

Cells = Mapping[tuple[str, int], Sequence[Plain]]  # studies by kind and samples
NAMES = {RAW: "as trained", TEMPERATURE: "with a temperature"}
METRICS = ("accuracy", "ECE", "NLL")


def every(cells: Cells, truth: Truth) -> Iterator[str]:
    by_cell: dict[str, list[Outcome]] = {}
    for (kind, samples), studies in cells.items():
        for served in SERVED:
            yield f"\n## {kind}, {samples:,} samples, {NAMES[served]} ({len(studies):,} studies)\n"
            outcomes = by_cell[f"{kind} {samples:,} {served}"] = [
                of_study(study, served) for study in studies
            ]
            yield from _of_rules(outcomes)
            yield ""
            yield from _of_words(studies, served)
    yield "\n## All cells\n"
    yield from _pooled(by_cell)
    yield "\n## A temperature's direction\n"
    yield from _directions(cells)
    yield "\n## Resolution in accuracy, three seeds\n"
    yield from _resolution(cells, truth)


# ---- rules ---------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Of each rule before and after the confirmation: regrets in accuracy, ECE
    and NLL, [2, RULES, 3]."""

    regrets: Floats

    @property
    def within(self) -> Floats:
        """Whether within what matters of the best in each objective, [2, RULES]."""
        found: Floats = (
            (self.regrets[..., :2] <= np.array(MATTERS) + 1e-9).all(axis=2).astype(float)
        )
        return found


def of_study(study: Plain, served: str) -> Outcome:
    """Before: of trained networks. After: of settings, as means over seeds."""
    part, number = study[served], study["number"]
    before = {name: taken(trials_of(number, part), rule) for name, rule in RULES.items()}
    after = {}
    for name, rule in RULES.items():
        after[name] = taken(rows_of(number, part, before[name]), rule)
    truths = np.array(part["trials"]["truth"]), np.array(part["rows"]["truth"])
    both = zip(truths, (before, after), strict=True)
    return Outcome(
        np.array([[regret(truth, found[name]) for name in RULES] for truth, found in both])
    )


def regret(truth: Floats, row: int) -> Floats:
    """The distance from the best in accuracy, ECE and NLL among those that truly meet
    the constraint. [rows, 3]"""
    counted = truth[rules.meets(truth[:, 0])]
    best = np.array([counted[:, 0].max(), counted[:, 1].min(), counted[:, 2].min()])
    return np.array([-1.0, 1.0, 1.0]) * (truth[row] - best)


def interval(values: Floats) -> tuple[float, float]:
    """The mean, and half its 95% t interval; 0 for one value."""
    if len(values) < 2:
        return float(values.mean()), 0.0
    reach = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(reach)


def _figure(values: Floats, places: int) -> str:
    mean, reach = interval(values)
    return f"{mean:+.{places}f} ±{reach:.{places}f}" if reach else f"{mean:+.{places}f}"


REFERENCES = ("today", "knee", "sum")


def _of_rules(outcomes: Sequence[Outcome]) -> Iterator[str]:
    less = [f"within less {name}'s" for name in REFERENCES]
    moved = [f"{metric} less today's" for metric in METRICS]
    regrets, within = (
        np.array([getattr(one, what) for one in outcomes]) for what in ("regrets", "within")
    )
    names = list(RULES)
    for stage, title in enumerate(("before a confirmation", "after it")):
        columns = [
            f"rule, {title}",
            *(f"regret: {metric}" for metric in METRICS),
            "within",
            *less,
            *moved,
        ]
        yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
        for k, name in enumerate(names):
            cells = [f"{value:.4f}" for value in regrets[:, stage, k].mean(axis=0)]
            cells.append(f"{within[:, stage, k].mean():.3f}")
            others = [names.index(other) for other in REFERENCES]
            cells += [
                _figure(within[:, stage, k] - within[:, stage, other], 3) if k != other else ""
                for other in others
            ]
            differences = regrets[:, stage, k] - regrets[:, stage, others[0]]
            cells += [_figure(each, 4) if k != others[0] else "" for each in differences.T]
            yield f"| {name} | {' | '.join(cells)} |"
        yield ""


def _pooled(by_cell: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Means over the cells of each study number, so that cells that share a number are
    not taken as independent.

    In brackets the cell with the least share; and of regrets, the largest mean difference
    from today's in any cell.
    Then the share within what matters in each cell.
    """
    names, today = list(RULES), list(RULES).index("today")
    count = min(len(outcomes) for outcomes in by_cell.values())
    within = [np.array([one.within for one in outcomes]) for outcomes in by_cell.values()]
    regrets = [np.mean([one.regrets for one in outcomes], axis=0) for outcomes in by_cell.values()]
    mean = np.mean([found[:count] for found in within], axis=0)  # [studies, 2, RULES]
    more = np.max([found - found[:, [today]] for found in regrets], axis=0)  # [2, RULES, METRICS]
    columns = [
        "within (least cell)",
        *(f"within less {other}'s (least cell)" for other in REFERENCES),
    ]
    columns += [f"most {metric} regret above today's" for metric in METRICS]
    for stage, title in enumerate(("before a confirmation", "after it")):
        yield f"| rule, {title} | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}"
        for k, name in enumerate(names):
            least = min(found[:, stage, k].mean() for found in within)
            found = [f"{mean[:, stage, k].mean():.3f} ({least:.3f})"]
            for other in (names.index(reference) for reference in REFERENCES):
                difference = mean[:, stage, k] - mean[:, stage, other]
                least = min((each[:, stage, k] - each[:, stage, other]).mean() for each in within)
                found.append("" if other == k else f"{_figure(difference, 3)} ({least:+.3f})")
            found += [f"{value:+.4f}" for value in more[stage, k]]
            yield f"| {name} | {' | '.join(found)} |"
        yield ""
    for stage, title in enumerate(("before a confirmation", "after it")):
        yield f"| within, {title} | {' | '.join(by_cell)} |\n|{'---|' * (1 + len(by_cell))}"
        for k, name in enumerate(names):
            yield (
                f"| {name} | {' | '.join(f'{found[:, stage, k].mean():.3f}' for found in within)} |"
            )
        yield ""


# ---- words ---------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """The chosen row and another: intervals of the differences by objective, and
    the true differences."""

    ends: list[tuple[float, float]]
    truth: Floats

    def words(self) -> list[str]:
        each = zip(self.ends, MATTERS, SIGNS, strict=True)
        return [rules.word(low, high, matters, sign) for (low, high), matters, sign in each]

    def former_words(self) -> list[str]:
        """Those of intervals that contain 0 or do not."""
        return [
            rules.word(low, high, 0.0, sign)
            for (low, high), sign in zip(self.ends, SIGNS, strict=True)
        ]

    def wrong(self, words: Sequence[str]) -> list[bool]:
        each = zip(words, self.truth, MATTERS, SIGNS, strict=True)
        return [rules.is_wrong(*one) for one in each]

    @property
    def truly_as_good(self) -> bool:
        return bool((np.abs(self.truth) <= MATTERS).all())


def pairs_of(part: Plain, name: str) -> list[Pair]:
    """The row that the rule took, against every other confirmed one."""
    found, truth = part["said"][name], np.array(part["rows"]["truth"])[:, :2]
    return [Pair(ends, truth[found["chosen"]] - truth[other]) for other, *ends in found["others"]]


class Said(NamedTuple):
    """The words of one study: of each pair and objective, and which of them are wrong."""

    words: list[list[str]]
    wrong: list[list[bool]]
    alike: list[bool]  # the pairs said to be as good, or not to differ, in every objective
    falsely: list[bool]  # those that truly differ by more than what matters

    @classmethod
    def of(cls, pairs: Sequence[Pair], former: bool) -> Said:
        words = [pair.former_words() if former else pair.words() for pair in pairs]
        alike = [set(one) == {UNDECIDED if former else AS_GOOD} for one in words]
        falsely = [said and not pair.truly_as_good for said, pair in zip(alike, pairs, strict=True)]
        return cls(
            words, [pair.wrong(one) for pair, one in zip(pairs, words, strict=True)], alike, falsely
        )

    def has_wrong_side(self) -> bool:
        """Whether a better or worse is wrong."""
        each = zip(itertools.chain(*self.words), itertools.chain(*self.wrong), strict=True)
        return any(wrong and word != AS_GOOD for word, wrong in each)


def _of_words(studies: Sequence[Plain], served: str) -> Iterator[str]:
    """Shares of words in one objective; of pairs that are as good in all; of studies in which
    one of them is wrong."""
    columns = [
        "words",
        "other rows",
        "better or worse",
        "as good",
        "undecided",
        "pairs as good in all",
    ]
    columns += ["studies with a wrong better or worse", "with a wrong as good"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    titles = {MAIN: "the four words", "today": "today's, `do not differ` taken for as good"}
    for name, title in titles.items():
        said = [Said.of(pairs_of(study[served], name), name == "today") for study in studies]
        count = Counter(itertools.chain.from_iterable(word for one in said for word in one.words))
        whole = sum(count.values())
        shares = [count[rules.BETTER] + count[rules.WORSE], count[AS_GOOD], count[UNDECIDED]]
        found = [
            f"{whole / len(MATTERS) / len(studies):.1f}",
            *(f"{share / whole:.3f}" for share in shares),
        ]
        found.append(f"{np.mean([alike for one in said for alike in one.alike]):.3f}")
        found.append(f"{np.mean([one.has_wrong_side() for one in said]):.3f}")
        found.append(f"{np.mean([any(one.falsely) for one in said]):.3f}")
        yield f"| {title} | {' | '.join(found)} |"


# ---- temperature ---------------------------------------------------------------------------------

LARGE = 0.05  # of a true difference in NLL


def _directions(cells: Cells) -> Iterator[str]:
    """Directions said, where the interval excludes 0; then over all cells."""
    columns = [
        "kind",
        "samples",
        "chosen as deployed",
        "of",
        "metric",
        "said",
        "wrong of those said",
        "wrong of studies",
    ]
    columns += [
        "wrong, sign of the estimate",
        "studies with a large true NLL difference",
        "said in these",
    ]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    ways = list(itertools.product(("trial", "exported", "row"), ("nll", "ece")))
    every: dict[tuple[str, ...], list[Direction]] = {}
    for (kind, samples), studies in cells.items():
        for served, (of, metric) in itertools.product(SERVED, ways):
            found = [
                Direction.of(study[served]["said"][MAIN]["temperature"][of], metric)
                for study in studies
            ]
            every.setdefault((of, metric), []).extend(found)
            every.setdefault((f"{samples:,}", of, metric), []).extend(found)
            yield (
                f"| {kind} | {samples:,} | {NAMES[served]} | {of} | {metric.upper()} |"
                f" {_shares(found)} |"
            )
    for samples, (of, metric) in itertools.product(("500", "2,000", ""), ways):
        if found := every.get((samples, of, metric) if samples else (of, metric), []):
            yield (
                f"| all | {samples or 'all'} | both | {of} | {metric.upper()} | {_shares(found)} |"
            )


class Direction(NamedTuple):
    said: bool
    wrong: bool  # the sign of the estimate
    large: bool

    @classmethod
    def of(cls, moved: Plain, metric: str) -> Direction:
        estimate, low, high, truth = moved[metric]
        return cls(
            low > 0 or high < 0,
            bool(np.sign(estimate) != np.sign(truth)),
            abs(moved["nll"][3]) > LARGE,
        )


def _shares(found: Sequence[Direction]) -> str:
    said, wrong, large = np.array(found, bool).T
    both = said & wrong
    shares = [said.mean(), both.sum() / max(1, said.sum()), both.mean(), wrong.mean()]
    texts = [*(f"{share:.3f}" for share in shares), f"{large.sum():,}"]
    return " | ".join([*texts, f"{said[large].mean():.3f}" if large.any() else "-"])


# ---- resolution ----------------------------------------------------------------------------------

SOURCES = ("its rows", "its rows and a pool's spread of seeds", "its trials and a pool's parts")


def _resolution(cells: Cells, truth: Truth) -> Iterator[str]:
    """Half-widths said, relative to the median of those that the words had."""
    columns = [
        "kind",
        "samples",
        "disagreement of trials",
        "of rows",
        "of seeds",
        "spread of seeds",
        "half-width",
    ]
    columns += [f"said from {where}, of that (10% to 90%); within a third" for where in SOURCES]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for (kind, samples), studies in cells.items():
        known = np.array([study[RAW]["disagreement"] for study in studies])
        spread = float(np.mean([_spread(kind, study, truth) for study in studies[:50]]))
        # Of a pool: relative to the disagreement of trials.
        part = known[:, 1:].mean(axis=0) / known[:, 0].mean()
        ratios = []
        for study, (trials, between, within) in zip(studies, known, strict=True):
            others = study[RAW]["said"][MAIN]["others"]
            actual = np.median([(high - low) / 2 for _, (low, high), _ in others])
            sources = [
                (between, within, 0.0),
                (between, within, spread),
                (*(part * trials), spread),
            ]
            said = [
                Disagreement(*one).reach(samples, SEEDS, len(others) + 1, LEVEL_OF_WORDS)
                for one in sources
            ]
            ratios.append([actual, *(np.array(said) / actual)])
        found = [f"{value:.3f}" for value in known.mean(axis=0)]
        found += [f"{spread:.4f}", f"{np.median(ratios, axis=0)[0]:.4f}"]
        for each in np.array(ratios).T[1:]:
            low, middle, high = np.quantile(each, [0.1, 0.5, 0.9])
            found.append(
                f"{middle:.2f} ({low:.2f} to {high:.2f});"
                f" {np.mean((each > 2 / 3) & (each < 4 / 3)):.2f}"
            )
        yield f"| {kind} | {samples:,} | {' | '.join(found)} |"


def _spread(kind: str, study: Plain, truth: Truth) -> float:
    """The standard deviation of the true accuracy between seeds, of a study's confirmed rows:
    a pool has to tell it."""
    settings = Settings.drawn(KINDS[kind], study["number"], truth)
    return float(np.median(truth.spread_of_seeds(settings.noise[study[RAW]["rows"]["base"]])))
