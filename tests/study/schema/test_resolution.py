"""What a split resolves before there are trials, against what was recorded."""

from pathlib import Path

from pytest import approx, mark

from study.schema.reading import spec_from_mapping
from study.schema.resolution import ACCURACIES, HALF_WIDTHS, half_width, resolution_line

PLAIN = {"name": "small", "data": {"name": "digits"}, "model": "mlp", "methods": ["focal"]}
POOLS = Path(__file__).parents[3] / "benchmarks/experiments/results/pools.md"


def line_for(*metrics: str) -> str:
    better = {"accuracy": "maximize"}
    objectives = [{"metric": name, "direction": better.get(name, "minimize")} for name in metrics]
    spec = spec_from_mapping({**PLAIN, "objectives": objectives}, "study.yaml")
    return resolution_line(spec, 287, "images")


def test_by_hand() -> None:
    """.35 / sqrt(287) = .0207; and .01 needs (.0207 / .01)^2 times the images."""
    assert half_width("accuracy", 287, 0) == approx(0.35 / 287**0.5)
    assert (
        line_for("accuracy", "ts_ece")
        == "287 validation images resolve ±0.021 to 0.050 in accuracy and ±0.045 to 0.105 in ECE"
        " between two networks of accuracy 0.95 to 0.49; for 0.01 in accuracy about 1,200 to 7,200"
        " images and for 0.01 in ECE about 5,800 to 32,000 images"
    )


def test_accuracies_are_resolved_as_their_disagreement_has_it() -> None:
    """1.96 times the root of the share of samples on which one of the two is right."""
    for place, disagreement in enumerate((0.032, 0.055, 0.195)):
        assert half_width("accuracy", 1, place) == approx(1.96 * disagreement**0.5, rel=0.05)


def test_the_numbers_are_those_that_were_recorded() -> None:
    rows = [line.split("|") for line in POOLS.read_text().splitlines() if line.startswith("| ")]
    names = next(row for row in rows if row[2].strip() == "accuracy of the pairs")
    columns = [name.strip() for name in names]
    found = rows[rows.index(names) + 1 :][: len(ACCURACIES)]
    for name, halves in HALF_WIDTHS.items():
        column = columns.index("accuracy" if name == "error" else name)
        recorded = [float(row[column].split()[0]) for row in found]
        assert halves == approx(recorded, abs=0.0051), name


@mark.parametrize("metric", ["mce", "classwise_ece"])
def test_of_what_was_not_recorded_nothing_is_said(metric: str) -> None:
    assert line_for(metric) == ""
    assert metric not in line_for("accuracy", metric)
