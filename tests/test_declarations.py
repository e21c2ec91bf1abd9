"""What is read from a file is what importing it gives."""

from dataclasses import fields
from types import ModuleType

import pytest

from study.schema.explain import default_text
from study.terminal.catalogue import catalogue
from trainables import data, methods, metrics, models
from trainables.declarations import declarations

FOLDERS = {"methods": methods, "datasets": data, "models": models}
CLASSES = [(kind, package, name) for kind, package in FOLDERS.items() for name in package.names()]


@pytest.mark.parametrize(
    ("kind", "package", "name"), CLASSES, ids=[f"{kind}-{name}" for kind, _, name in CLASSES]
)
def test_the_settings_are_those_of_the_class(kind: str, package: ModuleType, name: str) -> None:
    cls = package.find(name)
    found = declarations(cls.__module__).fields(cls.__name__)
    assert list(found) == [spec.name for spec in fields(cls)]
    assert [spec.metadata for spec in found.values()] == [spec.metadata for spec in fields(cls)]
    (row,) = (row for row in catalogue(kind) if row["name"] == name)
    assert [setting["default"] for setting in row["settings"]] == [
        default_text(spec) for spec in fields(cls)
    ]


def test_the_summaries_are_the_first_lines_of_the_docstrings() -> None:
    rows = {row["name"]: row["summary"] for row in catalogue("metrics")}
    assert (
        rows["nll"]
        == "Mean of -log p_y, in nats. A proper score: report it with any calibration error."
    )
    assert {
        name: (metrics.find(name).__doc__ or "").splitlines()[0] for name in metrics.described()
    }.items() <= rows.items()
    assert rows["ts_nll"] == "after cross-fitted temperature scaling: nll"
    rows = {row["name"]: row["summary"] for row in catalogue("methods")}
    assert (
        rows["focal"] == "Focal loss. Lin et al. 2017, Eq. 4; for calibration, Mukhoti et al. 2020."
    )
