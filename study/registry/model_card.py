"""The model card in Markdown: the model, its training, its metrics and their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from study.answer.choice import Choice, median_seed
from study.answer.networks import networks_on_test
from study.answer.phrases import first_upper
from study.registry.card_use import Facts, classes_section, use_section
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


def card(facts: Facts, name: str, answer: Sequence[str] = ()) -> str:
    """The card of a model with these facts. answer: sentences that say why it was chosen."""
    config = facts["config"]
    trial = facts["metrics_of_trial"]
    serves = facts["serves"]
    temperature = f"{facts['temperature']:.4g}"
    rows = [
        f"| {metrics.describe(metric).label} | {_figure(trial[metric])} "
        f"| {_figure(trial.get(metrics.AFTER_TEMPERATURE + metric, trial[metric]))} |"
        for metric in _measured_in(facts)
    ]
    headings = {RAW: IN_WORDS[RAW], TEMPERATURE: f"{IN_WORDS[TEMPERATURE]} {temperature}"}
    headings[serves] += " (served)"
    if serves == TEMPERATURE:
        applies = f"applies its temperature, {temperature}"
        otherwise = "as trained"
    else:
        applies = "applies no temperature"
        otherwise = "with its temperature"
    searched = searched_for([Objective(**objective) for objective in facts["objectives"]])
    notes = []
    if note := epoch_note(config["result"]):
        notes.append(f"{note.capitalize()}.")
    if doubt := temperature_note(facts["temperature"], trial["accuracy"], facts["num_samples"]):
        notes.append(doubt)
    if by_hand := facts.get("selected_for"):
        notes.append(f"{first_upper(by_hand)}.")
    reasons = []
    if answer:
        reasons = ["## Why this model", " ".join(answer), ""]
    settings = [f"- {path}: {value}" for path, value in sorted(facts["params"].items())]
    return "\n".join(
        [
            f"# {name}: {config['model']['name']} trained by {facts['method']}",
            "",
            *reasons,
            (
                f"Classifies {_what(facts)} of {config['data']['name']} into"
                f" {len(facts['classes'])} classes. Trial `{facts['trial']}` of study"
                f" `{facts['study']}` (id {facts['id']}, data {facts['data_digest'][:12]})"
                f"{_retrains(facts)}."
            ),
            "",
            (
                f"Input: {_input(facts)}. Output: {_output(facts)}. The model"
                f" {_normalizes(facts)}{applies}."
            ),
            "",
            *use_section(facts, name),
            *classes_section(facts),
            "## Training",
            (
                f"{config['epochs']} epochs, weights of epoch {facts['epoch']}; batch size"
                f" {config['batch_size']}; initialization and sample order from seed"
                f" {config['seed']} and trial number {config['number']}; on {facts['device']}."
                f" {_whence(facts)}:"
            ),
            *(settings or ["- none"]),
            "",
            f"## Validation ({_sizes(facts)})",
            *_drawn_rows(facts),
            f"| | {headings[RAW]} | {headings[TEMPERATURE]} |",
            "|---|---|---|",
            *rows,
            "",
            (
                f"{first_upper(searched)}. `calstudy export ... --{other_than(serves)}`"
                f" registers it {otherwise}. After temperature: cross-fitted {FIT_IN_WORDS}, no"
                " sample is used to fit its own temperature. Because this trial was selected on"
                " validation, its values tend to look better than they are. The test split was not"
                " used."
            ),
            *notes,
            "",
            *_confirmed_section(facts),
            *_columns(facts),
        ]
    )


def _measured_in(facts: Facts) -> list[str]:
    """The metrics of the table: the essential ones, and what is measured on such data alone."""
    also = []
    if facts.get("marked"):
        also = [name for name in facts["metrics"] if not metrics.describe(name).stored]
    return [*metrics.ESSENTIAL, *also]


def _what(facts: Facts) -> str:
    """What is given a class: images, rows, or each pixel of images with masks."""
    noun = NOUNS[facts.get("kind", "image")]
    return f"each pixel of {noun}" if facts.get("marked") else noun


def _sizes(facts: Facts) -> str:
    """`360 samples of 36 patients`, where samples belong together; pixels of images with masks."""
    groups = f" of {facts['validation_groups']}" if "validation_groups" in facts else ""
    if not facts.get("marked"):
        return f"{facts['num_samples']} samples{groups}"
    images = f" of {count_of(facts['num_images'], 'images')}"
    return f"{facts['num_samples']:,} pixels{images}{groups.replace(images, '')}"


def _drawn_rows(facts: Facts) -> list[str]:
    """Which pixels the metrics of masks are of, and what their intervals resample."""
    if not facts.get("marked"):
        return []
    return [
        (
            f"The metrics are of at most {MOST:,} labelled pixels an image (fewer where a split has"
            " very many images), drawn once by the seed: every image weighs the same. Intervals"
            f" resample {facts['validation_groups'].partition(' ')[2]}, not pixels."
        ),
        "",
    ]


def _input(facts: Facts) -> str:
    """The model's input, in words."""
    if facts.get("columns"):
        return f"rows of {len(facts['columns'])} columns, raw numbers (not normalized)"
    shape = " x ".join(str(size) for size in facts["input_shape"])
    if "vocabulary_sha256" in facts:
        return f"int32 [N, {shape}], numbers of words, of its file `calstudy/vocabulary.txt`"
    values = "pixel values" if facts.get("kind", "image") == "image" else "numbers"
    return f"float32 [N, {shape}], raw {values} (not normalized)"


def _normalizes(facts: Facts) -> str:
    return "" if "vocabulary_sha256" in facts else "normalizes its input and "


def _output(facts: Facts) -> str:
    """The model's output, in words."""
    if not facts.get("marked"):
        return "float32 [N, K] probabilities; each row sums to 1"
    _, *size = facts["input_shape"]
    sizes = " x ".join(map(str, [len(facts["classes"]), *size]))
    return (
        f"float32 [N, {sizes}] probabilities of the classes at each pixel; those of a pixel sum"
        " to 1, and the largest is its class"
    )


def _columns(facts: Facts) -> list[str]:
    """The columns of a row, in the model's order."""
    if not facts.get("columns"):
        return []
    named = ", ".join(f"`{name}`" for name in facts["columns"])
    return ["## Columns", f"In this order: {named}.", ""]


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


def _retrains(facts: Facts) -> str:
    """The model of the tables and of the answer that a confirmed trial is a seed of."""
    confirmed = facts.get("confirmed")
    if confirmed is None:
        return ""
    return f": seed {_seed(facts['trial'])} of `{_model(confirmed)}`"


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


def _confirmed_section(facts: Facts) -> list[str]:
    """From validation to test: the search's value, fresh seeds there, each of them on test."""
    confirmed = facts.get("confirmed")
    serves = facts["serves"]
    if confirmed is None:
        return []
    is_own = confirmed.get("itself", False)
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
        cells = [_named(name, serves), before, validation, test]
        if is_own:
            del cells[1]
        rows.append(f"| {' | '.join(cells)} |")
    shown = ("accuracy", "ece", metrics.AFTER_TEMPERATURE + "ece", as_served("nll", serves))
    floors = facts.get("floors", {})
    each = []
    for seed in seeds:
        cells = ["not measured"] * len(shown)
        if seed["test"]:
            known = floors.get(seed["trial"], {})
            cells = [_with_range(seed["test"][name], known.get(name)) for name in shown]
        each.append(f"| {_seed(seed['trial'])} | {' | '.join(cells)} |")
    whose = _whose(facts) if searched is None else "found by the search"
    notes = []
    if floors:
        notes = [first_upper(floor_note(confirmed.get("level", LEVEL))), ""]
    median = (
        ", the seed with the median validation value of the first objective" * confirmed["median"]
    )
    notes += [f"{first_upper(caution)}." for caution in confirmed.get("cautions", ())]
    groups = f" of {confirmed['test_groups']}" if "test_groups" in confirmed else ""
    test = confirmed.get("test_shown", f"{confirmed['test_samples']} samples{groups}")
    title = f"## Confirmation: {len(seeds)} fresh seeds of `{_model(confirmed)}`, {whose}"
    head = [
        "| | search, validation | fresh seeds, validation | fresh seeds, test |",
        "|---|---|---|---|",
    ]
    if is_own:
        title = f"## Confirmation: {len(seeds)} seeds of `{_model(confirmed)}`, {whose}"
        head = ["| | validation | test |", "|---|---|---|"]
    return [
        title,
        (
            f"This model is seed {_seed(confirmed['registered'])}{median}. Mean and standard"
            f" deviation over seeds. The test split ({test}) was not used for any selection."
        ),
        "",
        *head,
        *rows,
        "",
        f"Test metrics per seed, {_how_sure(confirmed)}:",
        "",
        f"| seed | {' | '.join(_named(name, serves) for name in shown)} |",
        f"|---|{'---|' * len(shown)}",
        *each,
        "",
        *notes,
    ]


def _how_sure(confirmed: Facts) -> str:
    """How sure the test metrics are."""
    if few := confirmed.get("no_intervals"):
        return f"without intervals ({few})"
    groups = confirmed.get("test_groups")
    resampled = f" that resample {groups}" if groups else ""
    return f"with {percent(confirmed.get('level', LEVEL))} intervals{resampled}"


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
