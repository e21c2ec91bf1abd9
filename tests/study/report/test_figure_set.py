"""All figures of a study made in process: what is drawn, what is not and why, one line and
exit 2 for a mistake."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from optuna.distributions import CategoricalDistribution, FloatDistribution
from PIL import Image

from study.analysis.importance import Searched
from study.analysis.ranking import Ranking
from study.analysis.repeats import typical
from study.cli import main
from study.report import epoch_figures, figure_set, figures, style
from study.report.figure_set import FIGURES, MAPS, Gallery, draw
from study.report.style import COLOURS, WIDTH
from study.store.study import open_study
from study.store.trials import TrialRecord, Trials
from tests.study.made import (
    OBJECTIVES,
    made_study,
    random_predictions,
    trials_of,
    unwritten_study,
)
from trainables.outputs.predictions import Predictions

SPACE = {
    "method.gamma": FloatDistribution(0.1, 5, log=True),
    "method.schedule": CategoricalDistribution(["flsc_531", "flsc_532"]),
}
RESAMPLED = ("--bootstrap", 100)
METRICS = ("accuracy", "nll", "brier", "ece")
DIAGNOSED = (
    "nll_right",
    "nll_wrong",
    "entropy_right",
    "entropy_wrong",
    "head_norm",
    "feature_norm",
)


def history(generator, gamma, diagnosed, epochs=8):
    rows = []
    for epoch in range(1, epochs + 1):
        row = {"epoch": epoch} | {name: generator.random() / epoch for name in METRICS}
        row |= {f"gamma_q{q:02}": 1.0 + q / 50 for q in (5, 50, 95)} if gamma else {}
        rows.append(row | ({name: generator.random() for name in DIAGNOSED} if diagnosed else {}))
    return rows


def study_of(
    root, name, labels, trials, diagnosed=True, space=SPACE, gamma="gamma_net", classes=10
):
    generator = np.random.default_rng(0)

    def told(label):
        metrics = {"accuracy": generator.uniform(0.9, 1), "ece": generator.uniform(0, 0.1)}
        return metrics, history(generator, label == gamma, diagnosed)

    def predicted(label, number):
        seed = 100 * labels.index(label) + number
        return Predictions(random_predictions(seed).logits, random_predictions(0).labels)

    return made_study(
        root,
        name,
        {label: [told(label) for _ in range(trials)] for label in labels},
        space,
        predictions=predicted,
    )


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """`digits`: two methods of four trials, all recorded. Read only."""
    root = tmp_path_factory.mktemp("storage")
    study_of(root, "digits", ["focal", "gamma_net"], 4)
    return root


@pytest.fixture
def empty_files(monkeypatch):
    """In place of figures, which take long to draw: some tests are about which there are."""
    monkeypatch.setattr(figure_set, "save", lambda figure, file: file.touch())


def calstudy(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


@pytest.mark.slow
def test_all_are_drawn_at_column_width_in_every_format(storage, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(style, "DPI", 60)
    code, out, _ = calstudy(capsys, "figures", "digits", *RESAMPLED, "--storage", storage)
    assert code == 0 and "not drawn" not in out
    assert "not uploaded to MLflow" in out.splitlines()[-1]  # which has never heard of the study
    stems = {path.stem.split("-")[0] for path in (storage / "digits" / "figures").iterdir()}
    assert stems == set(FIGURES) - {MAPS}  # which are of masks
    for path in (storage / "digits" / "figures").iterdir():
        assert Image.open(path).width == pytest.approx(WIDTH * 60, abs=1)
    for suffix, magic in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        words = ("--storage", storage, "--format", suffix, "--only", "gamma", "--output", tmp_path)
        assert calstudy(capsys, "figures", "digits", *words)[0] == 0
        assert (tmp_path / f"gamma.{suffix}").read_bytes().startswith(magic)


def test_how_many_gammas_were_at_the_cap_is_said_where_any_were():
    """The most of any epoch. A history of an earlier version has none."""
    rows = history(np.random.default_rng(0), gamma=True, diagnosed=False, epochs=3)
    capped = [
        {**row, "gamma_capped": share} for row, share in zip(rows, (0.1, 0.62, 0.3), strict=True)
    ]
    drawn = epoch_figures.draw_gamma({"before": rows, "away": capped}, {}, "study", "each trial")
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == ["before", "away (up to 62% of samples at gamma_max)"]


@pytest.mark.slow
@pytest.mark.usefixtures("empty_files")
def test_no_history_no_gamma_nothing_searched_are_each_a_line(tmp_path, capsys):
    study_of(tmp_path, "plain", ["cross_entropy"], 1, diagnosed=False, space={})
    written, reasons = figures_of(tmp_path, "plain")
    assert {path.stem.split("-")[0] for path in written} == {
        "front",
        "reliability",
        "hypervolume",
        "learning",
    }
    assert [reason.split(":")[0] for reason in reasons] == [
        "hyperparameters",
        "gamma",
        "entropy",
        "norms",
    ]
    for name in ("entropy", "norms"):
        words = ("figures", "plain", "--storage", tmp_path, "--only", name)
        code, _, err = calstudy(capsys, *words)
        assert (code, err) == (
            2,
            f"figures: {name}: plain: it was not recorded; set `diagnostics: true` in the study.\n",
        )


@pytest.mark.slow
@pytest.mark.usefixtures("empty_files")
def test_an_altered_or_missing_file_is_named_and_the_rest_drawn(tmp_path):
    study = study_of(tmp_path, "digits", ["cross_entropy", "focal"], 1, space={}, gamma=None)
    files = {
        label: study.directory / "trials" / label / "0000" / "attempt-1" for label in study.labels
    }
    for directory in files.values():
        with (directory / "predictions.npz").open("ab") as file:
            file.write(b"x")
    (files["focal"] / "history.json").unlink()
    written, reasons = figures_of(tmp_path, "digits")
    assert {path.stem for path in written} == {
        "front",
        "hypervolume",
        "learning",
        "entropy",
        "norms",
    }
    text = "\n".join(reasons)
    assert "predictions.npz has changed (its digest differs from the ledger)" in text
    assert text.count("history.json is missing") == 1  # the other method's lines are drawn


@pytest.mark.parametrize("trials", [[], [({}, [])]], ids=["empty", "all failed"])
def test_without_a_complete_trial_nothing_is_drawn(tmp_path, capsys, trials):
    made_study(tmp_path, "digits", {"focal": trials, "mbls": []})
    code, out, err = calstudy(capsys, "figures", "digits", "--storage", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1) and "no complete trial" in err
    assert not (tmp_path / "digits" / "figures").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("empty_files")
def test_a_driver_may_tell_more_while_it_is_drawn(storage, tmp_path):
    """The values searched are read from the ledger again: only those of the
    trials at hand are drawn."""
    study = open_study("digits", str(storage))
    shown = {label: found[:-1] for label, found in study.records().by_label.items()}
    written, reasons = draw(Gallery(study, Trials(shown)), tmp_path, "png", "hyperparameters")
    assert len(written) == 2 and not reasons


@pytest.mark.slow
@pytest.mark.usefixtures("empty_files")
def test_the_trial_asked_for_is_the_one_shown(storage, tmp_path, capsys):
    words = (
        "figures",
        "digits",
        "--storage",
        storage,
        "--output",
        tmp_path,
        *RESAMPLED,
        "--only",
        "reliability",
        "--trial",
    )
    assert calstudy(capsys, *words, "focal/0003")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["reliability-focal-0003.png"]
    code, _, err = calstudy(capsys, *words, "focal/0099")
    assert code == 2 and "--trial: there is no trial 'focal/0099'" in err


def test_of_more_methods_than_colours_those_on_the_front_have_them(tmp_path):
    labels = [f"method_{k}" for k in range(9)]
    gallery = gallery_of(study_of(tmp_path, "many", labels, 2, space={}))
    styles, fronted = gallery.styles(), {record.label for record in gallery.front}
    assert set(styles) == fronted and {colour for colour, _ in styles.values()} <= set(COLOURS)
    figure = epoch_figures.draw_learning(gallery.repeats, styles, "many", gallery.chosen)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [*styles, f"{9 - len(fronted)} others"]
    colours = [to_hex(line.get_color()) for line in figure.axes[0].lines]
    assert colours.count(to_hex("0.75")) == 9 - len(fronted)


def told(history):
    return {"accuracy": 0.9, "ece": 0.1}, history


def drawn(study, name):
    """The figure, its caption on one line, and why lines are left out."""
    gallery = gallery_of(study)
    ((_, figure),) = FIGURES[name](gallery)
    return figure, " ".join(figure.get_supxlabel().split()), gallery.absent


def test_repeats_are_drawn_as_their_mean_and_a_band_from_lowest_to_highest(tmp_path):
    """Two methods without a search, three seeds each; one seed has no wrong prediction in epoch
    2."""
    generator = np.random.default_rng(1)
    told_of = {label: [history(generator, False, True) for _ in range(3)] for label in "ab"}
    del told_of["b"][2][1]["nll_wrong"]
    study = made_study(
        tmp_path, "digits", {label: list(map(told, rows)) for label, rows in told_of.items()}
    )
    figure, caption, absent = drawn(study, "entropy")
    assert caption.endswith(
        "Validation split; for each method, the mean over 3 seeds. Bands: from the lowest to the"
        " highest seed."
    )
    assert absent == []
    for axes, name in zip(
        figure.axes, ("nll_right", "nll_wrong", "entropy_right", "entropy_wrong"), strict=True
    ):
        for label, line, band in zip("ab", axes.lines, axes.collections, strict=True):
            table = [[row.get(name, math.nan) for row in rows] for rows in told_of[label]]
            np.testing.assert_allclose(line.get_xdata(), np.arange(1, 9))
            np.testing.assert_allclose(line.get_ydata(), np.nanmean(table, axis=0))
            edges = band.get_paths()[0].vertices
            for epoch in range(1, 9):
                at = edges[edges[:, 0] == epoch, 1]
                column = np.array(table)[:, epoch - 1]
                assert at.min() == pytest.approx(np.nanmin(column))
                assert at.max() == pytest.approx(np.nanmax(column))


def test_of_a_search_the_best_trial_is_drawn_beside_the_repeats_of_others(tmp_path):
    generator = np.random.default_rng(2)
    of_a = [history(generator, False, False) for _ in range(2)]
    trials = {"a": list(map(told, of_a)), "focal": []}
    study = made_study(tmp_path, "digits", trials)
    best = history(generator, False, False)
    worse = history(generator, False, False)
    found = [
        TrialRecord("focal", 0, "complete", {"method.gamma": 1.0}, {"accuracy": 0.8, "ece": 0.1}),
        TrialRecord("focal", 1, "complete", {"method.gamma": 2.0}, {"accuracy": 0.9, "ece": 0.1}),
    ]
    chosen = typical(Ranking(study, Trials({**study.records().by_label, "focal": found})))
    assert [record.name for record in chosen["focal"]] == ["focal/0001"]
    assert [record.name for record in chosen["a"]] == ["a/0000", "a/0001"]
    figure = epoch_figures.draw_learning({"a": of_a, "focal": [best]}, {}, "digits", "the best")
    caption = " ".join(figure.get_supxlabel().split())
    assert caption.startswith(
        "Validation split; for each method, the mean over 2 seeds, or the best if it has a search"
    )
    lines = [line.get_ydata() for line in figure.axes[0].lines]
    np.testing.assert_allclose(lines[1], [row["accuracy"] for row in best])
    assert worse != best


def test_repeats_stay_whole_although_one_of_them_is_excluded():
    """To leave it out would flatter the mean."""
    study = unwritten_study(["mbls"], sizes={"validation": 100}, majority=0.1)
    records = [
        TrialRecord("mbls", number, "complete", {}, {"accuracy": accuracy, "ece": 0.1})
        for number, accuracy in enumerate((0.9, 0.1))
    ]
    ranking = Ranking(study, trials_of(records))
    assert list(ranking.excluded) == ["mbls/0001"]
    assert typical(ranking) == {"mbls": records}


def test_norms_of_features_that_were_not_recorded_are_left_out_and_said(tmp_path):
    """Studies of earlier versions have the norm of the head alone."""
    generator = np.random.default_rng(3)
    newer = history(generator, False, True)
    older = [
        {key: value for key, value in row.items() if key != "feature_norm"}
        for row in history(generator, False, True)
    ]
    trials = {"new": [told(newer)], "old": [told(older)]}
    figure, caption, absent = drawn(made_study(tmp_path, "both", trials), "norms")
    head, features = figure.axes
    assert head.get_title() == "norm of the last layer" and len(head.lines) == 2
    np.testing.assert_allclose(
        features.lines[0].get_ydata(), [row["feature_norm"] for row in newer]
    )
    assert np.isnan(features.lines[1].get_ydata()).all()
    assert "what that layer receives" in caption
    (said,) = absent
    assert said.startswith("norms: the features of old: ")
    figure, caption, absent = drawn(made_study(tmp_path, "old", {"old": [told(older)]}), "norms")
    assert [axes.get_title() for axes in figure.axes] == ["norm of the last layer"]
    assert "receives" not in caption and len(absent) == 1


@pytest.mark.parametrize(
    ("importances", "said"),
    [
        ({"method.gamma": (0.75, math.nan), "optimizer.lr": (0.25, math.nan)}, "PED-ANOVA"),
        (None, "too few trials (3; at least 16 are needed)"),
    ],
)
def test_importances_stand_over_their_panels_or_are_said_to_be_none(importances, said):
    values = {"method.gamma": [1.0, 2.0, 3.0], "optimizer.lr": [0.1, 0.2, 0.3]}
    ranges = {"method.gamma": (0.0, 5.0), "optimizer.lr": (0.01, 1.0)}
    found = Searched([0, 1, 2], values, ranges, frozenset({"optimizer.lr"}), {}, importances)
    measured = [{"accuracy": 0.9 + k / 100, "ece": 0.1 - k / 100} for k in range(3)]
    records = [
        TrialRecord("focal", k, "complete", {}, metrics) for k, metrics in enumerate(measured)
    ]
    figure = figures.draw_searched(
        found, records, records[2:], OBJECTIVES, ("#0072B2", "o"), "digits: focal"
    )
    titles = (
        ["importance 0.75", "importance 0.25", "constant", "constant"] if importances else [""] * 4
    )
    assert [axes.get_title(loc="right") for axes in figure.axes] == titles
    assert said in " ".join(figure.get_supxlabel().split())
    assert [axes.get_xscale() for axes in figure.axes[:2]] == ["linear", "log"]
    edged = figure.axes[0].collections[1].get_offsets()
    assert [tuple(place) for place in edged] == [(3.0, pytest.approx(0.92))]  # the one on the front


def gallery_of(study):
    return Gallery(study, study.records())


def gallery_of_name(root, name):
    from study.store.study import open_study

    return gallery_of(open_study(name, str(root)))


def figures_of(root, name):
    return draw(gallery_of_name(root, name), root / name / "figures", "png")
