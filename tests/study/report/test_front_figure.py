"""The figure of a front, read back from the drawing: what is where, what it is
called, what lies outside."""

import math
import random
from functools import partial

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from study.report.front_figure import axis_label, draw_front, in_reach, write_figure
from study.report.style import COLOURS, DPI, MARKERS, WIDTH
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.problems import FieldError

ACCURACY, ECE = Objective("accuracy", "maximize"), Objective("ece", "minimize")
NLL = Objective("ts_nll", "minimize")
BOTH = (ACCURACY, ECE)
LABELS = ["cross_entropy", "focal", "label_smoothing", "mbls", "sece_on_focal"]


def trial(label, number, accuracy, ece, nll=1.0, state="complete"):
    measured = {"accuracy": accuracy, "ece": ece, "ts_nll": nll}
    return TrialRecord(label, number, state, {}, measured if state == "complete" else {})


def study(labels=LABELS, trials=24):
    source = random.Random(0)
    return [
        trial(label, number, source.uniform(0.85, 0.98), source.uniform(0.01, 0.2), source.random())
        for label in labels
        for number in range(trials)
    ]


# focal/0003 is beaten.
HAND = [
    trial("focal", 1, 0.98, 0.10),
    trial("mbls", 7, 0.97, 0.03),
    trial("focal", 2, 0.93, 0.01),
    trial("focal", 3, 0.92, 0.09),
]


def legend_names(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def caption(figure):
    return figure.get_supxlabel()


def lines(figure, marker):
    return [line for line in figure.axes[0].lines if line.get_marker() == marker]


def drawn(figure):
    """Centres of all scattered markers, the trials first and those on the front once more."""
    return [
        tuple(map(float, place))
        for dots in figure.axes[0].collections
        for place in dots.get_offsets()
    ]


def test_names_of_axes_legend_title_and_caption():
    figure = draw_front(HAND, BOTH, "digits", "1,437 validation samples", ringed=HAND[1])
    (axes,) = figure.axes
    assert axes.get_xlabel() == "accuracy, validation (higher is better)"
    assert axes.get_ylabel() == "ECE, validation (lower is better)"
    assert legend_names(figure) == [
        "focal",
        "mbls",
        "Pareto front (3)",
        f"model to take: {HAND[1].name}",
    ]
    assert figure.legends[0].get_title().get_text() == "digits"
    assert caption(figure) == "1,437 validation samples; 4 complete trials; no intervals."
    assert axes.get_xscale() == axes.get_yscale() == "linear"


@pytest.mark.parametrize(
    ("metric", "direction", "expected"),
    [
        ("ts_ece", "minimize", "ECE after temperature scaling, validation (lower is better)"),
        ("error", "minimize", "error, validation (lower is better)"),
        ("top5_accuracy", "maximize", "top-5 accuracy, validation (higher is better)"),
        ("nll", "minimize", "NLL in nats, validation (lower is better)"),
    ],
)
def test_axis_label(metric, direction, expected):
    assert axis_label(Objective(metric, direction)) == expected


def test_another_trial_is_marked_by_its_own_word():
    """As `calstudy pareto --figure` does."""
    figure = draw_front(HAND, BOTH, "digits", ringed=HAND[1], word="knee")
    assert legend_names(figure)[-1] == f"knee: {HAND[1].name}"


def test_every_complete_trial_is_a_point_and_the_front_is_joined_by_its_steps():
    unfinished = [trial("focal", 4, 0, 0, state="running"), trial("dece", 0, 0, 0, state="failed")]
    figure = draw_front([*HAND, *unfinished], BOTH, "digits")
    points = [(0.98, 0.10), (0.97, 0.03), (0.93, 0.01), (0.92, 0.09)]
    assert sorted(drawn(figure)) == sorted(points + points[:3])
    (front,) = lines(figure, "None")
    # Steps through the corners (0.97, 0.10) and (0.93, 0.03): each as bad as
    # the worse of its neighbours.
    assert front.get_drawstyle() == "steps-post"
    assert front.get_xdata() == pytest.approx([0.98, 0.97, 0.93])
    assert front.get_ydata() == pytest.approx([0.10, 0.03, 0.01])
    assert not lines(figure, "o")  # no model is taken yet
    (ring,) = lines(draw_front(HAND, BOTH, "digits", ringed=HAND[0]), "o")
    assert (*ring.get_xdata(), *ring.get_ydata()) == drawn(draw_front(HAND[:1], BOTH, "t"))[0]
    assert "dece" not in legend_names(figure)


def test_methods_differ_in_colour_and_in_marker():
    labels = [f"method_{n}" for n in range(14)]
    handles = draw_front(study(labels, 3), BOTH, "t").legends[0].legend_handles[:14]
    looks = [(to_hex(handle.get_color()), handle.get_marker()) for handle in handles]
    assert len(set(looks)) == 14
    assert len({colour for colour, _ in looks[:6]}) == len({marker for _, marker in looks[:6]}) == 6
    assert math.gcd(len(COLOURS), len(MARKERS)) == 1  # else pairs come again before all are used


@pytest.mark.parametrize("objectives", [(ECE,), BOTH, (*BOTH, NLL)], ids=["one", "two", "three"])
@pytest.mark.parametrize(
    "labels", [LABELS, [f"sample_prioritization_{n}" for n in range(14)]], ids=["5", "14"]
)
def test_nothing_overlaps_or_leaves_the_page(objectives, labels):
    figure = draw_front(
        study(labels), objectives, "accuracy against calibration error", "360 validation samples"
    )
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    (axes,) = figure.axes
    plot, page = axes.get_tightbbox(renderer), figure.bbox
    legend = figure.legends[0].get_window_extent(renderer)
    note = figure._supxlabel.get_window_extent(renderer)
    assert legend.y0 >= plot.y1 - 1 and note.y1 <= plot.y0 + 1  # pixels
    for box in (plot, legend, note):
        assert box.x0 >= -1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1
    assert (
        axes.get_window_extent(renderer).height
        > (0.2 if len(objectives) == 1 else 0.5) * page.height * 0.8
    )


def test_trials_that_went_wrong_lie_outside_and_are_counted():
    source = random.Random(1)
    wrong = [
        trial("focal", 100 + n, source.uniform(0.05, 0.15), source.uniform(0.4, 0.8))
        for n in range(40)
    ]
    sound = study()
    figure = draw_front([*sound, *wrong], BOTH, "t")
    (axes,) = figure.axes
    said = "40 trials lie outside the axes: open triangles at the edge."
    assert said in " ".join(caption(figure).split())
    marks = [each for each in axes.collections if not each.get_clip_on()]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert all(
        left < record.metrics["accuracy"] < right and bottom < record.metrics["ece"] < top
        for record in sound
    )
    at = np.array([each.get_offsets()[0] for each in marks])
    # Worse in both: to the left, and as far up as the edge.
    assert len(at) == 40 and np.allclose(at[:, 0], left) and np.allclose(at[:, 1], top)
    assert "outside" not in caption(draw_front(sound, BOTH, "t"))


def test_one_trial_that_went_wrong():
    figure = draw_front([*study(), trial("focal", 100, 0.1, 0.9)], BOTH, "t")
    said = "1 trial lies outside the axes: an open triangle at the edge."
    assert " ".join(caption(figure).split()).endswith(said)


def test_one_of_the_front_that_guesses_does_not_squash_the_rest():
    """Right by chance and perfectly calibrated, as constant confidences are."""
    guessing = trial("focal", 100, 0.1, 0.0)
    figure = draw_front([*study(), guessing], BOTH, "t")
    said = "1 trial lies outside the axes, 1 of them on the Pareto front: an open triangle at the"
    assert f"{said} edge." in " ".join(caption(figure).split())
    assert figure.axes[0].get_xlim()[0] > 0.5


def test_the_ringed_one_never_lies_outside():
    far = trial("focal", 100, 0.1, 0.0)
    figure = draw_front([*study(), far], BOTH, "t", ringed=far)
    assert "outside" not in caption(figure)
    assert figure.axes[0].get_xlim()[0] < 0.1


def test_in_reach_by_hand():
    """Six times what half of the front takes, 1 from the best value, 0."""
    values = np.array([0.0, 1.0, 1.0, 1.0, 5.9, 6.1, 90.0])
    assert in_reach(values, np.array([0.0, 1.0, 90.0])).tolist() == [True] * 5 + [False] * 2


def test_in_reach_where_the_front_is_one_point():
    """Then six times the lower quartile, 2, of those that are worse; the many that equal
    the best do not count."""
    values = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 11.0, 13.0])
    assert in_reach(values, np.array([0.0])).tolist() == [True] * 8 + [False]
    assert in_reach(np.zeros(3), np.zeros(1)).all()


def test_one_objective_is_a_strip_for_each_method():
    figure = draw_front(study(), (ACCURACY,), "t")
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == LABELS
    assert legend_names(figure) == []
    assert axes.get_xlabel() == "accuracy, validation (higher is better)"
    for place, dots in enumerate(axes.collections[:5]):
        x, y = np.asarray(dots.get_offsets()).T
        assert x.tolist() == [r.metrics["accuracy"] for r in study() if r.label == LABELS[place]]
        assert np.all(np.abs(y - place) < 0.31) and len(set(y)) == 24
    assert not lines(figure, "o")


def test_three_objectives_draw_two_and_say_so():
    hidden_strength = trial("focal", 3, 0.92, 0.09, nll=0.1)  # beaten in the two that are drawn
    figure = draw_front([*HAND[:3], hidden_strength], (*BOTH, NLL), "t")
    assert legend_names(figure)[-1] == "Pareto front (4)"
    assert "Pareto front of all 3 objectives; ts_nll not drawn." in caption(figure)
    assert lines(figure, "None") == []


def test_one_trial_and_equal_trials_can_be_drawn():
    for records in (HAND[:1], [trial("focal", n, 0.9, 0.1) for n in range(3)]):
        (axes,) = draw_front(records, BOTH, "t").axes
        left, right = axes.get_xlim()
        assert left < records[0].metrics["accuracy"] < right


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([], "figure: no complete trial to draw: the study has no trials."),
        (
            [trial("focal", 0, 0, 0, state="running"), trial("focal", 1, 0, 0, state="failed")],
            "figure: no complete trial to draw: 1 failed, 1 not done.",
        ),
    ],
)
def test_nothing_to_draw(records, problem, tmp_path):
    with pytest.raises(FieldError) as caught:
        write_figure(tmp_path / "front.png", partial(draw_front, records, BOTH, "t"))
    assert str(caught.value) == problem
    assert not (tmp_path / "front.png").exists()


@pytest.mark.parametrize(
    ("suffix", "begin"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml")]
)
def test_front_figure_writes_by_suffix(suffix, begin, tmp_path):
    file = tmp_path / "figures" / f"front.{suffix}"
    write_figure(file, partial(draw_front, study(), BOTH, "digits"))
    assert file.read_bytes().startswith(begin)
    assert b"/Type3" not in file.read_bytes()


def test_a_png_is_as_wide_as_a_column(tmp_path):
    write_figure(tmp_path / "front.png", partial(draw_front, study(), BOTH, "digits"))
    with Image.open(tmp_path / "front.png") as image:
        assert image.width == round(WIDTH * DPI) == 1050
        assert len(image.convert("RGB").getcolors(maxcolors=1050 * 1600)) > 20  # not an empty page


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(
        FieldError, match=r"figure: 'front.bmp' must end in one of .png, .pdf, .svg\."
    ):
        write_figure(tmp_path / "front.bmp", partial(draw_front, HAND, BOTH, "t"))
