"""`plan` warns of what a study may have but that does not do what its user wants: objectives that
do not say it, trials that search nothing."""

from __future__ import annotations

from collections.abc import Iterator

from study.schema.objective import TEMPERATURE, plain_name, served_by_default
from study.schema.reproduced import REPRODUCED
from study.schema.spec import StudySpec
from trainables.metrics import describe

# Rank correlation of trials between two halves of a validation split below which
# an objective is warned of.
LEAST = 0.5


def advice(spec: StudySpec) -> Iterator[str]:
    """One sentence for each problem, with its mend."""
    yield from _of_guessing(spec)
    for objective in spec.objectives:
        yield from _of_ranking(objective.metric)
    yield from _of_what_a_temperature_removes(spec)
    yield from _of_a_free_scale(spec)
    yield from _of_no_search(spec)


def _of_no_search(spec: StudySpec) -> Iterator[str]:
    """Methods whose trials are all settings tried first."""
    by_count: dict[int, list[str]] = {}
    for variant in spec.variants:
        first = len(variant.space.first)
        if variant.space.distributions and spec.trials <= first:
            by_count.setdefault(first, []).append(variant.label)
    for first, labels in by_count.items():
        count = f"{spec.trials} trial{'s' * (spec.trials > 1)}"
        yield (
            f"nothing is searched in {', '.join(labels)}: the {count} are settings tried first"
            f" ({first}). Write trials: {first + 1} or more."
        )


def _of_guessing(spec: StudySpec) -> Iterator[str]:
    """A calibration error is 0 for a model that knows how often it is right, however seldom."""
    named = [one.metric for one in spec.objectives]
    errors = [name for name in named if describe(name).kind == "calibration"]
    bounds = [one.metric for one in spec.constraints]
    if errors and not any(rewards_accuracy(name) for name in (*named, *bounds)):
        which = " and ".join(errors)
        yield (
            f"a model that knows hardly more than the class frequencies can have {which} 0, and"
            " no other objective prevents it. Add {metric: accuracy, direction: maximize} to"
            " objectives, or a bound such as accuracy >= 0.9 to constraints."
        )


def rewards_accuracy(metric: str) -> bool:
    """A model that guesses has a poor value: fractions of right predictions, proper scores,
    overlaps."""
    names = ("accuracy", "error", "top5_accuracy", "nll", "brier", "brier_refinement")
    return plain_name(metric) in names or describe(metric).kind == "overlap"


def _of_ranking(metric: str) -> Iterator[str]:
    # Metrics of one's own are not in the table.
    value = REPRODUCED.get(metric, 1.0)
    if value < LEAST:
        better = metric.removesuffix(plain_name(metric)) + "nll"
        yield (
            f"{metric} ranks trials poorly: on two halves of a validation split its ranks correlate"
            f" by {value:.2f}, on average of three data sets"
            f" (benchmarks/experiments/results/pools.md). {better} has {REPRODUCED[better]:.2f}:"
            f" optimize that, alone or as well, and read {metric} in the tables."
        )


def _of_what_a_temperature_removes(spec: StudySpec) -> Iterator[str]:
    serves = spec.serve or served_by_default(spec.objectives)
    for objective in spec.objectives:
        score = describe(objective.metric).removed_of
        if score and serves == TEMPERATURE:
            yield (
                f"{objective.metric} is what the temperature removes that `serve: temperature`"
                f" gives the registered model. Write serve: raw, or optimize ts_{score}."
            )


def _of_a_free_scale(spec: StudySpec) -> Iterator[str]:
    """Methods whose loss leaves the scale of the logits free, where a raw model may be served."""
    if (spec.serve or served_by_default(spec.objectives)) == TEMPERATURE:
        return
    for variant in spec.variants:
        if not variant.method.fixes_scale:
            yield (
                f"nothing fixes the scale of {variant.label}'s logits: its calibration as trained"
                " means nothing. Write serve: temperature, and optimize ts_ metrics."
            )
