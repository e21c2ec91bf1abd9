"""The confirmed models beside the one to take: as good, better, worse or not told apart.

All on validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from study.answer.confirmation import Confirmation, Confirmed
from study.answer.phrases import label_of, listed, words_text
from study.schema.objective import plain_name
from study.store.study import Study
from study.uncertainty.bootstrap import resampled_names
from study.uncertainty.words import AS_GOOD, NOT_TOLD, level_of_each, overall, word_for
from trainables.metrics import describe

if TYPE_CHECKING:
    from study.uncertainty.methods import Methods


# Seeds of each row. Fewer do not tell their own spread well enough to say how many samples
# something needs: in simulated studies with three the number was .15 to .82 of what was needed
# (benchmarks/RESULTS.md).
FEWEST_SEEDS = 10


@dataclass(frozen=True)
class Compared:
    """A row beside the one to take. words: by objective. seeds: about how many of each would tell.

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
    """The difference in accuracy that samples and seeds can tell between two of the rows.

    half_width: of the median interval. needed: about how many samples would tell what matters;
    None where that is not known.
    """

    half_width: float
    matters: float
    needed: int | None

    def in_words(self, samples: int, seeds: int, rows: int, noun: str) -> str:
        """The sentence for so many of each. noun: what samples, or groups of them, are called."""
        text = (
            f"{samples:,} validation {noun} and {seeds} seeds show a difference in accuracy from"
            f" about {self.half_width:.2g} on, among {rows} models"
        )
        if self.half_width <= self.matters:
            return f"{text}."
        if self.needed is None:
            return f"{text}; {self.matters:g} matters."
        # To two digits: it is an estimate.
        step = 10 ** max(0, len(str(self.needed)) - 2)
        needed = round(self.needed / step) * step
        return f"{text}; to show the {self.matters:g} that matters takes about {needed:,} {noun}."


def served_and_resampled(study: Study) -> list[str]:
    """The objectives as served of which there are intervals."""
    names = resampled_names(study)
    return [one.metric for one in study.served if one.metric in names]


def methods_of(
    study: Study,
    confirmation: Confirmation,
    rows: Sequence[Confirmed],
    level: float,
    lost: dict[str, str],
) -> dict[str, Methods]:
    """The rows' networks on validation, by objective as served; none if one has a single seed.

    Intervals hold together for all pairs and objectives. lost: takes what is wrong with files that
    are missing or altered, by trial; a row that keeps a single network is absent.
    """
    from study.answer.networks import networks_on_validation
    from study.uncertainty.methods import compare_methods

    wanted = served_and_resampled(study)
    if not wanted or any(len(row.records) < 2 for row in rows):
        return {}
    every = networks_on_validation(confirmation.study, rows, lost)
    networks = {label: of for label, of in every.items() if len(of) > 1}
    if len(networks) < 2:
        return {}
    return compare_methods(networks, wanted, level=level_of_each(level, wanted))


def compared_with(
    study: Study, methods: dict[str, Methods], taken: str, others: Sequence[str]
) -> list[Compared]:
    """The other rows beside the one taken."""
    found = []
    for label in others:
        words = {}
        seeds: list[int | None] = []
        for metric, rows in methods.items():
            matters = study.matters[plain_name(metric)]
            words[metric] = word_for(rows.difference(label, taken), metric, matters)
            if words[metric] == NOT_TOLD:
                seeds.append(rows.seeds_to_tell(label, taken, matters))
        told = [each for each in seeds if each is not None]
        enough = max(told) if told and len(told) == len(seeds) else None
        found.append(Compared(label, words, enough))
    return found


def resolution_of(
    study: Study, methods: dict[str, Methods], samples: int, seeds: int
) -> Resolution | None:
    """The resolution of these samples and seeds; None where accuracy is no objective."""
    fraction = next((metric for metric in methods if describe(metric).kind == "fraction"), None)
    if fraction is None:
        return None
    matters = study.matters[plain_name(fraction)]
    half_width, share = methods[fraction].typical_reach()
    allowed = matters**2 - half_width**2 * (1 - share)  # by the samples, beside the seeds
    if seeds < FEWEST_SEEDS or allowed <= 0:
        return Resolution(half_width, matters, None)
    return Resolution(half_width, matters, round(samples * half_width**2 * share / allowed))


def group_text(word: str, found: Sequence[Compared], names: Mapping[str, str]) -> str:
    """`as good: a and b`; `worse: c (in ECE)`; where not told apart, the seeds that would tell."""
    if not found:
        return ""
    shown = [names[one.label] + _in_which(one, word) for one in found]
    if len(shown) > 8:
        shown[7:] = [f"{len(shown) - 7} more"]
    few = listed(shown)
    seeds = sorted(one.seeds for one in found if one.seeds is not None)
    if word != NOT_TOLD or not seeds:
        return f"{word}: {few}"
    some = "" if len(seeds) == len(found) else f" for {len(seeds)} of them"
    count = f"{seeds[0]}" if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]}"
    return f"{word}: {few} (about {count} seeds each would decide it{some})"


def _in_which(one: Compared, word: str) -> str:
    """` (in ECE)`: the objectives with this word; each with its word where it is both."""
    if word in (AS_GOOD, NOT_TOLD):
        return ""
    inside = [label_of(name) for name, each in one.words.items() if each == word]
    return f" (in {listed(inside)})" if inside else f" ({words_text(one.words)})"
