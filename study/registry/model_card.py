"""The model card: what a registered model is, how it was trained, its metrics and their uncertainty. Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from study.answer.choice import Choice, median_seed
from study.confirmation.results import search_of
from study.schema.objective import (
    IN_WORDS,
    RAW,
    TEMPERATURE,
    Objective,
    as_served,
    changes_with_temperature,
    epoch_note,
    in_words,
    other_than,
    searched_for,
)
from study.schema.recommended import OWN_SETTINGS, standing, standing_text
from study.store.files import checked_file
from study.store.test_openings import TEST_FILE, Tested, read_tested
from study.uncertainty.bootstrap import RESAMPLES, measured
from study.uncertainty.intervals import LEVEL, intervals, percent
from study.uncertainty.resampling import Draws
from trainables import metrics
from trainables.config import build
from trainables.method import Method
from trainables.outputs.predictions import Predictions


def card(facts: dict[str, Any], name: str, answer: Sequence[str] = ()) -> str:
    """answer: sentences that say why this model was chosen."""
    config, trial, serves = facts["config"], facts["metrics_of_trial"], facts["serves"]
    shape = " x ".join(str(size) for size in facts["input_shape"])
    temperature = f"{facts['temperature']:.4g}"
    rows = [
        f"| {metrics.describe(metric).label} | {_figure(trial[metric])} "
        f"| {_figure(trial[metrics.AFTER_TEMPERATURE + metric])} |"
        for metric in metrics.ESSENTIAL
    ]
    headings = {RAW: IN_WORDS[RAW], TEMPERATURE: f"{IN_WORDS[TEMPERATURE]} {temperature}"}
    headings[serves] += " (served)"
    applies = (
        f"applies its temperature, {temperature}"
        if serves == TEMPERATURE
        else "applies no temperature"
    )
    searched = searched_for([Objective(**objective) for objective in facts["objectives"]])
    note = epoch_note(config["result"])
    settings = [f"- {path}: {value}" for path, value in sorted(facts["params"].items())]
    return "\n".join(
        [
            f"# {name}: {config['model']['name']} trained by {facts['method']}",
            "",
            *(["## Why this model", " ".join(answer), ""] if answer else []),
            f"Classifies images of {config['data']['name']} into {len(facts['classes'])} classes. Trial "
            f"`{facts['trial']}` of study `{facts['study']}` (id {facts['id']}, data {facts['data_digest'][:12]}).",
            "",
            f"Input: float32 [N, {shape}], raw pixel values (not normalized). "
            f"Output: float32 [N, K] probabilities; each row sums to 1. The model normalizes its input and {applies}.",
            "",
            "## Training",
            f"{config['epochs']} epochs, weights of epoch {facts['epoch']}; batch size {config['batch_size']}; "
            f"initialization and sample order from seed {config['seed']} and trial number {config['number']}; "
            f"on {facts['device']}. {_whence(facts)}:",
            *(settings or ["- none"]),
            "",
            f"## Validation ({facts['num_samples']} samples)",
            f"| | {headings[RAW]} | {headings[TEMPERATURE]} |",
            "|---|---|---|",
            *rows,
            "",
            f"{searched[0].upper()}{searched[1:]}. `calstudy export ... --{other_than(serves)}` registers it "
            f"{'as trained' if serves == TEMPERATURE else 'with its temperature'}. After temperature: cross-fitted, no "
            "sample is used to fit its own temperature. Because this trial was selected on validation, its values tend "
            "to look better than they are. The test split was not used.",
            *([f"{note.capitalize()}."] if note else []),
            "",
            *_confirmed_section(facts),
            "## Use",
            "```python",
            f'model = mlflow.pyfunc.load_model("models:/{name}/VERSION", model_config={{"device": "cpu"}})',
            "probs = model.predict(images)",
            "```",
            f"Verify: `calstudy verify models:/{name}/VERSION`. Serve: "
            f"`mlflow models serve -m models:/{name}/VERSION --env-manager local`.",
            "",
        ]
    )


def _whence(facts: dict[str, Any]) -> str:
    """Heading of the hyperparameter list."""
    confirmed = facts.get("confirmed")
    if confirmed is None:
        return "Searched hyperparameters"
    if confirmed["searched"] is not None:
        return "Hyperparameters found by the search, fixed here"
    whose = _whose(facts)
    return f"{whose[0].upper()}{whose[1:]}" + (
        "" if whose == OWN_SETTINGS else "; the rest as in the study"
    )


def _whose(facts: dict[str, Any]) -> str:
    """Whose settings the method has, where none were searched."""
    return standing_text(standing(build(Method, facts["config"]["method"])))


def _figure(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


# ---- confirmation --------------------------------------------------------------------------------------------------


def confirmed_facts(choice: Choice, level: float = LEVEL) -> dict[str, Any] | None:
    """Each seed's validation and test metrics of a confirmed choice, test with intervals; None for an unconfirmed one.

    Raises FieldError if a seed's test predictions are missing or altered.
    """
    row, confirmation = choice.row, choice.confirmation
    if row is None or confirmation is None:
        return None
    tested = read_tested(confirmation.study)[row.label]
    seeds = [
        {
            "trial": record.name,
            "validation": {name: record.metrics[name] for name in _names(record.metrics)},
            "test": _with_intervals(choice, record, tested[record.number], level)
            if record.number in tested
            else None,
        }
        for record in row.records
    ]
    searched = row.candidate
    return {
        "label": row.label,
        "role": row.role,
        "registered": choice.record.name,
        "median": choice.record == median_seed(row.records, search_of(choice.study).served[0]),
        "searched": None
        if searched is None
        else {
            "trial": searched.name,
            **{name: searched.metrics[name] for name in _names(searched.metrics)},
        },
        "seeds": seeds,
        "test_samples": confirmation.study.recorded["sizes"]["test"],
        **(
            {} if level == LEVEL else {"level": level}
        ),  # absent from older versions, which these facts identify
    }


def _names(measured_values: dict[str, float]) -> list[str]:
    wanted = [*metrics.ESSENTIAL, *(metrics.AFTER_TEMPERATURE + name for name in metrics.ESSENTIAL)]
    return [name for name in wanted if name in measured_values]


def _with_intervals(
    choice: Choice, record: Any, tested: Tested, level: float
) -> dict[str, list[float]]:
    """Each test metric as [value, low, high] of the bootstrap; ts_: at the fitted temperature.

    [value] alone if so few predictions are wrong that it has no interval.
    """
    answers = Predictions.load(checked_file(choice.study, record, TEST_FILE, tested.digests))
    draws = Draws.of(len(answers.labels), RESAMPLES, 0)
    found: dict[str, list[float]] = {}
    for prefix, temperature in (("", 1.0), (metrics.AFTER_TEMPERATURE, tested.temperature)):
        scaled = Predictions(answers.logits.double() / temperature, answers.labels)
        of_split = intervals(measured(scaled, draws, metrics.ESSENTIAL)[""], level)
        for name in metrics.ESSENTIAL:
            ends = of_split[name][1:] if name in of_split else ()
            found[prefix + name] = [tested.metrics[prefix + name], *ends]
    return found


def _confirmed_section(facts: dict[str, Any]) -> list[str]:
    """Validation to test: the search's value, fresh seeds on validation, and each of them on the sealed test split."""
    confirmed, serves = facts.get("confirmed"), facts["serves"]
    if confirmed is None:
        return []
    seeds = confirmed["seeds"]
    tests = [seed["test"] for seed in seeds if seed["test"] is not None]
    searched = confirmed["searched"]
    rows = []
    for name in _in_pairs(seeds[0]["validation"]):
        before = "-" if searched is None else _figure(searched.get(name))
        validation = _over(
            [seed["validation"][name] for seed in seeds if name in seed["validation"]]
        )
        test = _over([found[name][0] for found in tests]) if tests else "not measured"
        rows.append(f"| {_named(name, serves)} | {before} | {validation} | {test} |")
    shown = ("accuracy", "ece", metrics.AFTER_TEMPERATURE + "ece", as_served("nll", serves))
    each = [
        f"| {seed['trial']} | "
        + " | ".join(
            _with_range(seed["test"][name]) if seed["test"] else "not measured" for name in shown
        )
        + " |"
        for seed in seeds
    ]
    of = (
        f"{facts['method']}, {_whose(facts)}"
        if searched is None
        else f"`{searched['trial']}`, found by the search"
    )
    median = (
        ", the seed with the median validation value of the first objective" * confirmed["median"]
    )
    return [
        f"## Confirmation: {len(seeds)} fresh seeds of {of}",
        f"This model is `{confirmed['registered']}`{median}. Mean and standard deviation over seeds. The test split"
        f" ({confirmed['test_samples']} samples) was not used for any selection.",
        "",
        "| | search, validation | fresh seeds, validation | fresh seeds, test |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Test metrics per seed, with {percent(confirmed.get('level', LEVEL))} intervals:",
        "",
        f"| seed | {' | '.join(_named(name, serves) for name in shown)} |",
        f"|---|{'---|' * len(shown)}",
        *each,
        "",
    ]


def _in_pairs(found: Mapping[str, float]) -> list[str]:
    """The metrics of the table: what a temperature changes as trained, then after it."""
    pairs = ((name, metrics.AFTER_TEMPERATURE + name) for name in metrics.ESSENTIAL)
    both = (name for pair in pairs for name in pair[: 1 + changes_with_temperature(pair[0])])
    return [name for name in both if name in found]


def _named(metric: str, serves: str) -> str:
    is_served = changes_with_temperature(metric) and as_served(metric, serves) == metric
    return in_words(metric) + " (served)" * is_served


def _over(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    return _figure(mean) + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")


def _with_range(found: Sequence[float]) -> str:
    value, *ends = found
    low_to_high = " ({:.4f} to {:.4f})".format(*ends) if ends else ""
    return _figure(value if math.isfinite(value) else None) + low_to_high
