"""Content of a study's report page as plain values: html.py assembles the page, assets/ lays it out.

All numbers are validation values except those labelled test in a confirmation. Nothing is selected by test.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from search_spaces import strict_yaml
from search_spaces.space import to_plain
from study.analysis import pareto
from study.analysis.reliability import BINS
from study.analysis.stalled import stalled, stalled_lines
from study.analysis.states import WORDS, Counts, Snapshot, in_words, saved_line, summed
from study.answer.choice import rows_that_count
from study.confirmation.results import default_texts
from study.report.figure_set import Gallery
from study.report.figures import bins_note
from study.report.page_curves import curves
from study.report.page_reliability import diagrams
from study.report.style import BIN_KEY, COLOURS, HEADINGS, MARKERS, displayed
from study.schema.objective import as_served, epoch_note, plain_name
from study.schema.uris import without_credentials
from study.schema.variant import Variant
from study.schema.versions import versions
from study.store.spending import Spent, budget_line, spent
from study.store.study import Study
from study.store.trials import TrialRecord
from study.uncertainty.intervals import FEWEST_WRONG
from study.uncertainty.resampling import RESAMPLED
from trainables.metrics import CONVENTION, describe
from trainables.plugins import name_of

Plain = dict[str, Any]


def gather(
    study: Study,
    records: Mapping[str, Sequence[TrialRecord]],
    analysis: Any = None,
    confirmation: Any = None,
    alive: bool = False,
) -> Plain:
    """One study's page content, JSON-serializable.

    analysis: `bootstrap.Analysis`, or None without intervals. confirmation: `confirmed.Confirmation`, or None. alive:
    whether a driver ran the study when the records were read. Metric values are listed in the order of `metrics`; null
    if a trial has none.
    """
    spec, recorded = study.spec, study.recorded
    now = Snapshot.of(
        study, {variant.label: records.get(variant.label, ()) for variant in spec.variants}, alive
    )
    finished = pareto.complete(now.all)
    measured = pareto.measured_names(finished)
    front, knee = now.ranking.front, now.ranking.knee
    drawn, notes = diagrams(study, finished)
    drawings = curves(Gallery(study, {label: list(found) for label, found in records.items()}))
    on_front = {record.name for record in front}
    labels, costs = [variant.label for variant in spec.variants], spent(study, now.records)
    return {
        "name": spec.name,
        "created": str(recorded.get("created", "")),
        "abstract": _abstract(study, now.all, summed(now.counts.values()), front, knee),
        "facts": _facts(study),
        "objectives": [objective.metric for objective in spec.objectives],
        "served": [as_served(name, study.serves) for name in ("ece", "nll")],
        "metrics": [_metric(name) for name in measured],
        "stalled": stalled_lines(stalled(now.ranking)),
        "methods": [_method(variant, now, costs[variant.label]) for variant in spec.variants],
        "budget": [
            *_budget(spec.trials, {label: records.get(label, ()) for label in labels}),
            _sentence(budget_line(study, now.records, alive)),
        ],
        "trials": [
            {
                **_trial(record, labels, measured, analysis),
                "front": record.name in on_front,
                "set_aside": now.ranking.set_aside.get(record.name),
                **drawn.get(record.name, {}),
            }
            for record in finished
        ],
        "knee": knee.name if knee is not None else None,
        "hypervolume": _number(now.ranking.hypervolume),
        "samples": recorded["sizes"]["validation"],
        "test_samples": recorded["sizes"]["test"],
        "resamples": None if analysis is None else analysis.resamples,
        "whiskers": None if analysis is None else analysis.named,
        "unfinished": _unfinished(now),
        "noise": _noise(spec.variants, records, measured),
        "confirmation": None
        if confirmation is None
        else _confirmation(study, confirmation, measured),
        "reproduce": _reproduce(study, finished, analysis, confirmation),
        "bins_note": " ".join(bins_note(recorded["sizes"]["validation"])),
        **drawings,
        "notes": [*notes, *drawings["notes"]],
    }


def gather_page(studies: Sequence[Plain], made: str, every: int | None = None) -> Plain:
    """The whole page: `gather` of each study, and notes on comparing them. made: date for the footer.

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
    """`plain`: without unit and temperature; `resampled`: whether the bootstrap gives it intervals."""
    found = describe(name)
    resampled = plain_name(name) in RESAMPLED
    return {
        "name": name,
        "label": displayed(name),
        "plain": found.label,
        "better": found.better,
        "resampled": resampled,
    }


def _shared(study: Plain, what: str) -> Any:
    return study["reproduce"]["classes"] if what == "classes" else ", ".join(study["objectives"])


# ---- study setup ---------------------------------------------------------------------------------------------------


def _abstract(
    study: Study,
    records: Sequence[TrialRecord],
    counts: Counts,
    front: Sequence[TrialRecord],
    knee: TrialRecord | None,
) -> list[str]:
    spec, sizes = study.spec, study.recorded["sizes"]
    sought = " and ".join(
        f"{displayed(o.metric)} ({describe(o.metric).better} is better)" for o in spec.objectives
    )
    sentences = [
        f"{_count(len(spec.variants), 'method')} for training {_name(spec.model)} on {spec.data.shown},"
        f" {_count(spec.trials, 'trial')} each. Objectives: {sought}.",
        f"{_count(counts['planned'], 'planned trial')}: {in_words(counts)}.",
    ]
    if front and len(spec.objectives) == 1:
        values = f"{displayed(spec.objectives[0].metric)} {front[0].metrics[spec.objectives[0].metric]:.4f}"
        sentences.append(f"The best trial is {front[0].name} ({values}).")
    elif knee is not None:
        values = ", ".join(
            f"{displayed(o.metric)} {knee.metrics[o.metric]:.4f}" for o in study.served
        )
        methods = len({record.label for record in front})
        what = "It" if front == [knee] else "The knee, the best compromise as served,"
        sentences.append(
            f"{_count(len(front), 'trial')} of {_count(methods, 'method')} {'is' if len(front) == 1 else 'are'} on the"
            " Pareto front: no other trial is at least as good in every objective and better in one."
            f" {what} is {knee.name} ({values})."
        )
    sentences.append(
        f"All values are measured on the validation split ({_count(sizes['validation'], 'sample')}), which the search"
        " used for selection: the best of many trials looks better than it is."
    )
    if saved := saved_line(study, records):
        sentences.append(f"{saved[0].upper()}{saved[1:]}.")
    if note := epoch_note(spec.result):
        sentences.append(f"{note.capitalize()}.")
    return sentences


def _facts(study: Study) -> list[list[str]]:
    """[term, value] pairs in the order of the spec."""
    plain, recorded = without_credentials(study.spec.to_mapping()), study.recorded
    sizes, early = recorded["sizes"], study.spec.early_stopping
    return [
        ["Data", _settings(plain["data"])],
        ["Classes", f"{len(recorded['classes']):,}"],
        [
            "Samples",
            "; ".join(f"{split} {size:,}" for split, size in sizes.items())
            + " (opened only by calstudy confirm)",
        ],
        ["Network", _settings(plain["model"])],
        ["Optimizer", _settings(plain["optimizer"])],
        [
            "Training",
            f"{_count(plain['epochs'], 'epoch')}, batch size {plain['batch_size']}; result: {plain['result']}",
        ],
        ["Search", f"{plain['sampler']['name']}; each method's defaults are tried first"],
        *([["Early stopping", early.in_words(plain["epochs"])]] if early is not None else []),
        ["Objectives", "; ".join(f"{o.direction} {o.metric}" for o in study.spec.objectives)],
        ["Calibration", f"{BINS} bins; {CONVENTION}"],
        [
            "Temperature",
            "fitted by NLL on validation, cross-fitted: no sample is used to fit its own temperature",
        ],
    ]


def _name(settings: Any) -> str:
    return name_of(type(settings))


def _settings(plain: Mapping[str, Any]) -> str:
    """`mlp: width 128, depth 1`; a setting that is null is left out."""
    shown = {key: value for key, value in plain.items() if key != "name" and value is not None}
    rest = ", ".join(f"{key} {strict_yaml.one_line(value)}" for key, value in shown.items())
    return f"{plain['name']}: {rest}" if rest else str(plain["name"])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


# ---- methods, budgets, failures ------------------------------------------------------------------------------------


def _method(variant: Variant, now: Snapshot, cost: Spent) -> Plain:
    """A method's settings and budget: trials by state in words, and their total compute."""
    counts, records = now.counts[variant.label], now.records[variant.label]
    return {
        "label": variant.label,
        "name": _name(variant.method),
        "searched": {
            path: _range(to_plain(entry)) for path, entry in variant.space.distributions.items()
        },
        "planned": counts["planned"],
        "states": {word: counts[state] for state, word in WORDS.items()},
        "samples": _total(records, "samples"),
        "seconds": _total(records, "seconds"),
        "hours": {unit: _number(hours) for unit, hours in asdict(cost).items() if hours},
        "devices": sorted({record.device for record in records if record.seconds is not None}),
    }


def _range(plain: Any) -> str:
    """`0.01 to 0.5, log` or `flsd_53 | flsd_532`."""
    if "choices" in plain:
        return " | ".join(str(choice) for choice in plain["choices"])
    flags = "".join(
        f", {key}" if plain[key] is True else f", {key} {plain[key]}"
        for key in plain
        if key in _FLAGS
    )
    return f"{plain['low']:g} to {plain['high']:g}{flags}"


_FLAGS = ("log", "step", "int")


def _total(records: Iterable[TrialRecord], cost: str) -> float | None:
    known = [value for record in records if (value := getattr(record, cost)) is not None]
    return round(sum(known), 1) if known else None


def _budget(planned: int, records: Mapping[str, Sequence[TrialRecord]]) -> list[str]:
    """Whether the methods had equal budgets, a sentence each for trials, samples and seconds."""
    counts = {
        label: sum(one.state in ("complete", "pruned") for one in found)
        for label, found in records.items()
    }
    ended = "complete"
    if any(record.state == "pruned" for found in records.values() for record in found):
        ended = "complete or stopped early"
    lowest, highest = (
        min(counts, key=lambda label: counts[label]),
        max(counts, key=lambda label: counts[label]),
    )
    sentences = [f"Each method has {_count(planned, 'planned trial')}"]
    if counts[lowest] == counts[highest]:
        sentences[0] += f", {counts[lowest]:,} of them {ended}: the numbers of trials are equal."
    else:
        sentences[0] += (
            f", but not all are {ended}: from {counts[lowest]:,} of {lowest} to {counts[highest]:,} of {highest}."
            " The best of more trials looks better."
        )
    for unit, cost in (("training samples seen", "samples"), ("training seconds", "seconds")):
        totals = {label: _total(found, cost) or 0.0 for label, found in records.items()}
        least, most = (
            min(totals, key=lambda label: totals[label]),
            max(totals, key=lambda label: totals[label]),
        )
        if not totals[most]:
            continue
        if totals[most] <= 1.01 * totals[least]:
            sentences.append(f"The {unit} are equal within 1%.")
        else:
            times = f" (a factor of {totals[most] / totals[least]:.3g})" if totals[least] else ""
            sentences.append(
                f"The {unit} differ: {most} used {totals[most]:,.0f}, {least} {totals[least]:,.0f}{times}."
            )
    sentences.append("Seconds are wall-clock time and depend on the machine's load.")
    return sentences


def _sentence(line: str) -> str:
    return line[0].upper() + line[1:]


WHY = {
    "running": "was training when the page was written",
    "interrupted": "`calstudy run` resumes it",
}


def _unfinished(now: Snapshot) -> list[Plain]:
    """Every trial that began and is not complete, with the reason."""
    return [
        {
            "trial": record.name,
            "state": WORDS[state],
            "reason": record.reason or WHY.get(state, ""),
            "attempts": record.attempt,
            "params": record.params,
        }
        for record in now.all
        if (state := now.states[record.name]) not in ("complete", "set_aside", "to_do")
    ]


def _trial(
    record: TrialRecord, labels: Sequence[str], measured: Sequence[str], analysis: Any
) -> Plain:
    """A complete trial; `method` is the index of its label, `intervals` {index of the metric: [low, high]}."""
    found: Plain = {
        "method": labels.index(record.label),
        "number": record.number,
        "name": record.name,
        "params": record.params,
        "values": [_number(record.metrics.get(name)) for name in measured],
        "samples": record.samples,
        "seconds": _number(record.seconds),
        "epoch": record.epoch,
    }
    if analysis is None:
        return found
    intervals = analysis.intervals.get(record.name, {})
    return found | {
        "intervals": {
            place: [_number(intervals[name].low), _number(intervals[name].high)]
            for place, name in enumerate(measured)
            if name in intervals
        },
        "share": _number(analysis.shares.get(record.name)),
    }


# ---- noise ---------------------------------------------------------------------------------------------------------


def _noise(
    variants: Iterable[Variant],
    records: Mapping[str, Sequence[TrialRecord]],
    measured: Sequence[str],
) -> list[Plain]:
    """Per metric, mean and std over fresh seeds of each method with nothing to search and at least two trials."""
    rows = []
    for variant in variants:
        found = pareto.complete(records.get(variant.label, ()))
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
                "spread": [_spread(each) for each in values],
            }
        )
    return rows


def _spread(values: Sequence[float]) -> list[float | None] | None:
    """[mean, std with n - 1]; the std is null for one value, the pair null for none."""
    if not values:
        return None
    return [
        _number(statistics.fmean(values)),
        _number(statistics.stdev(values)) if len(values) > 1 else None,
    ]


# ---- a confirmation ------------------------------------------------------------------------------------------------


def _confirmation(study: Study, confirmation: Any, measured: Sequence[str]) -> Plain:
    """The selected trials: validation in the search, validation and test with fresh seeds."""
    shifts = list(dict.fromkeys(name for row in confirmation.rows for name in row.shifts))
    texts, (_, aside) = default_texts(confirmation), rows_that_count(study, confirmation.rows)
    return {
        "name": confirmation.study.spec.name,
        "opened": any(row.tests for row in confirmation.rows),
        "rows": [
            {
                "label": row.label,
                "role": texts.get(row.label, row.role)
                + (", set aside" if row.label in aside else ""),
                "candidate": row.candidate.name if row.candidate is not None else None,
                "seeds": len(row.records),
                "searched": [
                    _number(row.candidate.metrics.get(name)) if row.candidate is not None else None
                    for name in measured
                ],
                "validation": [
                    _over(name, [record.metrics for record in row.records]) for name in measured
                ],
                "test": [_over(name, row.tests) for name in measured],
                "shifts": {
                    shift: {name: _over(name, found) for name in _names(found)}
                    for shift, found in row.shifts.items()
                },
            }
            for row in confirmation.rows
        ],
        "shifts": shifts,
        "shift_samples": {
            name: size for row in confirmation.rows for name, size in row.shift_samples.items()
        },
        "shift_dropped": {
            name: size for row in confirmation.rows for name, size in row.shift_dropped.items()
        },
    }


def _names(found: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for each in found for name in each))


def _over(name: str, seeds: Iterable[Mapping[str, float]]) -> list[float | None] | None:
    return _spread([each[name] for each in seeds if name in each and math.isfinite(each[name])])


# ---- how to reproduce it -------------------------------------------------------------------------------------------


def _reproduce(
    study: Study, finished: Iterable[TrialRecord], analysis: Any, confirmation: Any
) -> Plain:
    """Commands, the spec, versions and digests. `trained_with`: trials by the versions that differ from the study's."""
    recorded, name = study.recorded, study.spec.name
    versions = {key: str(value) for key, value in recorded["versions"].items()}
    commit = versions.get("git_commit")
    commands = [["calstudy run study.yaml", "the file below; repeat the command to resume"]]
    if confirmation is not None:
        trials = [row.candidate.name for row in confirmation.rows if row.candidate is not None]
        words = [f"--trial {trial}" for trial in trials] + [
            f"--seeds {confirmation.study.spec.trials}"
        ]
        commands.append(
            [" ".join(["calstudy confirm", name, *words]), "opens the sealed test split"]
        )
    interval = (
        ""
        if analysis is None or analysis.level == 0.95
        else f" --interval {100 * analysis.level:g}"
    )
    commands.append([f"calstudy report {name}{interval}", "this page"])
    if commit:
        commands.insert(0, [f"git checkout {commit}", "the code it ran with"])
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
        "data_digest": str(recorded["data_digest"]),
        "classes": len(recorded["classes"]),
    }


def _number(value: float | None) -> float | None:
    """Six significant digits; null if not finite."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
