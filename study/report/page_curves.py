"""The page's hypervolume, learning curves and searched values, in the figures' numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from study.analysis.importance import Searched
from study.analysis.progression import Course, Growth, course
from study.report.epoch_figures import LINEAR, learning_note, limits
from study.report.figure_set import Gallery
from study.report.figures import growth_note, importance_note, volume_limits
from study.report.style import displayed
from trainables.metrics import ESSENTIAL
from trainables.plain import Plain

MOST_EPOCHS = 50  # points of a learning curve


class Curves(TypedDict):
    """What is drawn, None where nothing is; notes on that."""

    growth: dict[str, Plain] | None
    learning: dict[str, Plain] | None
    searched: dict[str, Plain] | None
    notes: list[str]


def curves(gallery: Gallery) -> Curves:
    """The curves of a study. Methods are given by their place in it."""
    return {
        "growth": _growth(gallery),
        "learning": _learning(gallery),
        "searched": _searched(gallery),
        "notes": [f"No learning curve: {reason}" for reason in gallery.absent],
    }


def _growth(gallery: Gallery) -> dict[str, Plain] | None:
    """Hypervolume over trials and samples: [trials, samples, volume] where it grew, and the end."""
    if not gallery.front:
        return None
    whole, methods = gallery.growths
    return {
        "whole": _steps(whole),
        "methods": {_place(gallery, label): _steps(found) for label, found in methods.items()},
        "limits": [
            _short(volume_limits(volumes), 6)
            for volumes in ([whole.volume], [one.volume for one in methods.values()])
        ],
        "note": growth_note(gallery.ranking.reference_values()),
    }


def _steps(found: Growth) -> list[list[float | None]]:
    grew = np.flatnonzero(np.diff(found.volume, prepend=0.0))
    kept = np.unique([*grew, len(found.volume) - 1])
    volumes = _short(found.volume[kept], 6)
    return [
        list(step)
        for step in zip(
            found.trials[kept].tolist(), found.samples[kept].tolist(), volumes, strict=True
        )
    ]


def _learning(gallery: Gallery) -> dict[str, Plain] | None:
    """Validation metrics by epoch, as in the figure without bands; of long trainings every n-th
    epoch."""
    seeds = gallery.repeats_with("nll")
    if not seeds:
        return None
    epochs: dict[str, Plain] = {}
    panels: list[dict[str, Plain]] = []
    for name in ESSENTIAL:
        courses = {label: course(histories, name) for label, histories in seeds.items()}
        lines: dict[str, Plain] = {}
        for label, found in courses.items():
            kept = _thinned(found)
            epochs[_place(gallery, label)] = found.epochs[kept].astype(int).tolist()
            lines[_place(gallery, label)] = _short(found.mean[kept])
        shown = limits(courses, name)
        if shown is not None:
            log = name not in LINEAR
            panels.append(
                {"label": displayed(name), "log": log, "limits": _short(shown), "lines": lines}
            )
    return {"epochs": epochs, "panels": panels, "note": learning_note(seeds, gallery.chosen)}


def _thinned(found: Course) -> list[int]:
    """The epochs drawn: at most MOST_EPOCHS, evenly spaced, the first and the last among them."""
    count = len(found.epochs)
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, MOST_EPOCHS))})


def _searched(gallery: Gallery) -> dict[str, Plain] | None:
    """Per method the axes of its searched values and their importances, and why it has none."""
    if not gallery.searched:
        return None
    reasons: dict[str, list[str]] = {}
    for label, found in gallery.searched.items():
        reasons.setdefault(importance_note(found), []).append(label)
    return {
        "methods": {
            _place(gallery, label): _axes(found) for label, found in gallery.searched.items()
        },
        "notes": [[note, labels] for note, labels in reasons.items()],
    }


def _axes(found: Searched) -> dict[str, Plain]:
    axes: dict[str, Plain] = {}
    for path in found.values:
        if path in found.choices:
            axes[path] = {"choices": found.choices[path]}
        else:
            axes[path] = {"range": list(found.ranges[path]), "log": path in found.log}
    importances = None
    if found.importances is not None:
        importances = {path: _short(shares) for path, shares in found.importances.items()}
    return {"axes": axes, "importances": importances}


def _place(gallery: Gallery, label: str) -> str:
    return str(gallery.study.labels.index(label))


def _short(values: Iterable[float], digits: int = 4) -> list[float | None]:
    """Significant digits; null if not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
