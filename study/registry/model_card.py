"""The model card in Markdown: the model, its training, its metrics and their uncertainty.

What a study's owner named (classes, columns, units) stands in it as text: it is no markup there.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from jinja2 import Environment, PackageLoader

from study.answer.choice import Choice, median_seed
from study.answer.networks import networks_on_test
from study.answer.phrases import first_upper
from study.registry.card_use import MOST_CLASSES, Facts, metadata
from study.schema.objective import (
    Objective,
    as_served,
    changes_with_temperature,
    epoch_note,
    in_words,
    searched_for,
)
from study.schema.recommendations import OWN_SETTINGS, standing, standing_text
from study.schema.temperature import FIT_IN_WORDS, temperature_note
from study.store.files import checked_file
from study.store.openings import TEST_FILE, Tested
from study.uncertainty.bootstrap import RESAMPLES, intervals_of, measured
from study.uncertainty.intervals import LEVEL, Floor, Interval, floor_note, percent
from study.uncertainty.methods import floors_over_seeds
from study.uncertainty.resampling import draws_for, too_few
from trainables import metrics
from trainables.config import build
from trainables.kinds import NOUNS, count_of
from trainables.loading.marks import MOST
from trainables.method import Method
from trainables.outputs.predictions import Predictions

# What Markdown, or HTML in it, could take as markup; `_` only where it is no part of a word.
MARKUP = re.compile(r"[\\`*<>|~&]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")


# ---- texts ---------------------------------------------------------------------------------------


class Markdown(str):
    """A text that is Markdown as it stands."""


def as_text(value: object) -> Markdown:
    """A value as a line of Markdown that shows it and does nothing else."""
    if isinstance(value, Markdown):
        return value
    return Markdown(MARKUP.sub(r"\\\g<0>", " ".join(str(value).splitlines())))


def as_code(value: str) -> Markdown:
    """A text as a code span, whatever backticks it has."""
    line = " ".join(value.splitlines())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return Markdown(f"{fence}{space}{line}{space}{fence}")


def as_sentence(ours: str) -> Markdown:
    """A sentence of ours, in which code stands between backticks."""
    parts = ours.split("`")
    if not len(parts) % 2:
        return as_text(ours)
    return Markdown(
        "`".join(as_text(part) if at % 2 == 0 else part for at, part in enumerate(parts))
    )


def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("study.registry", ""),
        finalize=as_text,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    templates.filters.update(
        code=as_code,
        figure=_figure,
        first_upper=first_upper,
        model=_model,
        python=lambda text: Markdown(json.dumps(text, ensure_ascii=False)),
        seed=_seed,
        sentence=as_sentence,
        shell=lambda text: Markdown(shlex.quote(text)),
    )
    return templates


# ---- the card ------------------------------------------------------------------------------------


def card(facts: Facts, name: str, answer: Sequence[str] = ()) -> str:
    """The card of a model with these facts. answer: sentences that say why it was chosen."""
    objectives = [Objective(**objective) for objective in facts["objectives"]]
    accuracy = facts["metrics_of_trial"]["accuracy"]
    context = {
        **facts,
        **_confirmed_part(facts),
        "name": name,
        "answer": answer,
        "uri": f"models:/{name}/VERSION",
        "kind": facts.get("kind", "image"),
        "noun": NOUNS[facts.get("kind", "image")],
        "texts": "keep" in facts,
        "shown_temperature": f"{facts['temperature']:.4g}",
        "classes_in_metadata": "classes" in metadata(facts),
        "most_classes": MOST_CLASSES,
        "most_pixels": MOST,
        "whence": _whence(facts),
        "validation_sizes": _sizes(facts),
        "measured": [(metrics.describe(metric).label, metric) for metric in _measured_in(facts)],
        "searched": first_upper(searched_for(objectives)),
        "fit": FIT_IN_WORDS,
        "epoch_note": epoch_note(facts["config"]["result"]),
        "doubt": temperature_note(facts["temperature"], accuracy, facts["num_samples"]),
    }
    made = _templates().get_template("card.md.jinja").render(context)
    return made.rstrip("\n") + "\n"


def _measured_in(facts: Facts) -> list[str]:
    """The metrics of the table: the essential ones, and what is measured on such data alone."""
    also = []
    if facts.get("marked"):
        also = [name for name in facts["metrics"] if not metrics.describe(name).stored]
    return [*metrics.ESSENTIAL, *also]


def _sizes(facts: Facts) -> str:
    """`360 samples of 36 patients`, where samples belong together; pixels of images with masks."""
    groups = f" of {facts['validation_groups']}" if "validation_groups" in facts else ""
    if not facts.get("marked"):
        return f"{facts['num_samples']} samples{groups}"
    images = f" of {count_of(facts['num_images'], 'images')}"
    return f"{facts['num_samples']:,} pixels{images}{groups.replace(images, '')}"


def _whence(facts: Facts) -> str:
    """Heading of the hyperparameter list."""
    confirmed = facts.get("confirmed")
    if confirmed is None:
        return "Searched hyperparameters"
    if confirmed["searched"] is not None:
        return "Hyperparameters found by the search, fixed here"
    whose = _whose(facts)
    rest = "" if whose == OWN_SETTINGS else "; the rest as in the study"
    return f"{first_upper(whose)}{rest}"


def _model(confirmed: Facts) -> str:
    """The model's name, as everywhere: of the trial that was retrained, or of the default."""
    searched = confirmed["searched"]
    return str(confirmed["label"] if searched is None else searched["trial"])


def _seed(trial: str) -> int:
    """`focal_0007/0001` is seed 1."""
    return int(trial.rpartition("/")[2])


def _whose(facts: Facts) -> str:
    """The words for whose settings the method has, where none were searched."""
    return standing_text(standing(build(Method, facts["config"]["method"])))


def _figure(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


# ---- confirmation --------------------------------------------------------------------------------


def confirmed_facts(choice: Choice, level: float = LEVEL) -> Facts | None:
    """A confirmed choice's metrics by seed, of test with intervals; None for an unconfirmed one.

    Raises FieldError if a seed's test predictions are missing or altered.
    """
    row = choice.row
    if row is None or choice.confirmation is None:
        return None
    confirmation = choice.confirmation
    tested = confirmation.tested[row.label]
    median = median_seed(row.records, confirmation.search.served[0])
    seeds = []
    for record in row.records:
        test = None
        if record.number in tested:
            test = _with_intervals(choice, record, tested[record.number], level)
        validation = _essential(record.metrics)
        seeds.append({"trial": record.name, "validation": validation, "test": test})
    searched = row.candidate
    facts = {
        "label": row.label,
        "role": row.role,
        "registered": choice.record.name,
        "median": choice.record == median,
        "searched": searched and {"trial": searched.name, **_essential(searched.metrics)},
        "seeds": seeds,
        "test_samples": confirmation.study.recorded.sizes["test"],
    }
    recorded = confirmation.study.recorded
    if recorded.groups is not None:  # absent else, as the next ones
        facts["test_groups"] = recorded.resampled("test")
    if recorded.marked:
        facts["test_shown"] = ", ".join(recorded.sizes_of("test"))
    if few := recorded.too_few("test"):
        facts["no_intervals"] = few
    if cautions := confirmation.cautions:
        facts["cautions"] = cautions
    if confirmation.study.confirms_itself:
        facts["itself"] = True
    if level != LEVEL:  # absent where it is the usual one: these facts identify a version
        facts["level"] = level
    return facts


def confirmed_floors(choice: Choice, level: float) -> dict[str, dict[str, list[float]]]:
    """{seed: {calibration error on test: its floor}}; beside the facts, which identify a version.

    Raises as `confirmed_facts`.
    """
    if choice.row is None or choice.confirmation is None:
        return {}
    if choice.study.recorded.too_few("test"):
        return {}
    networks = networks_on_test(choice.confirmation)[choice.row.label]
    tested = choice.confirmation.tested[choice.row.label]
    measured_seeds = [record.name for record in choice.row.records if record.number in tested]
    found: dict[str, dict[str, list[float]]] = {}
    for name, network in zip(measured_seeds, networks, strict=True):
        floors = floors_over_seeds([network], list(chain(*_pairs())), level=level)
        found[name] = {metric: list(floor) for metric, floor in floors.items()}
    return found


def _pairs() -> list[tuple[str, str]]:
    """The metrics of a card as trained and after a temperature."""
    return [(name, metrics.AFTER_TEMPERATURE + name) for name in metrics.ESSENTIAL]


def _essential(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a card among the measured ones: as trained, then after a temperature."""
    names = chain(*zip(*_pairs(), strict=True))
    return {name: values[name] for name in names if name in values}


def _with_intervals(
    choice: Choice, record: Any, tested: Tested, level: float
) -> dict[str, list[float]]:
    """Each test metric as [value, low, high] of the bootstrap; ts_: at the fitted temperature.

    [value] alone if so few predictions are wrong that it has no interval, or groups are too few.
    """
    answers = Predictions.stored(checked_file(choice.study, record, TEST_FILE, tested.digests))
    names = list(chain(*zip(*_pairs(), strict=True)))
    sure: dict[str, Interval] = {}
    if not too_few(answers):
        draws = draws_for(answers, RESAMPLES)
        sure = intervals_of(measured(answers, draws, names, tested.temperature), names, level)
    return {name: [tested.metrics[name], *sure.get(name, ())[1:]] for name in names}


def confirmed_section(facts: Facts) -> str:
    """From validation to test: the search's value, fresh seeds there, each of them on test."""
    template = _templates().get_template("confirmed.md.jinja")
    return template.render({**facts, **_confirmed_part(facts)})


def _confirmed_part(facts: Facts) -> Facts:
    """What the section on the confirmation shows; nothing of a model that was not confirmed."""
    confirmed = facts.get("confirmed")
    if confirmed is None:
        return {}
    serves = facts["serves"]
    seeds = confirmed["seeds"]
    tests = [seed["test"] for seed in seeds if seed["test"] is not None]
    searched = confirmed["searched"]
    means = []
    for name in _in_pairs(seeds[0]["validation"]):
        before = "-" if searched is None else _figure(searched.get(name))
        validation = [seed["validation"][name] for seed in seeds if name in seed["validation"]]
        test = _over([found[name][0] for found in tests]) if tests else "not measured"
        means.append((_named(name, serves), before, _over(validation), test))
    shown = ("accuracy", "ece", metrics.AFTER_TEMPERATURE + "ece", as_served("nll", serves))
    each = []
    for seed in seeds:
        cells = ["not measured"] * len(shown)
        if seed["test"]:
            known = facts.get("floors", {}).get(seed["trial"], {})
            cells = [_with_range(seed["test"][name], known.get(name)) for name in shown]
        each.append((_seed(seed["trial"]), cells))
    level = confirmed.get("level", LEVEL)
    return {
        "whose": _whose(facts) if searched is None else "found by the search",
        "means": means,
        "level": percent(level),
        "shown": [_named(name, serves) for name in shown],
        "each": each,
        "floor_note": first_upper(floor_note(level)),
    }


def _in_pairs(found: Mapping[str, float]) -> list[str]:
    """The metrics of the table; those that a temperature changes as trained, then after it."""
    both = chain(*(pair[: 1 + changes_with_temperature(pair[0])] for pair in _pairs()))
    return [name for name in both if name in found]


def _named(metric: str, serves: str) -> str:
    is_served = changes_with_temperature(metric) and as_served(metric, serves) == metric
    return in_words(metric) + " (served)" * is_served


def _over(values: Sequence[float]) -> str:
    mean = _figure(statistics.fmean(values))
    return f"{mean} ± {statistics.stdev(values):.4f}" if len(values) > 1 else mean


def _with_range(found: Sequence[float], floor: Sequence[float] | None = None) -> str:
    """A value with its interval and, beside that, its floor."""
    value, *ends = found
    text = _figure(value if math.isfinite(value) else None)
    if ends:
        text += " ({:.4f} to {:.4f})".format(*ends)
        if floor is not None:
            text += f", floor {Floor(*floor)}"
    return text
