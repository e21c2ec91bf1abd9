"""Probabilities are binned as they were given: metrics of fractions in exact arithmetic."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pytest import approx

from study.uncertainty.bootstrap import estimates_of, intervals_of, measured
from study.uncertainty.resampling import draws_for
from tests.references import exact
from tests.study.command_line import here_json
from trainables import metrics
from trainables.outputs.predictions import Predictions

BINNED = sorted(exact.metrics([[Fraction(1), Fraction(0)]] * 20, [0] * 20))
DTYPES = (np.float64, np.float32)


def fractions(
    parts: int, classes: int, n: int = 100, seed: int = 0
) -> tuple[list[list[Fraction]], list[int]]:
    """Rows of multiples of 1 / parts with one largest, often on an edge, and labels after them."""
    source = np.random.default_rng([seed, parts, classes])
    rows: list[list[Fraction]] = []
    labels = []
    while len(rows) < n:
        counts = source.multinomial(parts, source.dirichlet([0.5] * classes))
        if (counts == counts.max()).sum() > 1:
            continue
        rows.append([Fraction(int(count), parts) for count in counts])
        labels.append(int(source.choice(classes, p=0.8 * counts / parts + 0.2 / classes)))
    return rows, labels


def given(rows: list[list[Fraction]], labels: list[int], dtype: type = np.float64) -> Predictions:
    probs = np.array([[float(p) for p in row] for row in rows], dtype)
    return Predictions(probs=torch.from_numpy(probs), labels=torch.tensor(labels))


def measure(predictions: Predictions) -> dict[str, float]:
    return metrics.measure(predictions.logits, predictions.labels, BINNED, probs=predictions.probs)


CASES = [(5, 3), (10, 2), (10, 6), (15, 3), (20, 6), (100, 3)]  # parts of 1, classes


@pytest.mark.parametrize(("parts", "classes"), CASES)
def test_a_probability_on_an_edge_is_in_the_bin_below(parts: int, classes: int) -> None:
    rows, labels = fractions(parts, classes)
    expected = exact.metrics(rows, labels)
    for dtype, digits in ((np.float64, 1e-12), (np.float32, 1e-6)):
        # Of the values; none is in another bin.
        assert measure(given(rows, labels, dtype)) == approx(expected, abs=digits), dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("parts", "classes"), CASES)
def test_no_order_of_classes_or_rows_changes_a_metric(
    parts: int, classes: int, dtype: type
) -> None:
    rows, labels = fractions(parts, classes, seed=1)
    source = np.random.default_rng(2)
    place = source.permutation(classes)
    order = source.permutation(len(rows))
    moved = [[rows[i][k] for k in place] for i in order]
    theirs = [int(np.flatnonzero(place == labels[i])[0]) for i in order]
    found = measure(given(rows, labels, dtype))
    assert measure(given(moved, theirs, dtype)) == approx(found, abs=1e-12)


@pytest.mark.parametrize(("parts", "classes"), CASES)
def test_what_is_tied_stays_so_after_a_temperature(parts: int, classes: int) -> None:
    """Else equal votes for other classes are in other bins of equal counts."""
    rows, labels = fractions(parts, classes, n=300, seed=5)
    place = list(range(classes))[::-1]
    moved = given([[row[k] for k in place] for row in rows], [place.index(y) for y in labels])
    wanted = [f"{prefix}{name}" for name in BINNED for prefix in ("", "ts_")]
    found = moved.evaluate(also=wanted)
    expected = given(rows, labels).evaluate(also=wanted)
    for name in wanted:
        assert found.get(name) == approx(expected.get(name), abs=1e-12), name


@pytest.mark.parametrize(("parts", "classes"), CASES)
def test_intervals_and_floors_are_of_the_same_bins(parts: int, classes: int) -> None:
    """No order of classes moves an end. (Floors of classwise errors draw labels class by class.)"""
    rows, labels = fractions(parts, classes, seed=3)
    top = ["ece", "mce", "adaptive_ece", "debiased_l2"]
    wanted = [*top, "classwise_ece", "brier"]
    values = exact.metrics(rows, labels)
    ends = []
    for place in (list(range(classes)), list(range(classes))[::-1]):
        moved = given([[row[k] for k in place] for row in rows], [place.index(y) for y in labels])
        resampled = measured(moved, draws_for(moved, 200), wanted)
        estimates = estimates_of(resampled)
        for name in wanted:
            assert estimates[name] == approx(values[name], abs=1e-12)
        found = intervals_of(resampled, top)
        ends.append({f"{name} {end}": value for name in top for end, value in flat(found[name])})
    assert ends[0] == approx(ends[1], abs=1e-6)  # resamples are summed in float32


def flat(interval: Any) -> list[tuple[str, float]]:
    floor = [] if interval.floor is None else list(interval.floor._asdict().items())
    return [("low", interval.low), ("high", interval.high), *floor]


def as_npz(probs: np.ndarray, labels: list[int], file: Path) -> None:
    np.savez(file, probs=probs, labels=labels)


def as_table(probs: np.ndarray, labels: list[int], file: Path) -> None:
    frame = pd.DataFrame(probs).add_prefix("prob_").assign(label=labels)
    frame.to_csv(file, index=False) if file.suffix == ".csv" else frame.to_parquet(file)


@pytest.mark.parametrize(
    ("name", "write", "dtype"),
    [
        ("p.npz", as_npz, np.float64),
        ("p.csv", as_table, np.float32),
        ("p.parquet", as_table, np.float64),
    ],
)
def test_the_command_bins_a_file_so(
    name: str,
    write: Callable[[np.ndarray, list[int], Path], None],
    dtype: type,
    tmp_path: Path,
) -> None:
    rows, labels = fractions(20, 3)
    write(np.array([[float(p) for p in row] for row in rows], dtype), labels, tmp_path / name)
    words = ("evaluate", tmp_path / name, "--metrics", ",".join(BINNED), "--json")
    found = here_json(*words)["metrics"]
    expected = exact.metrics(rows, labels)
    assert {name: found[name] for name in expected} == approx(expected, abs=1e-6)


@pytest.mark.parametrize("make", ["forest", "neighbours"])
def test_votes_of_scikit_learn(make: str) -> None:
    """Ten trees grown to their leaves, and ten neighbours: every probability is a tenth."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier

    x, y = load_digits(return_X_y=True)
    model = {
        "forest": RandomForestClassifier(n_estimators=10, random_state=0),
        "neighbours": KNeighborsClassifier(n_neighbors=10),
    }[make].fit(x[:600], y[:600])
    probs = model.predict_proba(x[600:670])
    rows = [[Fraction(round(10 * p), 10) for p in row] for row in probs]
    assert np.abs(probs - np.array(rows, float)).max() < 1e-15
    predictions = Predictions(probs=torch.from_numpy(probs), labels=torch.from_numpy(y[600:670]))
    expected = exact.metrics(rows, y[600:670].tolist())
    assert measure(predictions) == approx(expected, abs=1e-12)
