"""The confirmed models beside the one to take: as good, better, worse or undecided.

All on validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from study.answer.confirmation import Confirmation, Confirmed
from study.answer.phrases import label_of, listed, words_text
from study.schema.matters import SCORES, matters_in
from study.schema.objective import as_served, plain_name
from study.store.study import StudyFolder
from study.uncertainty.bootstrap import resampled_names
from study.uncertainty.words import AS_GOOD, UNDECIDED, level_of_each, overall, word_for
from trainables.metrics import describe

if TYPE_CHECKING:
    from study.uncertainty.methods import Methods


# Seeds of each row. Fewer do not tell their own spread well enough to say how many samples
# something needs: in simulated studies with three the number was .15 to .82 of what was needed
# (benchmarks/results/answer.md).
FEWEST_SEEDS = 10


@dataclass(frozen=True)
class Compared:
    """A row beside the one to take. words: by metric. seeds: about how many of each would tell.

    seeds is None where nothing is left to tell, or where more seeds would not: then more samples
    are needed.
    """

    label: str
    words: dict[str, str]
    seeds: int | None

    @property
    def overall(self) -> str:
        return overall(self.words)


@dataclass(frozen=True)
class Resolution:
    """The differences that samples and seeds can tell between two of the rows, by metric.

    half_widths: of the median intervals. matters: in these metrics. needed: about how many samples
    would tell what matters in the first fraction, such as accuracy; None where that is not known.
    """

    half_widths: dict[str, float]
    matters: dict[str, float]
    needed: int | None

    def in_words(self, samples: int, seeds: int, rows: int, noun: str) -> str:
        """The sentence for so many of each. noun: what samples, or groups of them, are called."""
        shown = listed([f"{one:.2g} in {label_of(name)}" for name, one in self.half_widths.items()])
        text = (
            f"{samples:,} validation {noun} and {seeds} seeds show a difference from about {shown}"
            f" on, among {rows} models"
        )
        hidden = {name: one for name, one in self.matters.items() if self.half_widths[name] > one}
        if not hidden:
            return f"{text}."
        fraction = _first_fraction(self.matters)
        if self.needed is None or fraction not in hidden:
            wanted = listed([f"{one:g} in {label_of(name)}" for name, one in hidden.items()])
            return f"{text}; {wanted} matter{'s' * (len(hidden) == 1)}."
        # To two digits: it is an estimate.
        step = 10 ** max(0, len(str(self.needed)) - 2)
        needed = f"{round(self.needed / step) * step:,} {noun}"
        matters = f"{hidden[fraction]:g} that matters in {label_of(fraction)}"
        return f"{text}; to show the {matters} takes about {needed}."


def _first_fraction(names: Iterable[str]) -> str | None:
    return next((name for name in names if describe(name).kind == "fraction"), None)


def compared_metrics(study: StudyFolder) -> dict[str, float]:
    """The metrics in which models are compared, as deployed, each with what matters in it.

    The objectives of which there are intervals, then NLL and Brier score.
    """
    names = resampled_names(study)
    served = [one.metric for one in study.served if one.metric in names]
    every = dict.fromkeys([*served, *(as_served(name, study.serves) for name in SCORES)])
    classes = len(study.recorded.classes)
    return {name: matters_in(name, study.matters, classes) for name in every}


def methods_of(
    study: StudyFolder,
    confirmation: Confirmation,
    rows: Sequence[Confirmed],
    level: float,
    lost: dict[str, str],
) -> dict[str, Methods]:
    """The rows' networks on validation, by metric compared; none if one has a single seed.

    Intervals hold together for all pairs and metrics. lost: takes what is wrong with files that
    are missing or altered, by trial; a row that keeps a single network is absent.
    """
    from study.answer.networks import networks_on_validation
    from study.uncertainty.methods import compare_methods

    if any(len(row.records) < 2 for row in rows):
        return {}
    every = networks_on_validation(confirmation.study, rows, lost)
    networks = {label: of for label, of in every.items() if len(of) > 1}
    if len(networks) < 2:
        return {}
    wanted = [*compared_metrics(study)]
    found = compare_methods(networks, wanted, level=level_of_each(level, wanted))
    return {name: found[name] for name in wanted if name in found}


def compared_with(
    study: StudyFolder, methods: dict[str, Methods], taken: str, others: Sequence[str]
) -> list[Compared]:
    """The other rows beside the one taken."""
    matters_of = compared_metrics(study)
    found = []
    for label in others:
        words = {}
        seeds: list[int | None] = []
        for metric, rows in methods.items():
            matters = matters_of[metric]
            words[metric] = word_for(rows.difference(label, taken), metric, matters)
            if words[metric] == UNDECIDED:
                seeds.append(rows.seeds_to_tell(label, taken, matters))
        told = [each for each in seeds if each is not None]
        enough = max(told) if told and len(told) == len(seeds) else None
        found.append(Compared(label, words, enough))
    return found


def resolution_of(
    study: StudyFolder, methods: dict[str, Methods], samples: int, seeds: int
) -> Resolution | None:
    """The resolution of these samples and seeds in the objectives and NLL.

    Wrong predictions that the samples lack make it worse; where these cost without bound, there is
    none. None where no metric is left.
    """
    shown = {"nll", *(plain_name(one.metric) for one in study.served)}
    reaches = {}
    for name, found in methods.items():
        missing = max(row.unseen for row in found.rows.values())
        if plain_name(name) in shown and math.isfinite(missing):
            half_width, share = found.typical_reach()
            reaches[name] = (half_width + missing, share)
    if not reaches:
        return None
    matters = {name: each for name, each in compared_metrics(study).items() if name in reaches}
    half_widths = {name: half_width for name, (half_width, _) in reaches.items()}
    fraction = _first_fraction(matters)
    if fraction is None or seeds < FEWEST_SEEDS:
        return Resolution(half_widths, matters, None)
    half_width, share = reaches[fraction]
    allowed = matters[fraction] ** 2 - half_width**2 * (1 - share)  # by the samples, beside seeds
    needed = round(samples * half_width**2 * share / allowed) if allowed > 0 else None
    return Resolution(half_widths, matters, needed)


def group_text(word: str, found: Sequence[Compared], names: Mapping[str, str]) -> str:
    """`as good: a and b`; `worse: c (in ECE)`; where undecided, the seeds that would decide it."""
    if not found:
        return ""
    shown = [names[one.label] + _in_which(one, word) for one in found]
    if len(shown) > 8:
        shown[7:] = [f"{len(shown) - 7} more"]
    few = listed(shown)
    seeds = sorted(one.seeds for one in found if one.seeds is not None)
    if word != UNDECIDED or not seeds:
        return f"{word}: {few}"
    some = "" if len(seeds) == len(found) else f" for {len(seeds)} of them"
    count = f"{seeds[0]}" if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]}"
    return f"{word}: {few} (about {count} seeds each would decide it{some})"


def _in_which(one: Compared, word: str) -> str:
    """` (in ECE)`: the metrics with this word; each with its word where it is both."""
    if word in (AS_GOOD, UNDECIDED):
        return ""
    inside = [label_of(name) for name, each in one.words.items() if each == word]
    if len(inside) == len(one.words):
        return " (in every metric)"
    return f" (in {listed(inside)})" if inside else f" ({words_text(one.words)})"
