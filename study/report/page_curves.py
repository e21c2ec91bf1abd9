"""The page's hypervolume, learning curves and searched values, in the figures' numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from study.analysis.importance import Searched
from study.analysis.progression import Growth, History, by_epoch
from study.report.figure_set import Gallery
from study.report.figures import (
    LINEAR,
    growth_note,
    importance_note,
    learning_note,
    settled_limits,
    volume_limits,
)
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
    """Validation metrics by epoch of one trial per method; of long trainings every n-th epoch."""
    histories = gallery.with_recorded("nll")
    if not histories:
        return None
    thinned = {label: _thinned(history) for label, history in histories.items()}
    panels: list[dict[str, Plain]] = []
    for name in ESSENTIAL:
        lines = {label: by_epoch(history, name)[1] for label, history in histories.items()}
        limits = settled_limits(list(lines.values()), name not in LINEAR)
        if limits is not None:
            values = {
                _place(gallery, label): _short(line[thinned[label]])
                for label, line in lines.items()
            }
            log = name not in LINEAR
            panels.append(
                {"label": displayed(name), "log": log, "limits": _short(limits), "lines": values}
            )
    epochs = {
        _place(gallery, label): [int(histories[label][k]["epoch"]) for k in kept]
        for label, kept in thinned.items()
    }
    return {"epochs": epochs, "panels": panels, "note": learning_note(gallery.chosen)}


def _thinned(history: History) -> list[int]:
    """The rows drawn: at most MOST_EPOCHS, evenly spaced, the first and the last among them."""
    return sorted(
        {round(k) for k in np.linspace(0, len(history) - 1, min(len(history), MOST_EPOCHS))}
    )


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
