"""A table of digits, "published" by 20 other seeds: five seeds agree with it until a loss is wrong.

The published values and the means held here are NumPy's and SciPy's: digits/means.py.
"""

from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from tests.study.command_line import here_json
from tests.study.reproduction.digits.means import DECIMALS, ROWS, seeds_of
from tests.study.reproduction.tables import without_probe
from trainables.methods import focal

pytestmark = [pytest.mark.slow, pytest.mark.platform]

TABLE = Path(__file__).parent / "digits" / "digits.table.yaml"
# Of 287 validation images, these temperatures spread as far as the methods lie apart.
NOT_JUDGED = {("CE", "temperature"), ("FL-3", "temperature")}
AT_THE_LIMIT = {("Brier", "temperature")}  # its half-width is 99% of it here
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


def cells_of(storage: Path) -> dict[tuple[str, str], dict[str, Any]]:
    shown = here_json("reproduce", TABLE, "--storage", storage)
    cells = {(cell["row"], cell["column"]): cell for cell in shown["cells"]}
    assert len(cells) == 24 and {cell["seeds"] for cell in cells.values()} == {5}
    assert with_verdict(cells, "cannot be judged") - AT_THE_LIMIT == NOT_JUDGED
    assert shown["judged"] in (21, 22)
    return cells


def with_verdict(cells: dict[tuple[str, str], dict[str, Any]], word: str) -> set[tuple[str, str]]:
    return {at for at, cell in cells.items() if cell["verdict"] == word}


def test_seeds_agree_with_the_means_of_other_seeds(tmp_path: Path) -> None:
    cells = cells_of(tmp_path)
    for (row, column), cell in cells.items():
        assert cell["ours"] == approx(MEANS[row][column], abs=CLOSE[column]), (row, column)
    assert with_verdict(cells, "differs") == set()
    assert_as_numpy_says(cells, tmp_path / "digits_table")


def assert_as_numpy_says(cells: dict[tuple[str, str], dict[str, Any]], study: Path) -> None:
    """The mean and sd of each cell, and the interval of one that needs no temperature."""
    for row, label in ROWS.items():
        for column, values in seeds_of(study, label).items():
            cell = cells[row, column]
            assert cell["ours"] == approx(values.mean(), rel=1e-4, abs=1e-6), (row, column)
            assert cell["sd"] == approx(values.std(ddof=1), rel=1e-2), (row, column)
            rounding = 0.5 * 10.0 ** -DECIMALS[column]
            half = 2.776445 * cell["sd"] * (1 / 5 + 1 / 20) ** 0.5 + rounding  # t of 4 at 97.5%
            assert cell["half"] >= half * (1 - 1e-6)
            if column != "temperature":
                assert cell["half"] == approx(half, rel=1e-6)


def test_a_wrong_loss_shows_in_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Focal loss with gamma + 2: its row differs in all that no temperature mends."""
    right = focal.focal_loss
    monkeypatch.setattr(focal, "focal_loss", lambda x, y, gamma: right(x, y, gamma + 2))
    cells = cells_of(tmp_path)
    assert with_verdict(cells, "differs") == {("FL-3", name) for name in ("brier", "ece", "nll")}
    for (row, column), cell in cells.items():
        is_as_before = cell["ours"] == approx(MEANS[row][column], abs=CLOSE[column])
        assert is_as_before == (row != "FL-3"), (row, column)
