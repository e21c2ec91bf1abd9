"""Small tables of digits, for the command: of one study, or of two, one guided by the other."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from study.commands import plan
from tests.study.command_line import write_spec

TRAINED = {
    "data": {"name": "digits", "validation": 0.2, "augment": "none"},
    "search_space": {},
    "epochs": 2,
}
METHODS = ["cross_entropy", {"label": "focal_3", "name": "focal", "gamma": 3.0}]
COLUMNS = {
    "error": {"metric": "error", "percent": True, "digits": 2},
    "ece": {"metric": "ece", "percent": True, "digits": 2},
    "ts_ece": {"metric": "ece", "after": "ece_grid", "percent": True, "digits": 2},
    "temperature": {"metric": "temperature", "after": "ece_grid", "digits": 1, "step": 0.1},
    "nll_temperature": {"metric": "temperature", "after": "nll", "digits": 2},
}
PUBLISHED = {"CE": {"error": 9.5, "ece": 5.25}, "FL-3": {"error": 12.5, "ece": 25.0}}
CLAIM = {"says": "focal has higher ECE", "higher": "FL-3", "than": "CE", "column": "ece"}


def without_probe(patch: pytest.MonkeyPatch) -> None:
    """Nothing is probed, which takes processes of their own for five seconds a study."""
    patch.setattr(plan, "with_probe", lambda planned, *where: planned)
    patch.setattr(plan, "print_prediction", lambda *found: None)


def write_table(folder: Path, keys: dict[str, Any] | None = None, **spec: Any) -> Path:
    """mini.table.yaml of the study mini.yaml. keys: of the table, over these. spec: of the
    study."""
    write_spec(folder / "mini.yaml", **{"name": "mini", "methods": METHODS, **TRAINED, **spec})
    rows = [{"name": "CE", "label": "cross_entropy"}, {"name": "FL-3", "label": "focal_3"}]
    return _written(
        folder / "mini.table.yaml",
        {
            "title": "Digits, 50% of it made up",
            "source": "made up",
            "studies": [{"name": "mini"}],
            "classes": 10,
            "runs": 1,
            "columns": COLUMNS,
            "rows": rows,
            "published": {"all": PUBLISHED},
            "claims": [CLAIM],
            **(keys or {}),
        },
    )


def write_guided_table(folder: Path) -> Path:
    """guided.table.yaml, whose study `guided` is told by `target` what to train on."""
    write_spec(
        folder / "target.yaml",
        **{**TRAINED, "name": "target", "methods": ["cross_entropy"], "record": "train_entropy"},
    )
    of_a_half = {"name": "sample_prioritization", "fraction": 0.5}
    write_spec(
        folder / "guided.yaml",
        **{
            **TRAINED,
            "name": "guided",
            "methods": [
                {"label": "ce_50", **of_a_half, "base": "cross_entropy"},
                {"label": "focal_50", **of_a_half, "base": {"name": "focal", "gamma": 2.0}},
            ],
            "search_space": {"method.warmup": 0.5, "method.target": "target/cross_entropy/0"},
        },
    )
    columns = {"ece": {"metric": "sample_prioritization", "percent": True, "digits": 2}}
    return _written(
        folder / "guided.table.yaml",
        {
            "title": "Digits, half of them",
            "source": "made up",
            "studies": [{"name": "target", "seeds": 1}, {"name": "guided"}],
            "columns": {**columns, "ece_ours": COLUMNS["ece"]},
            "rows": [{"name": "CE-50", "label": "ce_50"}, {"name": "FL-50", "label": "focal_50"}],
            "published": {"all": {"CE-50": {"ece": 8.0}, "FL-50": {"ece": 20.0}}},
        },
    )


def _written(file: Path, plain: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump(plain, sort_keys=False))
    return file
