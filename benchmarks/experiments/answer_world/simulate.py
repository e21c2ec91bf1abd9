"""One simulated study: forty trials, what the rules take, three fresh seeds of what is
confirmed, and the truth."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments.answer_world import rules
from benchmarks.experiments.answer_world.networks import (
    METRICS,
    RAW,
    TEMPERATURE,
    Networks,
    counts_of,
)
from benchmarks.experiments.answer_world.rules import RULES, SAID, Candidates, candidates
from benchmarks.experiments.answer_world.world import (
    KINDS,
    METHODS,
    TRIALS,
    Floats,
    Settings,
    Split,
    Truth,
)
from study.uncertainty.intervals import percentile
from study.uncertainty.methods import Methods, Seeds

SEEDS = 3
OBJECTIVES = METRICS[:2]
LEVEL = 0.95
LEVEL_OF_WORDS = 1 - (1 - LEVEL) / len(OBJECTIVES)
SERVED = (RAW, TEMPERATURE)

Plain = dict[str, Any]
counts = functools.cache(counts_of)
truth_in = functools.cache(Truth.load)


def simulated(kind: str, samples: int, number: int, truth_file: Path) -> Plain:
    """The study with that number, as plain values."""
    truth = truth_in(truth_file)
    settings = Settings.drawn(KINDS[kind], number, truth)
    split = Split(settings, samples)
    every = list(range(len(settings)))
    trials = Networks(split.logits([(one, 0) for one in every]), split.labels, counts(samples))
    found = {served: _trials(settings, truth, trials, served) for served in SERVED}
    seen = {served: trials_of(number, part) for served, part in found.items()}
    base = {
        served: confirmed_by_all(trials_of(number, found[RAW]), seen[served]) for served in SERVED
    }
    own = {
        served: {name: taken(seen[served], rule) for name, rule in RULES.items()}
        for served in SERVED
    }
    rows = sorted(set().union(*base.values(), *(by.values() for by in own.values())))
    fresh = [(row, seed) for row in rows for seed in range(1, SEEDS + 1)]
    networks = Networks(split.logits(fresh), split.labels, counts(samples))
    for served in SERVED:
        part = found[served]
        part["rows"] = _rows(settings, truth, networks, rows, served) | {
            "base": sorted(base[served])
        }
        part["rows"]["today"] = _today_of_rows(
            number, part, networks, sorted(base[served] | {own[served]["today"]})
        )
    asked = sorted({own[served][name] for served in SERVED for name in SAID})
    refitted = trials.some(asked)
    moved = dict(
        zip(asked, _moved(settings, truth, refitted, [(one, 0) for one in asked]), strict=True)
    )
    of_rows = _moved(settings, truth, networks, fresh)
    for served in SERVED:
        part = found[served]
        part["said"] = _said(number, part, networks, own[served], moved, of_rows)
        if served == RAW:
            part["disagreement"] = _disagreement(
                trials, seen[RAW], networks, rows, sorted(base[RAW])
            )
    return {"number": number, **found}


# ---- what rules see, of a stored study -----------------------------------------------------------


def trials_of(number: int, part: Plain) -> Candidates:
    found = part["trials"]
    return candidates(
        list(range(len(found["values"]))),
        np.array(found["values"]),
        np.array(found["noise"]),
        found["today"],
        number,
    )


def rows_of(number: int, part: Plain, own: int) -> Candidates:
    """The confirmed rows of a rule that took `own` before the confirmation."""
    found = part["rows"]
    kept = [k for k, name in enumerate(found["names"]) if name in found["base"] or name == own]
    values, noise = (np.array(found[what])[kept] for what in ("values", "noise"))
    return candidates(
        [found["names"][k] for k in kept], values, noise, found.get("today", -1), number
    )


def taken(seen: Candidates, rule: Any) -> int:
    """The setting that the rule takes."""
    return int(seen.names[rule(seen)])


def confirmed_by_all(as_trained: Candidates, as_served: Candidates) -> set[int]:
    """The front of the objectives, the knee as deployed, and each method's default."""
    on_front = as_trained.names[rules.front(as_trained.costs)]
    defaults = range(0, METHODS * TRIALS, TRIALS)
    return {*on_front.tolist(), int(as_served.names[rules.knee(as_served.costs)]), *defaults}


# ---- trials --------------------------------------------------------------------------------------


def _trials(settings: Settings, truth: Truth, networks: Networks, served: str) -> Plain:
    known = networks.as_trained if served == RAW else networks.at_one_temperature
    again = known[:, :2, 1:]
    logs = np.array([settings.of_seed(one, 0) for one in range(len(settings))]).T
    truly = truth.of_networks(*logs) if served == RAW else truth.with_temperature(logs[0])
    found = {
        "values": digits(known[..., 0]),
        "noise": digits(np.var(again - again.mean(axis=0), axis=2)),
        "truth": digits(truly),
        "today": -1,
    }
    return {
        "trials": found
        | {"today": _today_of_trials(settings.number, {"trials": found}, networks, served)}
    }


def _today_of_trials(number: int, part: Plain, networks: Networks, served: str) -> int:
    """As study.uncertainty.recommended."""
    seen = trials_of(number, part)
    reference = rules.knee(seen.costs)
    asked = [
        row
        for row in rules.front(np.column_stack([seen.costs, seen.nll]))
        if seen.nll[row] < seen.nll[reference]
    ]
    like = np.zeros(len(seen.names), bool)
    if asked:
        values = networks.some(seen.names[[reference, *asked]].tolist()).metrics(served)
        moved = values[1:] - values[0]
        for row, of_metric in zip(asked, moved, strict=True):
            ends = [
                united(of[0], of[1:]) if name == "ece" else percentile(of[1:])
                for name, of in zip(OBJECTIVES, of_metric, strict=False)
            ]
            like[row] = all(low <= 0 <= high for low, high in ends)
    return int(seen.names[rules.of_those_like(seen.costs, seen.nll, like, reference)])


# ---- confirmed rows ------------------------------------------------------------------------------


def _rows(
    settings: Settings, truth: Truth, networks: Networks, rows: list[int], served: str
) -> Plain:
    values = networks.metrics(served).reshape(len(rows), SEEDS, len(METRICS), -1)
    again, seeds = values[:, :, :2, 1:], values[:, :, :2, 0].var(axis=1, ddof=1)
    mean = again.mean(axis=1)
    own = (again - mean[:, None]).var(axis=3).sum(axis=1) / (SEEDS * (SEEDS - 1))
    shared = np.maximum(0, (mean - mean.mean(axis=0)).var(axis=2) - own)
    truly = truth.of_settings(settings.noise, settings.scale, served == TEMPERATURE)
    return {
        "served": served,
        "names": rows,
        "values": digits(values[..., 0].mean(axis=1)),
        "noise": digits(seeds.mean(axis=0) / SEEDS + shared),
        "truth": digits(truly),  # of every setting
    }


def _methods(networks: Networks, found: Plain, visible: Sequence[int]) -> list[dict[str, Seeds]]:
    """By objective, the visible rows as study.uncertainty.methods has them."""
    values = networks.metrics(found["served"]).reshape(len(found["names"]), SEEDS, len(METRICS), -1)
    places = {str(row): found["names"].index(row) for row in visible}
    return [
        {name: Seeds(values[at, :, k, 0], values[at, :, k, 1:]) for name, at in places.items()}
        for k in range(len(OBJECTIVES))
    ]


def _today_of_rows(number: int, part: Plain, networks: Networks, visible: list[int]) -> int:
    """As study.answer.choice."""
    found = part["rows"]
    methods = _methods(networks, found, visible)
    kept = [found["names"].index(name) for name in visible]
    seen = candidates(
        visible, np.array(found["values"])[kept], np.array(found["noise"])[kept], -1, number
    )
    reference = rules.knee(seen.costs)
    counted = {str(name) for name in seen.names}
    tied = [
        Methods({name: of[name] for name in of if name in counted}).tied(str(seen.names[reference]))
        for of in methods
    ]
    like = np.array([all(str(name) in of for of in tied) for name in seen.names])
    return int(seen.names[rules.of_those_like(seen.costs, seen.nll, like, reference)])


# ---- what is said of a choice --------------------------------------------------------------------


class Moved(NamedTuple):
    """ECE and NLL with a temperature minus as trained, [2, 1 + B], and truly,
    [2]; and the accuracy."""

    values: Floats
    truth: Floats
    accuracy: float


def _said(
    number: int,
    part: Plain,
    networks: Networks,
    own: dict[str, int],
    trials: dict[int, Moved],
    fresh: list[Moved],
) -> Plain:
    """By rule: intervals of the row that it takes against every other it sees;
    and of a temperature."""
    found, known = {}, {}
    for name in SAID:
        visible = tuple(sorted({*part["rows"]["base"], own[name]}))
        chosen = taken(rows_of(number, part, own[name]), RULES[name])
        level = LEVEL if name == "today" else LEVEL_OF_WORDS
        if (key := (visible, chosen, level)) not in known:
            known[key] = pairs(_methods(networks, part["rows"], visible), chosen, level)
        at = SEEDS * part["rows"]["names"].index(chosen)
        seeds = fresh[at : at + SEEDS]
        # The seed that `export` takes.
        median = sorted(seeds, key=lambda one: -one.accuracy)[SEEDS // 2]
        groups = {"trial": [trials[own[name]]], "exported": [median], "row": seeds}
        temperature = {of: _temperature(group) for of, group in groups.items()}
        found[name] = {"chosen": chosen, "others": known[key], "temperature": temperature}
    return found


def pairs(methods: list[dict[str, Seeds]], chosen: int, level: float) -> list[list[Any]]:
    """Of each other row: its setting, and intervals of the chosen row minus it, by objective."""
    every = [Methods(of, level) for of in methods]
    others = [name for name in methods[0] if name != str(chosen)]
    return [
        [int(name), *(digits(of.difference(str(chosen), name)[1:]) for of in every)]
        for name in others
    ]


def _moved(
    settings: Settings, truth: Truth, networks: Networks, names: list[tuple[int, int]]
) -> list[Moved]:
    values = (networks.after_temperature - networks.as_trained)[:, 1:]
    noise, scale = np.array([settings.of_seed(*name) for name in names]).T
    truly = truth.of_networks(noise, scale - networks.log_t) - truth.of_networks(noise, scale)
    return [
        Moved(*one)
        for one in zip(values, truly[:, 1:], networks.as_trained[:, 0, 0].tolist(), strict=True)
    ]


def united(estimate: float, values: Floats) -> tuple[float, float]:
    """The interval of a difference of ECEs when this was measured: percentile with basic."""
    low, high = percentile(values)
    return min(low, 2 * estimate - high), max(high, 2 * estimate - low)


def _temperature(group: Sequence[Moved]) -> Plain:
    """The mean over networks of what a temperature changes: estimate, 95% interval, truth."""
    ece, nll = np.mean([one.values for one in group], axis=0)
    truth = np.mean([one.truth for one in group], axis=0)
    return {
        "ece": digits([ece[0], *united(ece[0], ece[1:]), truth[0]]),
        "nll": digits([nll[0], *percentile(nll[1:]), truth[1]]),
    }


# ---- resolution ----------------------------------------------------------------------------------


def _disagreement(
    trials: Networks, seen: Candidates, networks: Networks, rows: list[int], visible: list[int]
) -> list[float]:
    """Between the trials that count; between confirmed rows; between seeds of a row.
    Fractions of the samples."""
    hits = networks.raw.hits.reshape(len(rows), SEEDS, -1)[[rows.index(row) for row in visible]]
    found = [_typical(disagreement(trials.raw.hits[seen.names])), *disagreement_of_rows(hits)]
    return [float(value) for value in digits(found)]


def disagreement_of_rows(hits: NDArray[np.bool_]) -> tuple[float, float]:
    """Between the networks of two rows, and between those of one; medians of pairs.
    hits: [rows, seeds, N]."""
    rows, seeds, samples = hits.shape
    by_row = (
        disagreement(hits.reshape(-1, samples)).reshape(rows, seeds, rows, seeds).mean(axis=(1, 3))
    )
    within = np.median(np.diag(by_row)) * seeds / (seeds - 1)  # a network agrees with itself
    return _typical(by_row), float(within)


def disagreement(hits: NDArray[np.bool_]) -> Floats:
    """In which fraction of samples one is right and the other is not, [M, M]. hits: [M, N]."""
    right = hits.astype(np.float32)
    both = right @ right.T
    found: Floats = (np.diag(both)[:, None] + np.diag(both) - 2 * both) / hits.shape[1]
    return found


def _typical(square: Floats) -> float:
    """The median off the diagonal."""
    return float(np.median(square[~np.eye(len(square), dtype=bool)])) if len(square) > 1 else 0.0


def digits(values: Any) -> Any:
    """Plain numbers of seven digits."""
    found = np.asarray(values, np.float64)
    return (
        np.array([float(f"{value:.7g}") for value in found.ravel().tolist()])
        .reshape(found.shape)
        .tolist()
    )
