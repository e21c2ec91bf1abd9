"""A table of digits: its cells are what NumPy and SciPy find (digits/means.py), and a wrong loss
shows in its own row."""

from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from search_spaces import strict_yaml
from tests.study.command_line import here_json
from tests.study.reproduction.digits.means import ROWS, seeds_of
from tests.study.reproduction.tables import without_probe
from trainables.methods import focal

pytestmark = [pytest.mark.slow, pytest.mark.platform]

TABLE = Path(__file__).parent / "digits" / "digits.table.yaml"
MEANS = {
    "CE": {"brier": 0.0671, "ece": 2.28, "nll": 0.1626, "temperature": 0.83},
    "FL-3": {"brier": 0.0841, "ece": 6.96, "nll": 0.2031, "temperature": 0.54},
    "LS-0.2": {"brier": 0.1497, "ece": 24.02, "nll": 0.4084, "temperature": 0.32},
    "Brier": {"brier": 0.1098, "ece": 9.72, "nll": 0.2709, "temperature": 0.55},
    "Mixup": {"brier": 0.1067, "ece": 12.15, "nll": 0.2788, "temperature": 0.45},
    "CP": {"brier": 0.178, "ece": 28.81, "nll": 0.4632, "temperature": 0.28},
}
# Rounding differs by CPU; and an image in another bin.
CLOSE = {"brier": 0.001, "ece": 0.15, "nll": 0.001, "temperature": 0.015}


@pytest.fixture(autouse=True)
def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    without_probe(monkeypatch)


def cells_of(table: Path, storage: Path) -> dict[tuple[str, str], dict[str, Any]]:
    shown = here_json("reproduce", table, "--storage", storage)
    cells = {(cell["row"], cell["column"]): cell for cell in shown["cells"]}
    rows = strict_yaml.read(table)["rows"]
    assert len(cells) == 4 * len(rows) and {cell["seeds"] for cell in cells.values()} == {5}
    return cells


def test_means_and_intervals_are_numpys(tmp_path: Path) -> None:
    cells = cells_of(TABLE, tmp_path)
    assert len(cells) == 24
    for (row, column), cell in cells.items():
        assert cell["mean"] == approx(MEANS[row][column], abs=CLOSE[column]), (row, column)
    assert_as_numpy_says(cells, tmp_path / "digits_table")


def assert_as_numpy_says(cells: dict[tuple[str, str], dict[str, Any]], study: Path) -> None:
    """The mean and sd of each cell, and the interval of one that needs no temperature."""
    for row, label in ROWS.items():
        for column, values in seeds_of(study, label).items():
            cell = cells[row, column]
            assert cell["mean"] == approx(values.mean(), rel=1e-4, abs=1e-6), (row, column)
            assert cell["sd"] == approx(values.std(ddof=1), rel=1e-2), (row, column)
            half = 2.776445 * cell["sd"] / 5**0.5  # t of 4 at 97.5%
            assert cell["half"] >= half * (1 - 1e-6)
            if column != "temperature":
                assert cell["half"] == approx(half, rel=1e-6)


def test_a_wrong_loss_shows_in_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Focal loss with gamma + 2: its row differs in all that no temperature mends. Of the table's
    rows two are trained."""
    table = strict_yaml.read(TABLE)
    table["rows"] = [row for row in table["rows"] if row["name"] in ("CE", "FL-3")]
    rows = {row["name"] for row in table["rows"]}
    table["published"]["all"] = {name: table["published"]["all"][name] for name in rows}
    study = strict_yaml.read(TABLE.with_name("digits_table.yaml"))
    study["methods"] = study["methods"][:2]
    for name, plain in ((TABLE.name, table), ("digits_table.yaml", study)):
        (tmp_path / name).write_text(strict_yaml.dump(plain))
    right = focal.focal_loss
    monkeypatch.setattr(focal, "focal_loss", lambda x, y, gamma: right(x, y, gamma + 2))
    cells = cells_of(tmp_path / TABLE.name, tmp_path)
    for (row, column), cell in cells.items():
        is_as_before = cell["mean"] == approx(MEANS[row][column], abs=CLOSE[column])
        assert is_as_before == (row != "FL-3"), (row, column)
