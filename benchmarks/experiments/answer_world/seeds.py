"""From how many seeds on a row is as good as another; and whether so many images do
resolve what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.experiments.answer_world import rules
from benchmarks.experiments.answer_world.networks import RAW, TEMPERATURE, Networks
from benchmarks.experiments.answer_world.rules import (
    AS_GOOD,
    MAIN,
    MATTERS,
    RULES,
    SIGNS,
    Disagreement,
)
from benchmarks.experiments.answer_world.runs import simulated
from benchmarks.experiments.answer_world.simulate import (
    LEVEL_OF_WORDS,
    OBJECTIVES,
    SEEDS,
    SERVED,
    Plain,
    candidates,
    confirmed_by_all,
    counts,
    digits,
    disagreement_of_rows,
    pairs,
    taken,
    truth_in,
)
from benchmarks.experiments.answer_world.world import KINDS, Floats, Settings, Split
from study.uncertainty.methods import Seeds

SWEEP = (3, 5, 10, 20, 40)
SAMPLES = (500, 2000, 10_000)
KIND = "close"
MOST = 20_000  # samples that are simulated to see what they resolve


class Fixed:
    """The confirmed rows of a study: as after a search with that many samples."""

    def __init__(self, kind: str, samples: int, number: int, truth_file: Path) -> None:
        self.truth = truth_in(truth_file)
        self.settings = Settings.drawn(KINDS[kind], number, self.truth)
        self.split = Split(self.settings, samples)
        trials = Networks(
            self.split.logits([(one, 0) for one in range(len(self.settings))]),
            self.split.labels,
            counts(samples),
        )
        values = trials.as_trained[..., 0]
        seen = candidates(list(range(len(values))), values, np.zeros((len(values), 2)), -1, number)
        self.rows = sorted(confirmed_by_all(seen, seen))

    def measured(self, split: Split, seeds: int, served: str) -> Floats:
        """[rows, seeds, METRICS, 1 + B]"""
        found = []
        for row in self.rows:
            logits = split.logits([(row, seed) for seed in range(1, seeds + 1)])
            found.append(Networks(logits, split.labels, counts(split.samples)).metrics(served))
        return np.stack(found)

    def words(self, values: Floats, seeds: int, number: int) -> list[list[object]]:
        """Intervals of the row that the rule takes against each other row."""
        some = values[:, :seeds]
        mean = some[..., 0].mean(axis=1)
        chosen = taken(
            candidates(self.rows, mean, np.zeros((len(mean), 2)), -1, number), RULES[MAIN]
        )
        of = [
            {
                str(row): Seeds(some[at, :, k, 0], some[at, :, k, 1:])
                for at, row in enumerate(self.rows)
            }
            for k in range(len(OBJECTIVES))
        ]
        return [[chosen, *one] for one in pairs(of, chosen, LEVEL_OF_WORDS)]


def swept(kind: str, samples: int, number: int, truth_file: Path) -> Plain:
    """Of each number of seeds, the intervals against the chosen row and the true differences."""
    fixed = Fixed(kind, samples, number, truth_file)
    found: Plain = {"number": number}
    for served in SERVED:
        values = fixed.measured(fixed.split, max(SWEEP), served)
        truth = fixed.truth.of_settings(
            fixed.settings.noise, fixed.settings.scale, served == TEMPERATURE
        )[:, :2]
        by_seeds = {seeds: fixed.words(values, seeds, number) for seeds in SWEEP}
        found[served] = {
            str(seeds): [
                [*ends, digits(truth[chosen] - truth[other])] for chosen, other, *ends in words
            ]
            for seeds, words in by_seeds.items()
        }
    return found


def resolved(kind: str, samples: int, number: int, truth_file: Path) -> Plain:
    """By number of seeds: how many images are said to resolve what matters in accuracy, and
    what they do resolve."""
    fixed = Fixed(kind, samples, number, truth_file)
    fresh = [(row, seed) for row in fixed.rows for seed in range(1, SEEDS + 1)]
    hits = Networks(fixed.split.logits(fresh), fixed.split.labels, counts(samples)).raw.hits
    between, within = disagreement_of_rows(hits.reshape(len(fixed.rows), SEEDS, -1))
    # A pool has to tell it.
    spread = np.median(fixed.truth.spread_of_seeds(fixed.settings.noise[fixed.rows]))
    known = Disagreement(between, within, float(spread))
    found: Plain = {"number": number}
    for seeds in (3, 10, 20):
        images = known.samples_for(MATTERS[0], seeds, len(fixed.rows), LEVEL_OF_WORDS)
        split = Split(fixed.settings, int(min(images, MOST)))
        words = fixed.words(fixed.measured(split, seeds, RAW), seeds, number)
        halves = [(ends[1] - ends[0]) / 2 for _, _, ends, _ in words]  # type: ignore[index]
        found[str(seeds)] = [digits(min(images, 1e9)), digits(np.median(halves)), len(fixed.rows)]
    return found


# ---- tables --------------------------------------------------------------------------------------


def report(directory: Path, studies: int, processes: int) -> Iterator[str]:
    yield f"\n## Seeds: how often a row is as good as the chosen one ({KIND}, {studies} studies)\n"
    cells = [(KIND, samples) for samples in SAMPLES]
    yield from _of_seeds(simulated(swept, cells, directory, "seeds_", studies, processes, 2))
    yield f"\n## Images said to resolve {MATTERS[0]:g} in accuracy ({studies} studies)\n"
    cells = [(kind, 500) for kind in KINDS]
    yield from _of_images(simulated(resolved, cells, directory, "images_", studies, processes, 2))


def _of_seeds(cells: dict[tuple[str, int], list[Plain]]) -> Iterator[str]:
    columns = [
        "samples",
        "served",
        "seeds",
        "as good in accuracy",
        "in ECE",
        "in both",
        "better or worse in one",
    ]
    columns += ["truly as good", "studies with a wrong as good", "with a wrong better or worse"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for (_, samples), studies in cells.items():
        for served in SERVED:
            for seeds in SWEEP:
                found = [of_words(study[served][str(seeds)]) for study in studies]
                said = np.concatenate([words for words, _, _ in found])
                truth = np.concatenate([np.abs(truth) <= MATTERS for _, truth, _ in found])
                good, sided = said == AS_GOOD, (said == rules.BETTER) | (said == rules.WORSE)
                shares = [
                    *good.mean(axis=0),
                    good.all(axis=1).mean(),
                    sided.any(axis=1).mean(),
                    truth.all(axis=1).mean(),
                ]
                wrong_good = [(wrong & (words == AS_GOOD)).any() for words, _, wrong in found]
                wrong_sided = [(wrong & (words != AS_GOOD)).any() for words, _, wrong in found]
                shares += [np.mean(wrong_good), np.mean(wrong_sided)]
                yield (
                    f"| {samples:,} | {served} | {seeds} |"
                    f" {' | '.join(f'{share:.3f}' for share in shares)} |"
                )


def of_words(
    pairs_: Sequence[Sequence[Sequence[float]]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words, true differences and whether the word is wrong, [pairs, OBJECTIVES] each."""
    each = list(zip(MATTERS, SIGNS, strict=True))
    words = [[rules.word(*ends[k], *each[k]) for k in range(len(each))] for *ends, _ in pairs_]
    wrong = [
        [rules.is_wrong(one, pair[-1][k], *each[k]) for k, one in enumerate(said)]
        for said, pair in zip(words, pairs_, strict=True)
    ]
    return np.array(words), np.array([pair[-1] for pair in pairs_]), np.array(wrong)


def _of_images(cells: dict[tuple[str, int], list[Plain]]) -> Iterator[str]:
    columns = [
        "kind",
        "seeds",
        "rows",
        "said: no number of images",
        "images said, median",
        "half-width with them",
    ]
    columns += ["images said, of those needed (10% to 90%)", "within a third"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for (kind, _), studies in cells.items():
        for seeds in ("3", "10", "20"):
            images, half, rows = np.array([study[seeds] for study in studies]).T
            some = images <= MOST
            count = np.median(images)
            found = [
                f"{rows.mean():.1f}",
                f"{np.mean(images >= 1e9):.2f}",
                f"{count:,.0f}" if count < 1e9 else "-",
            ]
            if some.any():
                # Half-widths fall with the root of the number, nearly: so many more or fewer
                # would have been right.
                ratio = (MATTERS[0] / half[some]) ** 2
                low, middle, high = np.quantile(ratio, [0.1, 0.5, 0.9])
                found += [f"{np.median(half[some]):.4f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
                found.append(f"{np.mean((ratio > 2 / 3) & (ratio < 4 / 3)):.2f}")
            else:
                found += [f"{np.median(half):.4f} ({MOST:,})", "-", "-"]
            yield f"| {kind} | {seeds} | {' | '.join(found)} |"
