"""The model card in Markdown: the model, its training, its metrics and their uncertainty.

What a study's owner named (classes, columns, units) stands in it as text: it is no markup there.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader

from study.answer.choice import Choice, median_seed
from study.answer.networks import networks_on_test
from study.answer.phrases import first_upper
from study.answer.said import Answer
from study.registry.calibrated import calibrator_line
from study.schema.markdown import Markdown, as_code, as_sentence, as_text
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
from study.uncertainty.forms import floor_text, value_text
from study.uncertainty.intervals import LEVEL, Floor, Interval, floor_note, percent
from study.uncertainty.methods import floors_over_seeds
from study.uncertainty.resampling import draws_for, too_few
from trainables import metrics
from trainables.config import build
from trainables.kinds import NOUNS, count_of
from trainables.loading.marks import MOST
from trainables.method import Method
from trainables.outputs.predictions import Predictions

Facts = Mapping[str, Any]  # what a version's record holds: plain values
MOST_CLASSES = 100  # on the card
LONGEST_METADATA = 100_000  # characters of class names
LONGEST_DESCRIPTION = 5000  # characters the registry keeps
REST = "\n\nThe rest is in the version's file `calstudy/card.md`."
# The metrics of a card: as trained, then after a temperature.
MEASURED = [*metrics.ESSENTIAL, *(metrics.AFTER_TEMPERATURE + name for name in metrics.ESSENTIAL)]


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
        python=lambda text: Markdown(json.dumps(text, ensure_ascii=False)),
        seed=_seed,
        sentence=as_sentence,
        shell=lambda text: Markdown(shlex.quote(text)),
    )
    return templates


# ---- the card ------------------------------------------------------------------------------------


def card(facts: Facts, name: str, answer: Answer | None = None) -> str:
    """The card of a model with these facts. answer: that names it."""
    objectives = [Objective(**objective) for objective in facts["objectives"]]
    accuracy = facts["metrics_of_trial"]["accuracy"]
    context = {
        **facts,
        **confirmed_part(facts),
        "calibrated": calibrator_line(facts),
        "name": name,
        "answer": answer,
        # A reader has no storage for commands; what a temperature does is in the table.
        "reasons": [part for part in answer.why if "`calstudy " not in part.text] if answer else [],
        "uri": f"models:/{name}/VERSION",
        "kind": facts.get("kind", "image"),
        "noun": NOUNS[facts.get("kind", "image")],
        "texts": "keep" in facts,
        "shown_temperature": f"{facts['temperature']:.4g}",
        "classes_in_metadata": "classes" in metadata(facts),
        "most_classes": MOST_CLASSES,
        "most_pixels": MOST,
        "validation_sizes": _sizes(facts),
        "measured": [(metrics.describe(metric).label, metric) for metric in _measured_in(facts)],
        "searched": first_upper(searched_for(objectives)),
        "fit": FIT_IN_WORDS,
        "epoch_note": epoch_note(facts["config"]["result"]),
        "doubt": temperature_note(facts["temperature"], accuracy, facts["num_samples"]),
    }
    made = _templates().get_template("card.md.jinja").render(context)
    return made.rstrip("\n") + "\n"


def metadata(facts: Facts) -> dict[str, Any]:
    """What a loaded model says of itself: its classes, in the order of the probabilities.

    None where they are too long for a description that every loader reads.
    """
    classes = list(facts["classes"])
    if len(json.dumps(classes)) > LONGEST_METADATA:
        return {"num_classes": len(classes)}
    return {"classes": classes, "num_classes": len(classes)}


def shown(card: str) -> str:
    """The card as the registry keeps it: whole lines, and where the others are."""
    if len(card) <= LONGEST_DESCRIPTION:
        return card
    kept = card[: LONGEST_DESCRIPTION - len(REST)].rpartition("\n")[0].rstrip()
    whole, _, last = kept.rpartition("\n")
    return (whole.rstrip() if last.startswith("#") else kept) + REST


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


def _seed(trial: str) -> int:
    """`focal_0007/0001` is seed 1."""
    return int(trial.rpartition("/")[2])


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
        floors = floors_over_seeds([network], MEASURED, level=level)
        found[name] = {metric: list(floor) for metric, floor in floors.items()}
    return found


def _essential(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a card among the measured ones."""
    return {name: values[name] for name in MEASURED if name in values}


def _with_intervals(
    choice: Choice, record: Any, tested: Tested, level: float
) -> dict[str, list[float]]:
    """Each test metric as [value, low, high] of the bootstrap; ts_: at the fitted temperature.

    [value] alone if so few predictions are wrong that it has no interval, or groups are too few.
    """
    answers = Predictions.stored(checked_file(choice.study, record, TEST_FILE, tested.digests))
    sure: dict[str, Interval] = {}
    if not too_few(answers):
        draws = draws_for(answers, RESAMPLES)
        sure = intervals_of(measured(answers, draws, MEASURED, tested.temperature), MEASURED, level)
    return {name: [tested.metrics[name], *sure.get(name, ())[1:]] for name in MEASURED}


def confirmed_part(facts: Facts) -> Facts:
    """What the section on the confirmation shows, from validation to test: the search's value,
    fresh seeds there, each of them on test; nothing of a model that was not confirmed."""
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
        means.append((_named(name, facts), before, _over(validation), test))
    shown = ("accuracy", "ece", metrics.AFTER_TEMPERATURE + "ece", as_served("nll", serves))
    each = []
    for seed in seeds:
        cells = ["not measured"] * len(shown)
        if seed["test"]:
            known = facts.get("floors", {}).get(seed["trial"], {})
            cells = [_with_range(seed["test"][name], known.get(name)) for name in shown]
        each.append((_seed(seed["trial"]), cells))
    level = confirmed.get("level", LEVEL)
    whose = "found by the search"
    if searched is None:
        whose = standing_text(standing(build(Method, facts["config"]["method"])))
    return {
        # As everywhere: the trial that was retrained, or the default.
        "model": confirmed["label"] if searched is None else searched["trial"],
        "whose": whose,
        "rest_of_study": searched is None and whose != OWN_SETTINGS,
        "means": means,
        "level": percent(level),
        "shown": [_named(name, facts) for name in shown],
        "each": each,
        "floor_note": first_upper(floor_note(level)),
    }


def _in_pairs(found: Mapping[str, float]) -> list[str]:
    """The metrics of the table; those that a temperature changes as trained, then after it."""
    names = []
    for name in metrics.ESSENTIAL:
        twice = changes_with_temperature(name)
        names += [name, metrics.AFTER_TEMPERATURE + name] if twice else [name]
    return [name for name in names if name in found]


def _named(metric: str, facts: Facts) -> str:
    is_served = changes_with_temperature(metric) and as_served(metric, facts["serves"]) == metric
    word = " (selected)" if "calibrator" in facts else " (served)"
    return in_words(metric) + word * is_served


def _over(values: Sequence[float]) -> str:
    mean = _figure(statistics.fmean(values))
    return f"{mean} ± {statistics.stdev(values):.4f}" if len(values) > 1 else mean


def _with_range(found: Sequence[float], floor: Sequence[float] | None = None) -> str:
    """A value with its interval and, beside that, its floor."""
    value, *ends = found
    if not ends:
        return _figure(value if math.isfinite(value) else None)
    text = value_text(Interval(value, *ends), cell=True)
    return text if floor is None else f"{text}, floor {floor_text(Floor(*floor))}"
