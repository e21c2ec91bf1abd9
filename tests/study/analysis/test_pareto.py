"""Front, hypervolume, knee against enumeration, cell counting,
inclusion-exclusion and values by hand."""

import csv
import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pytest import approx

from study.analysis import pareto
from study.analysis.pareto import front, front_rows, hypervolume, knee, worst_point, write_front_csv
from study.schema.objective import Objective
from study.store.trials import TrialRecord

ACCURACY, ECE, ERROR = (
    Objective("accuracy", "maximize"),
    Objective("ece", "minimize"),
    Objective("error", "minimize"),
)
NLL, BRIER, MCE = (
    Objective("nll", "minimize"),
    Objective("brier", "minimize"),
    Objective("mce", "minimize"),
)
BOTH = (ACCURACY, ECE)
FRACTIONS = (ACCURACY, ECE, ERROR, MCE)  # reference 0, 1, 1, 1


def trial(number, values, objectives=BOTH, label="focal", state="complete"):
    measured = {
        objective.metric: value for objective, value in zip(objectives, values, strict=True)
    }
    return TrialRecord(label, number, state, {}, measured if state == "complete" else {})


def trials(points, objectives=BOTH):
    return [trial(number, point, objectives) for number, point in enumerate(points)]


def numbers(records):
    return [record.number for record in records]


# ---- front ---------------------------------------------------------------------------------------


def undominated(records, objectives):
    """From the definition: no trial is at least as good everywhere and better somewhere."""
    better = {"maximize": lambda a, b: a > b, "minimize": lambda a, b: a < b}

    def beats(one, other):
        pairs = [
            (one.metrics[o.metric], other.metrics[o.metric], better[o.direction])
            for o in objectives
        ]
        return any(is_better(a, b) for a, b, is_better in pairs) and not any(
            is_better(b, a) for a, b, is_better in pairs
        )

    return {record.name for record in records if not any(beats(other, record) for other in records)}


def test_front_of_every_set_of_points_of_a_lattice():
    lattice = list(itertools.product([0.0, 0.5, 1.0], repeat=2))
    for size in range(len(lattice) + 1):
        for points in itertools.combinations(lattice, size):
            records = trials(points)
            assert {record.name for record in front(records, BOTH)} == undominated(records, BOTH), (
                points
            )


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_front_of_random_lattice_points_with_equals(dimensions):
    source = random.Random(dimensions)
    objectives = FRACTIONS[:dimensions]
    for _ in range(100):
        points = [[source.randrange(4) / 4 for _ in objectives] for _ in range(30)]
        records = trials(points, objectives)
        found = front(records, objectives)
        assert {record.name for record in found} == undominated(records, objectives)
        assert len({record.name for record in found}) == len(found)


def test_front_is_ordered_and_keeps_equals():
    a, b = trial(3, (0.9, 0.1), label="mbls"), trial(10, (0.9, 0.1), label="focal")
    c, d = trial(9, (0.9, 0.1), label="focal"), trial(0, (0.95, 0.2), label="sece")
    beaten = trial(1, (0.9, 0.15))
    for order in itertools.permutations([a, b, c, d, beaten]):
        assert front(list(order), BOTH) == [d, c, b, a]


def test_only_complete_trials_are_on_the_front():
    records = [
        trial(0, (0.5, 0.5)),
        *(trial(n, (1, 0), state=s) for n, s in enumerate(["running", "pruned", "failed"], 1)),
    ]
    assert numbers(front(records, BOTH)) == [0]
    assert front(records[1:], BOTH) == []
    assert front([], BOTH) == []


def test_front_of_ten_thousand_trials_takes_two_comparisons_a_trial(monkeypatch):
    asked = []
    monkeypatch.setattr(
        pareto, "operator", SimpleNamespace(le=lambda one, other: asked.append(1) or one <= other)
    )
    source = random.Random(0)
    mixed = trials([(source.random(), source.random()) for _ in range(10_000)])
    all_kept = trials([(n / 10_000, n / 10_000) for n in range(10_000)])
    few, many = front(mixed, BOTH), front(all_kept, BOTH)
    assert len(asked) <= 2 * 20_000
    assert 1 <= len(few) < 100 and len(many) == 10_000


# ---- hypervolume ---------------------------------------------------------------------------------


def volume_of(points, objectives, num_classes=10):
    return hypervolume(trials(points, objectives), objectives, worst_point(objectives, num_classes))


@pytest.mark.parametrize(
    ("objectives", "point", "expected"),
    [
        ([ACCURACY], (0.9,), 0.9),
        ([ERROR], (0.1,), 0.9),
        ([NLL], (0.3,), math.log(10) - 0.3),
        ([BRIER], (0.5,), 1.5),
        ([Objective("ts_nll", "minimize")], (0.3,), math.log(10) - 0.3),
        (BOTH, (0.9, 0.2), 0.9 * 0.8),
        ([ACCURACY, NLL], (0.5, 0.0), 0.5 * math.log(10)),
        ([ACCURACY, ECE, BRIER], (0.5, 0.5, 1.0), 0.25),
    ],
)
def test_hypervolume_of_one_trial_is_its_box(objectives, point, expected):
    assert volume_of([point], objectives) == approx(expected)


def test_hypervolume_of_a_staircase():
    """Three boxes of width 1/4 each beyond the last, heights 1, 3/4, 1/2."""
    assert volume_of([(0.25, 0.0), (0.5, 0.25), (0.75, 0.5)], BOTH) == approx(
        0.25 * (1 + 0.75 + 0.5)
    )


def test_hypervolume_of_trials_on_a_simplex_in_three_objectives():
    """Of [0, 1]^3, costs 1/2 and 0 0 in turn leave out nothing but what is
    below 1/2 twice or more."""
    objectives = (ERROR, ECE, MCE)
    corners = [(0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5)]
    assert volume_of(corners, objectives) == approx(1 - 1 / 8)


def test_hypervolume_is_nothing_without_trials_or_beyond_the_reference():
    assert volume_of([], BOTH) == 0.0
    # Level with the reference in one objective.
    assert volume_of([(0.0, 0.1), (0.9, 1.0)], BOTH) == 0.0
    nll_too_large = [(0.9, math.log(10) + 1)]
    assert volume_of(nll_too_large, [ACCURACY, NLL]) == 0.0
    assert volume_of([*nll_too_large, (0.8, 1.0)], [ACCURACY, NLL]) == approx(
        0.8 * (math.log(10) - 1)
    )


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_hypervolume_counts_the_cells_of_a_lattice(dimensions):
    source = random.Random(dimensions)
    objectives, side = FRACTIONS[:dimensions], 6
    for _ in range(20):
        # Costs in sixths.
        grid = [[source.randrange(side + 1) for _ in objectives] for _ in range(8)]
        covered = sum(
            any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in grid)
            for cell in itertools.product(range(side), repeat=dimensions)
        )
        values = [[1 - point[0] / side, *(cost / side for cost in point[1:])] for point in grid]
        assert volume_of(values, objectives) == approx(covered / side**dimensions)


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_hypervolume_is_that_of_inclusion_and_exclusion(dimensions):
    source = random.Random(dimensions)
    objectives = FRACTIONS[:dimensions]
    points = [[source.random() for _ in objectives] for _ in range(9)]
    costs = [[1 - point[0], *point[1:]] for point in points]
    expected = math.fsum(
        (-1) ** (size + 1) * math.prod(1 - max(column) for column in zip(*chosen, strict=True))
        for size in range(1, len(costs) + 1)
        for chosen in itertools.combinations(costs, size)
    )
    assert volume_of(points, objectives) == approx(expected)


def test_dominated_trials_add_nothing_to_the_hypervolume():
    source = random.Random(1)
    records = trials(
        [(source.random(), source.random(), source.random()) for _ in range(40)], FRACTIONS[:3]
    )
    whole = hypervolume(records, FRACTIONS[:3], (0, 1, 1))
    assert hypervolume(front(records, FRACTIONS[:3]), FRACTIONS[:3], (0, 1, 1)) == approx(whole)


# ---- knee ----------------------------------------------------------------------------------------


def knee_of(points, objectives=BOTH):
    found = knee(trials(points, objectives), objectives)
    return None if found is None else found.number


def test_knee_by_hand():
    """Scaled: (0, 1), (0.2, 0.3), (0.5, 0.2), (1, 0); sums 1, 0.5, 0.7, 1."""
    assert knee_of([(1.0, 0.10), (0.98, 0.03), (0.95, 0.02), (0.90, 0.0)]) == 1


def test_knee_does_not_depend_on_the_scale_of_an_objective():
    points = [(1.0, 0.10), (0.98, 0.03), (0.95, 0.02), (0.90, 0.0)]
    assert knee_of([(accuracy, 20 * nll) for accuracy, nll in points], (ACCURACY, NLL)) == 1


def test_knee_is_the_trial_farthest_from_the_line_in_the_plane():
    """Against the distance of a point from a line by the cross product, on a convex front."""
    source = random.Random(0)
    for _ in range(50):
        xs = sorted({0.0, 1.0, *(source.random() for _ in range(8))})
        points = [(1 - 0.1 * x, 0.3 * (1 - math.sqrt(x)) ** 2) for x in xs]
        (x0, y0), (x1, y1) = (0.0, 1.0), (1.0, 0.0)
        scaled = [((1 - a) / 0.1, e / 0.3) for a, e in points]
        distances = [
            abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / math.sqrt(2) for x, y in scaled
        ]
        assert knee_of(points) == distances.index(max(distances))


def test_knee_of_a_front_that_bulges_away_from_the_ideal_is_an_end():
    """The bulge is far from the line on the wrong side: a bad compromise. The ends are
    .2 and .1 from perfect."""
    assert knee_of([(1.0, 0.20), (0.91, 0.19), (0.90, 0.0)]) == 2


def test_knee_of_two_is_nearer_to_perfect():
    assert knee_of([(0.95, 0.05), (0.90, 0.01)]) == 0  # .071 and .1005 from (1, 0)
    assert knee_of([(0.95, 0.20), (0.90, 0.01)]) == 1
    assert knee_of([(0.9, 0.5, 0.5), (0.8, 0.1, 0.1)], (ACCURACY, ECE, MCE)) == 1
    # Though worse in two of three.
    assert knee_of([(0.9, 0.1, 0.1), (0.1, 0.0, 0.0)], (ACCURACY, ECE, MCE)) == 0


def test_knee_of_one_and_of_none():
    assert knee_of([(0.9, 0.1)]) == 0
    assert knee_of([]) is None
    assert knee_of([(0.1,), (0.1,)], (ECE,)) == 0


def test_knee_of_equals_is_the_first():
    assert knee_of([(0.9, 0.1), (0.9, 0.1)]) == 0
    assert knee_of([(1.0, 0.10), (0.98, 0.03), (0.98, 0.03), (0.90, 0.0)]) == 1


def test_knee_of_a_straight_front_is_nearest_to_perfect():
    """All on one line, which floats meet only nearly; the foot of the perpendicular from
    (1, 0) is at (.95, .05)."""
    points = [(1 - 0.01 * n, 0.1 - 0.01 * n) for n in range(11)]
    assert knee_of(points) == 5


def test_knee_of_three_objectives_where_one_is_the_same_for_all():
    points = [(1.0, 0.10, 0.2), (0.98, 0.03, 0.2), (0.90, 0.0, 0.2)]
    assert knee_of(points, (ACCURACY, ECE, MCE)) == 1


# ---- table ---------------------------------------------------------------------------------------


def two_methods():
    one = replace(
        trial(0, (0.9, 0.1)), params={"optimizer.lr": 0.1, "method.gamma": 3.0}, samples=900
    )
    return [
        one,
        replace(
            trial(12, (0.8, 0.05), label="mbls"),
            params={"optimizer.lr": 0.2, "method.margin": 10.0},
        ),
    ]


def test_front_rows_have_one_column_for_each_path_and_metric():
    assert front_rows(two_methods()) == [
        dict(zip(COLUMNS, ["focal", 0, 3.0, None, 0.1, 0.9, 0.1, 900], strict=True)),
        dict(zip(COLUMNS, ["mbls", 12, None, 10.0, 0.2, 0.8, 0.05, None], strict=True)),
    ]


COLUMNS = [
    "method",
    "number",
    "method.gamma",
    "method.margin",
    "optimizer.lr",
    "accuracy",
    "ece",
    "samples",
]


def test_write_front_csv(tmp_path):
    file = tmp_path / "new" / "front.csv"
    write_front_csv(two_methods(), file)
    with file.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert header == COLUMNS
    first, second = (
        ["focal", "0", "3.0", "", "0.1", "0.9", "0.1", "900"],
        ["mbls", "12", "", "10.0", "0.2", "0.8", "0.05", ""],
    )
    assert rows == [first, second]
    write_front_csv([], file)
    assert file.read_text().split() == ["method,number"]
