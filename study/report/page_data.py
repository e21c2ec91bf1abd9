"""Content of a study's report page as plain values: html.py assembles it, assets/ lay it out.

All numbers are validation values except those labelled test in a confirmation. Nothing is selected
by test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from search_spaces import conditions, strict_yaml
from search_spaces.space import Entry, to_plain, when_of
from study.analysis import pareto
from study.analysis.stalled import stalled, stalled_lines
from study.analysis.states import WORDS, Counts, Snapshot, in_words, saved_line, summed
from study.answer.confirmation import Confirmation
from study.answer.phrases import counted, first_upper
from study.answer.sizes import Sizes
from study.report.figure_set import Gallery
from study.report.figures import bins_note
from study.report.page_confirmation import confirmed, options_of
from study.report.page_drawings import drawings
from study.report.page_numbers import amount, number, spread
from study.report.page_reliability import diagrams
from study.report.style import BIN_KEY, COLOURS, HEADINGS, MARKERS, displayed
from study.schema.objective import as_served, epoch_note, plain_name
from study.schema.temperature import FIT_IN_WORDS
from study.schema.uris import without_credentials
from study.schema.variant import Variant
from study.store.spending import Spent, budget_line, spent
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.bootstrap import Analysis
from study.uncertainty.forms import floor_text, value_text
from study.uncertainty.intervals import FEWEST_WRONG, floor_note, percent
from study.uncertainty.reliability import BINS
from study.uncertainty.resampling import REMOVED, RESAMPLED
from trainables.machine import versions
from trainables.metrics import CONVENTION, describe
from trainables.plugins import name_of

Plain = dict[str, Any]
# Settings of each training that have a place of their own on the page; a folder needs none.
NAMED = ("epochs", "batch_size", "result", "extensions")


def gather(
    study: StudyFolder,
    records: Trials,
    analysis: Analysis | None = None,
    confirmation: Confirmation | None = None,
    alive: bool = False,
    sizes: Sizes | None = None,
) -> Plain:
    """One study's page content, JSON-serializable.

    analysis: None without intervals. alive: whether a driver ran the study when the records were
    read. sizes: of the confirmation; without it the page has no shrinkage and
    no floors of fresh seeds. Metric values are listed in the order of `metrics`; null if a trial
    has none.
    """
    spec = study.spec
    recorded = study.recorded
    now = Snapshot.of(study, records, alive)
    finished = records.complete
    measured = pareto.measured_names(finished)
    front = now.ranking.front
    drawn, notes = diagrams(study, finished)
    drawn_once, left_out = drawings(Gallery(study, records))
    on_front = {record.name for record in front}
    stands_for = now.ranking.stands_for
    labels = [variant.label for variant in spec.variants]
    costs = spent(study, records)
    return {
        "name": spec.name,
        "created": recorded.created,
        "goes_on": study.goes_on_anywhere,
        "abstract": _abstract(study, records, summed(now.counts.values()), front),
        "facts": _facts(study),
        "objectives": [objective.metric for objective in study.objectives],
        "afterwards": study.afterwards,
        "served": [as_served(name, now.ranking.deployed.serves) for name in ("ece", "nll")],
        "metrics": [_metric(name) for name in measured],
        "stalled": stalled_lines(stalled(now.ranking)),
        "methods": [_method(variant, now, costs[variant.label]) for variant in spec.variants],
        "budget": [
            *_budget(spec.trials, records),
            first_upper(budget_line(study, records, alive)),
        ],
        "trials": [
            {
                **_trial(record, labels, measured, analysis),
                "front": stands_for.get(record.name, record.name) in on_front,
                "title": " = ".join([record.name, *now.ranking.equals.get(record.name, ())]),
                "same_as": stands_for.get(record.name),
                "excluded": now.ranking.excluded.get(record.name),
                **drawn.get(record.name, {}),
            }
            for record in finished
        ],
        "hypervolume": number(now.ranking.hypervolume),
        "samples": recorded.measured("validation"),
        "counted": recorded.counted,
        "validation_samples": recorded.shown("validation"),
        "test_samples": ", ".join(recorded.sizes_of("test")),
        "unit": recorded.unit_in("validation"),
        "resamples": analysis and analysis.resamples,
        "resampled": recorded.resampled("validation"),
        "whiskers": analysis and f"{percent(analysis.level)} intervals",
        "floor_note": analysis and first_upper(floor_note(analysis.level)),
        "unfinished": _unfinished(now, study.goes_on_anywhere),
        "noise": _noise(spec.variants, records, measured),
        "confirmation": confirmation and confirmed(study, confirmation, measured, sizes),
        "reproduce": _reproduce(study, finished, analysis, confirmation),
        "bins_note": " ".join(bins_note(*recorded.in_bins("validation"))),
        "drawings": drawn_once,
        "notes": [*notes, *left_out],
    }


def gather_page(studies: Sequence[Plain], made: str, every: int | None = None) -> Plain:
    """The whole page: `gather` of each study, and notes on comparing them. made: for the footer.

    every: seconds after which the page reloads itself; None: never.
    """
    notes = []
    for what, words in (
        ("objectives", "different objectives"),
        ("classes", "different numbers of classes"),
    ):
        if len({str(_shared(study, what)) for study in studies}) > 1:
            found = "; ".join(f"{study['name']}: {_shared(study, what)}" for study in studies)
            notes.append(
                f"These studies have {words} ({found}): do not compare values across them."
            )
    return {
        "made": made,
        "every": every,
        "version": versions(("calstudy",))["calstudy"],
        "bins": BINS,
        "headings": list(HEADINGS),
        "bin_key": list(BIN_KEY),
        "fewest_wrong": FEWEST_WRONG,
        "colours": list(COLOURS),
        "markers": list(MARKERS),
        "notes": notes,
        "studies": list(studies),
    }


def _metric(name: str) -> Plain:
    """`plain`: without unit and temperature; `resampled`: whether the bootstrap has intervals."""
    found = describe(name)
    resampled = plain_name(name) in (*RESAMPLED, *REMOVED)
    return {
        "name": name,
        "label": displayed(name),
        "plain": found.label,
        "better": found.better,
        "resampled": resampled,
    }


def _shared(study: Plain, what: str) -> Any:
    if what == "classes":
        return study["reproduce"]["classes"]
    return ", ".join(study["objectives"])


# ---- study setup ---------------------------------------------------------------------------------


def _abstract(
    study: StudyFolder,
    records: Sequence[TrialRecord],
    counts: Counts,
    front: Sequence[TrialRecord],
) -> list[str]:
    spec = study.spec
    sought = " and ".join(
        f"{displayed(o.metric)} ({describe(o.metric).better} is better)" for o in study.objectives
    )
    sentences = [
        (
            f"{counted(len(spec.variants), 'method')} for training {_name(spec.model)} on"
            f" {spec.data.shown}, {counted(spec.trials, 'trial')} each. Objectives: {sought}."
        ),
        f"{counted(counts['planned'], 'planned trial')}: {in_words(counts)}.",
    ]
    if front and len(study.objectives) == 1:
        only = study.objectives[0].metric
        values = f"{displayed(only)} {front[0].metrics[only]:.4f}"
        sentences.append(f"The best trial is {front[0].name} ({values}).")
    elif front:
        methods = len({record.label for record in front})
        sentences.append(
            f"{counted(len(front), 'trial')} of {counted(methods, 'method')}"
            f" {'is' if len(front) == 1 else 'are'} on the Pareto front: no other trial is at least"
            f" as good in every objective and better in one."
        )
    samples = ", ".join(study.recorded.sizes_of("validation"))
    sentences.append(
        f"All values are measured on the validation split ({samples}), which is used for"
        " selection: the best of many trials looks better than it is."
    )
    if saved := saved_line(study, records):
        sentences.append(f"{first_upper(saved)}.")
    if note := epoch_note(spec.result):
        sentences.append(f"{note.capitalize()}.")
    return sentences


def _facts(study: StudyFolder) -> list[list[str]]:
    """[term, value] pairs in the order of the spec."""
    plain = without_credentials(study.spec.to_mapping())
    recorded = study.recorded
    early = study.spec.early_stopping
    changed = study.spec.changed_settings()
    others = [f"; {key} {str(changed[key]).lower()}" for key in changed if key not in NAMED]
    return [
        ["Data", _settings(plain["data"])],
        ["Classes", f"{len(recorded.classes):,}"],
        ["Samples", f"{recorded.all_sizes} (opened only by calstudy confirm)"],
        ["Network", _settings(plain["model"])],
        ["Optimizer", _settings(plain["optimizer"])],
        [
            "Training",
            (
                f"{counted(plain['epochs'], 'epoch')}, batch size {plain['batch_size']}; result:"
                f" {plain['result']}{''.join(others)}"
            ),
        ],
        ["Search", f"{plain['sampler']['name']}; {study.spec.first_in_words} tried first"],
        *([["Early stopping", early.in_words(plain["epochs"])]] if early is not None else []),
        ["Objectives", "; ".join(f"{o.direction} {o.metric}" for o in study.spec.objectives)],
        ["Calibration", f"{BINS} bins; {CONVENTION}"],
        [
            "Temperature",
            (
                f"fitted {FIT_IN_WORDS} on validation, cross-fitted: no sample is used to fit its"
                " own temperature"
            ),
        ],
    ]


def _name(settings: Any) -> str:
    return name_of(type(settings))


def _settings(plain: Mapping[str, Any]) -> str:
    """`mlp: width 128, depth 1`; a setting that is null is left out."""
    shown = {key: value for key, value in plain.items() if key != "name" and value is not None}
    rest = ", ".join(f"{key} {strict_yaml.one_line(value)}" for key, value in shown.items())
    if not rest:
        return str(plain["name"])
    return f"{plain['name']}: {rest}"


# ---- methods, budgets, failures ------------------------------------------------------------------


def _method(variant: Variant, now: Snapshot, cost: Spent) -> Plain:
    """A method's settings and budget: trials by state in words, and their total compute."""
    counts = now.counts[variant.label]
    records = now.records.of(variant.label)
    return {
        "label": variant.label,
        "name": _name(variant.method),
        "searched": {path: _range(entry) for path, entry in variant.space.ranges.items()},
        "planned": counts["planned"],
        "states": {word: counts[state] for state, word in WORDS.items()},
        "samples": _total(records, "samples"),
        "seconds": _total(records, "seconds"),
        "hours": {unit: number(hours) for unit, hours in asdict(cost).items() if hours},
        "devices": sorted({record.device for record in records if record.seconds is not None}),
    }


def _range(entry: Entry) -> str:
    """`0.01 to 0.5, log` or `flsd_53 | flsd_532`; `, where optimizer.name is sgd`."""
    where = f", where {conditions.in_words(when)}" if (when := when_of(entry)) else ""
    return _in_words(to_plain(entry)) + where


def _in_words(plain: Any) -> str:
    if "choices" in plain:
        return " | ".join(str(choice) for choice in plain["choices"])
    text = f"{plain['low']:g} to {plain['high']:g}"
    for key, value in plain.items():
        if key in _FLAGS:
            text += f", {key}" if value is True else f", {key} {value}"
    return text


_FLAGS = ("log", "step", "int")


def _total(records: Iterable[TrialRecord], cost: str) -> float | None:
    known = [value for record in records if (value := getattr(record, cost)) is not None]
    if not known:
        return None
    return round(sum(known), 1)


def _budget(planned: int, records: Trials) -> list[str]:
    """Whether the methods had equal budgets, a sentence each for trials, samples and seconds."""
    counts = {
        label: sum(one.state in ("complete", "pruned") for one in found)
        for label, found in records.by_label.items()
    }
    ended = "complete"
    if any(record.state == "pruned" for record in records):
        ended = "complete or stopped early"
    lowest = min(counts, key=lambda label: counts[label])
    highest = max(counts, key=lambda label: counts[label])
    sentences = [f"Each method has {counted(planned, 'planned trial')}"]
    if counts[lowest] == counts[highest]:
        sentences[0] += f", {counts[lowest]:,} of them {ended}: the numbers of trials are equal."
    else:
        sentences[0] += (
            f", but not all are {ended}: from {counts[lowest]:,} of {lowest} to {counts[highest]:,}"
            f" of {highest}. The best of more trials looks better."
        )
    for unit, cost in (("training samples seen", "samples"), ("training seconds", "seconds")):
        totals = {label: _total(found, cost) or 0.0 for label, found in records.by_label.items()}
        least = min(totals, key=totals.__getitem__)
        most = max(totals, key=totals.__getitem__)
        if not totals[most]:
            continue
        if totals[most] <= 1.01 * totals[least]:
            sentences.append(f"The {unit} are equal within 1%.")
        else:
            times = f" (a factor of {totals[most] / totals[least]:.3g})" if totals[least] else ""
            sentences.append(
                f"The {unit} differ: {most} used {amount(totals[most])}, {least}"
                f" {amount(totals[least])}{times}."
            )
    sentences.append("Seconds are wall-clock time and depend on the machine's load.")
    return sentences


def _unfinished(now: Snapshot, goes_on: str) -> list[Plain]:
    """Every trial that began and is not complete, with the reason. goes_on: what resumes it."""
    why = {
        "running": "was training when the page was written",
        "interrupted": f"`{goes_on}` resumes it",
    }
    return [
        {
            "trial": record.name,
            "state": WORDS[state],
            "reason": record.reason or why.get(state, ""),
            "attempts": record.attempt,
            "params": record.params,
        }
        for record in now.records
        if (state := now.states[record.name]) not in ("complete", "excluded", "to_do")
    ]


def _trial(
    record: TrialRecord, labels: Sequence[str], measured: Sequence[str], analysis: Analysis | None
) -> Plain:
    """A complete trial; `method`: index of its label; `intervals`: {index of the metric: [low,
    high, the value with both as text]}; `floors`: {index of the metric: [mean, low, high, text]}.
    """
    found: Plain = {
        "method": labels.index(record.label),
        "number": record.number,
        "name": record.name,
        "params": record.params,
        "values": [number(record.metrics.get(name)) for name in measured],
        "samples": record.samples,
        "seconds": number(record.seconds),
        "epoch": record.epoch,
    }
    if analysis is None:
        return found
    intervals = analysis.intervals.get(record.name, {})
    return found | {
        "intervals": {
            place: [number(one.low), number(one.high), value_text(one, cell=True)]
            for place, name in enumerate(measured)
            if (one := intervals.get(name)) is not None
        },
        "floors": {
            place: [*map(number, floor), floor_text(floor)]
            for place, name in enumerate(measured)
            if name in intervals and (floor := intervals[name].floor) is not None
        },
        "share": number(analysis.shares.get(record.name)),
    }


# ---- noise ---------------------------------------------------------------------------------------


def _noise(
    variants: Iterable[Variant],
    records: Trials,
    measured: Sequence[str],
) -> list[Plain]:
    """Per metric, mean and std over at least two fresh seeds of each method without a search."""
    rows = []
    for variant in variants:
        found = records.complete.of(variant.label)
        if variant.space.distributions or len(found) < 2:
            continue
        values = [
            [record.metrics[name] for record in found if name in record.metrics]
            for name in measured
        ]
        rows.append(
            {
                "label": variant.label,
                "trials": len(found),
                "spread": [spread(each) for each in values],
            }
        )
    return rows


# ---- how to reproduce it -------------------------------------------------------------------------


def _reproduce(
    study: StudyFolder,
    finished: Iterable[TrialRecord],
    analysis: Analysis | None,
    confirmation: Confirmation | None,
) -> Plain:
    """Commands, spec, versions and digests. `trained_with`: trials by versions not the study's."""
    recorded = study.recorded
    versions = recorded.versions
    commit = versions.get("git_commit")
    commands = [
        [study.goes_on_anywhere, "goes on from its record; to train it anew, run the file below"]
    ]
    if confirmation is not None:
        confirms = study.command("confirm", anywhere=True, **options_of(confirmation))
        commands.append([confirms, "opens the sealed test split"])
    level = None
    if analysis is not None and analysis.level != 0.95:
        level = f"{100 * analysis.level:g}"
    page = study.command("report", anywhere=True, **study.given_option, interval=level)
    commands.append([page, "this page"])
    if commit:
        commands.insert(0, [f"git checkout {commit}", "the code it ran with, in a checkout of it"])
    others = Counter(
        ", ".join(
            f"{key} {found}"
            for key, found in sorted(record.versions.items())
            if versions.get(key) != str(found)
        )
        for record in finished
    )
    return {
        "commands": commands,
        "spec": strict_yaml.dump(without_credentials(study.spec.to_mapping())),
        "versions": versions,
        "trained_with": {what: count for what, count in others.items() if what},
        "data_digest": recorded.data_digest,
        "classes": len(recorded.classes),
    }
