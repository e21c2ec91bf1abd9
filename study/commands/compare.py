"""Two studies side by side: specs, answers, and fronts on the same validation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    console,
    interval_option,
    json_option,
    objectives_option,
    plain_head,
    print_json,
    removed_option,
    storage_option,
)

if TYPE_CHECKING:
    from study.answer.two_studies import Pair, Side


@click.command()
@click.argument("study", metavar="A")
@click.argument("other", metavar="B")
@removed_option("--figure", "Both fronts are printed; --json has their values.", takes_value=True)
@objectives_option
@interval_option
@storage_option
@json_option
def compare(
    study: str,
    other: str,
    objectives: str | None,
    level: float,
    storage: str | None,
    as_json: bool,
) -> None:
    """Compare two studies: specs, answers and fronts.

    By the objectives that both have, or --objectives. Fronts, and the models of the two
    answers, are compared only where the validation samples are the same; else it says why they are
    not. Values on test are those of confirmations: nothing is opened.

    `calstudy report A B` writes a page, or a table, of several studies.
    """
    from study.answer.two_studies import pair_of
    from study.store.study import open_study

    pair = pair_of(open_study(study, storage), open_study(other, storage), objectives, level)
    if as_json:
        print_json(_plain(pair, level))
        return
    _print(pair, level)


# ---- as text -------------------------------------------------------------------------------------


def _print(pair: Pair, level: float) -> None:
    from study.terminal.tables import two_fronts_table, two_specs_table

    for line in pair.afterwards:
        console.say(line)
    for side in pair.sides:
        _print_side(side, level)
    if len({side.said.split for side in pair.sides if side.said.values}) > 1:
        console.say(
            "One of these values is on test, the other on validation: they do not compare. Confirm"
            " both studies."
        )
    if pair.apart:
        console.say(f"The fronts are not compared: the validation data differ ({pair.apart}).")
    else:
        rows = [(side.name, record) for side in pair.sides for record in side.front]
        console.print(two_fronts_table(rows, pair.objectives, pair.joint_front))
        reference = ", ".join(
            f"{name} {value:.4g}" for name, value in pair.reference_values().items()
        )
        volumes = ", ".join(f"{side.name} {pair.hypervolume(side):.4g}" for side in pair.sides)
        samples = f"{pair.one.study.recorded.shown('validation')} of both"
        console.say(f"hypervolume better than {reference}: {volumes}; {samples}")
        _print_between(pair, level)
    if pair.differences:
        one, other = (side.name for side in pair.sides)
        console.print(two_specs_table(pair.differences, one, other))
    else:
        console.say("Their specs are the same but for the name.")


def _print_side(side: Side, level: float) -> None:
    from study.answer.phrases import how_sure, on_split, values_text

    study = side.study
    said = side.said
    console.print(f"{side.name}: {said.sentences[0]}", style="bold")
    if said.values:
        where = on_split(study, said.split)
        console.print(f"{values_text(said.values)} {where} ({how_sure(study, said.split, level)}).")
    if said.split == "validation" and said.values:
        console.print("It was selected on these, so it looks better than it is.")


def _print_between(pair: Pair, level: float) -> None:
    from study.terminal.tables import differences_table
    from study.uncertainty.bootstrap import RESAMPLES
    from study.uncertainty.without_intervals import no_intervals_of

    if not pair.between:
        console.say(f"The two models are not compared: {pair.uncompared}")
        return
    one, other = (f"{side.name}'s" for side in pair.sides)
    console.print(differences_table(pair.one.study, dict(pair.between), one, other, level, {}))
    if without := no_intervals_of(each.metric for each in pair.objectives):
        console.say(f"{without}.")
    console.say(
        f"The models that the two answers take, on validation, the same {RESAMPLES:,} resamples for"
        f" both: two trained networks, one seed each.{_favoured(pair)} See docs/why/how-certain.md."
    )


def _favoured(pair: Pair) -> str:
    """A sentence where only one of the two models was selected by these values; else empty."""
    selected = [side.name for side in pair.sides if side.said.split == "validation"]
    if len(selected) != 1:
        return ""
    retrained = next(side.name for side in pair.sides if side.said.split == "test")
    return (
        f" {selected[0]}'s was selected by these values, {retrained}'s trained anew and then"
        f" measured: that favours {selected[0]}'s."
    )


# ---- as JSON -------------------------------------------------------------------------------------


def _plain(pair: Pair, level: float) -> dict[str, object]:
    plain: dict[str, object] = {
        "objectives": [asdict(objective) for objective in pair.objectives],
        "studies": [_plain_side(pair, side) for side in pair.sides],
        "spec": {key: list(values) for key, values in pair.differences.items()},
        "same_validation": not pair.apart,
    }
    if pair.apart:
        return {**plain, "differs": pair.apart}
    between = {name: one._asdict() for name, one in pair.between.items()}
    return {
        **plain,
        "hypervolume_reference": pair.reference_values(),
        "level": level,
        "difference": between,
        "not_compared": pair.uncompared or None,
    }


def _plain_side(pair: Pair, side: Side) -> Mapping[str, object]:
    joint = {id(record) for record in pair.joint_front}
    values = {
        name: value if isinstance(value, float) else value.estimate
        for name, value in side.said.values.items()
    }
    intervals = {
        name: [value.low, value.high]
        for name, value in side.said.values.items()
        if not isinstance(value, float)
    }
    plain = {
        **plain_head(side.study),
        "name": side.name,
        "answer": side.said.sentences[0],
        "trial": side.taken,
        "split": side.said.split,
        "values": values,
        "intervals": intervals,
    }
    if pair.apart:
        return plain
    front = [
        {
            "trial": record.name,
            **{one.metric: record.metrics[one.metric] for one in pair.objectives},
            "on_front_of_both": id(record) in joint,
        }
        for record in side.front
    ]
    return {**plain, "front": front, "hypervolume": pair.hypervolume(side)}
