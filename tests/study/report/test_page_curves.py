"""The page's curves and searched values, against what matplotlib is given to
draw of the same study."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution

from study.report.figure_set import FIGURES, Gallery
from study.report.page_curves import MOST_EPOCHS, curves
from study.store.study import Study
from tests.study.made import made_study

SPACE = {
    "method.gamma": FloatDistribution(0.1, 5, log=True),
    "method.schedule": CategoricalDistribution(["flsc_531", "flsc_532"]),
}
LABELS = ["focal", "mbls"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """focal: 18 trials of 120 epochs; mbls: 3, one of which failed."""
    random = np.random.default_rng(0)

    def trial():
        rows = [
            {
                "epoch": 1 + k,
                **{name: random.random() for name in ("accuracy", "nll", "brier", "ece")},
            }
            for k in range(120)
        ]
        return {"accuracy": random.uniform(0.9, 1), "ece": random.uniform(0, 0.1)}, rows

    trials = {"focal": [trial() for _ in range(18)], "mbls": [trial(), ({}, []), trial()]}
    return made_study(tmp_path_factory.mktemp("storage"), "curves", trials, SPACE)


def figure_of(study: Study, name: str) -> Figure:
    ((_, figure), *_) = FIGURES[name](Gallery(study, study.records()))
    return figure


def test_hypervolume_is_the_figures_step_by_step(study):
    found = curves(Gallery(study, study.records()))["growth"]
    whole, per_method = (
        figure_of(study, "hypervolume").axes[:2],
        figure_of(study, "hypervolume").axes[2:],
    )
    drawn = [
        (found["whole"], whole, 0),
        *((found["methods"][str(k)], per_method, k) for k in range(2)),
    ]
    for steps, axes, line in drawn:
        for column, axis in enumerate(axes):
            x, y = axis.lines[line].get_data()
            # Steps hold until the next.
            at = np.searchsorted([step[column] for step in steps], x, side="right") - 1
            volumes = np.where(at < 0, 0.0, [steps[k][2] for k in at])
            np.testing.assert_allclose(volumes, y, rtol=1e-5)
        assert len(steps) < len(x) or len(x) <= 3
    for limits, axes in zip(found["limits"], (whole, per_method), strict=True):
        assert limits == pytest.approx(axes[0].get_ylim(), rel=1e-5)
    assert found["note"] in " ".join(figure_of(study, "hypervolume").get_supxlabel().split())


def test_learning_curves_are_the_figures_with_fewer_epochs(study):
    found = curves(Gallery(study, study.records()))["learning"]
    figure = figure_of(study, "learning")
    for panel, axes in zip(found["panels"], figure.axes, strict=True):
        assert panel["label"] == axes.get_title() and panel["log"] == (axes.get_yscale() == "log")
        assert panel["limits"] == pytest.approx(axes.get_ylim(), rel=1e-3)
        for place, line in zip(range(2), axes.lines, strict=True):
            epochs, (x, y) = found["epochs"][str(place)], line.get_data()
            assert len(epochs) == MOST_EPOCHS and (epochs[0], epochs[-1]) == (1, 120)
            assert panel["lines"][str(place)] == pytest.approx(
                y[np.searchsorted(x, epochs)], rel=1e-3
            )
    assert found["note"] in " ".join(figure.get_supxlabel().split())


def test_the_learning_curve_of_repeats_is_the_figures_mean(tmp_path):
    random = np.random.default_rng(1)
    histories = [
        [{"epoch": 1 + k, "nll": random.random(), "ece": random.random()} for k in range(6)]
        for _ in range(3)
    ]
    told = [({"accuracy": 0.9, "ece": 0.1}, rows) for rows in histories]
    study = made_study(tmp_path, "repeats", {"mbls": told})
    found = curves(Gallery(study, study.records()))["learning"]
    nll, ece = found["panels"]
    for panel, name in ((nll, "nll"), (ece, "ece")):
        mean = np.mean([[row[name] for row in rows] for rows in histories], axis=0)
        assert panel["lines"]["0"] == pytest.approx(mean, rel=1e-3)
    assert found["epochs"] == {"0": [1, 2, 3, 4, 5, 6]}
    figure = figure_of(study, "learning")
    assert nll["limits"] == pytest.approx(figure.axes[1].get_ylim(), rel=1e-3)
    assert found["note"] == "Validation split; for each method, the mean over 3 seeds."
    assert found["note"] in " ".join(figure.get_supxlabel().split())


def test_importances_and_axes_are_the_figures(study):
    found = curves(Gallery(study, study.records()))["searched"]
    titles = [axes.get_title(loc="right") for axes in figure_of(study, "hyperparameters").axes]
    focal, mbls = found["methods"]["0"], found["methods"]["1"]
    shares = [
        focal["importances"][path][row] for row in range(2) for path in focal["axes"]
    ]  # as the panels: row by row
    assert [f"importance {share:.2f}" for share in shares] == titles
    assert focal["axes"]["method.gamma"] == {"range": [0.1, 5.0], "log": True}
    assert focal["axes"]["method.schedule"] == {"choices": ["flsc_531", "flsc_532"]}
    assert mbls["importances"] is None
    assert ["No importances: too few trials (2; at least 16 are needed).", ["mbls"]] in found[
        "notes"
    ]


def test_a_missing_history_is_noted_and_the_rest_drawn(tmp_path):
    row = [{"epoch": 1, "nll": 0.5}]
    study = made_study(
        tmp_path, "torn", {label: [({"accuracy": 0.9, "ece": 0.1}, row)] for label in LABELS}
    )
    records = study.records()
    (study.files(records.of("focal")[0]) / "history.json").unlink()
    found = curves(Gallery(study, records))
    assert list(found["learning"]["epochs"]) == ["1"] and [
        panel["label"] for panel in found["learning"]["panels"]
    ] == ["NLL in nats"]
    (note,) = found["notes"]
    assert note.startswith("No learning curve: focal/0000: ") and "history.json is missing" in note
    json.dumps(found, allow_nan=False)


def test_without_a_complete_trial_nothing_is_drawn(tmp_path):
    study = made_study(tmp_path, "none", {"focal": [({}, [])]})
    found = curves(Gallery(study, study.records()))
    assert found == {"growth": None, "learning": None, "searched": None, "notes": []}
