"""Differences of methods, against SciPy's tests where they coincide and where no method is
better."""

import math

import numpy as np
import pytest
import torch
from pytest import approx
from scipy import stats

from study.uncertainty.methods import (
    Methods,
    NetworkPredictions,
    Seeds,
    compare_methods,
    mean_variance,
)
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def without_sample_noise(*rows, level=0.95):
    """Methods by number; every resample equals the samples."""
    found = [np.array(row, float) for row in rows]
    return Methods(
        {str(place): Seeds(row, np.repeat(row[:, None], 5, 1)) for place, row in enumerate(found)},
        level,
    )


def test_two_methods_without_sample_noise_are_welchs_test():
    for size in (2, 3, 7):
        one = np.linspace(-1, 1, size)
        expected = stats.ttest_ind(one, one + 2, equal_var=False).confidence_interval(0.9)
        found = without_sample_noise(one, one + 2, level=0.9).difference("0", "1")
        assert found == approx((-2, expected.low, expected.high), rel=1e-6)
    # Unequal: between the intervals at Welch's degrees of freedom, rounded down and up to quarters.
    one, other = np.array([0.0, 1.0, 5.0]), np.array([0.0, 0.3, 0.5])
    welch = stats.ttest_ind(one, other, equal_var=False)
    error = math.sqrt(np.var(one, ddof=1) / 3 + np.var(other, ddof=1) / 3)
    found = without_sample_noise(one, other).difference("0", "1")
    reaches = [stats.t.ppf(0.975, math.floor(4 * welch.df + part) / 4) * error for part in (0, 1)]
    assert reaches[1] < (found.high - found.low) / 2 == approx(reaches[0], rel=1e-6)


def test_equal_variances_are_tukeys_test():
    rows = [np.array([-1.0, 0.0, 1.0]) + shift for shift in (0.0, 2.0, 7.0)]
    expected = stats.tukey_hsd(*rows).confidence_interval(0.95)
    methods = without_sample_noise(*rows)
    for one, other in ((0, 1), (0, 2), (2, 1)):
        found = methods.difference(str(one), str(other))
        assert found[1:] == approx((expected.low[one, other], expected.high[one, other]), rel=1e-4)
    assert methods.tied("0") == {
        name for name, p in (("1", 0), ("2", 1)) if stats.tukey_hsd(*rows).pvalue[0, p + 1] > 0.05
    }


def test_two_seeds_of_four_methods_are_tukeys_test():
    """With as much borrowed from two others as a method knows itself."""
    rows = [np.array([-1.0, 1.0]) + shift for shift in (0.0, 5.0, 11.0, 30.0)]
    expected = stats.tukey_hsd(*rows).confidence_interval(0.95)
    found = without_sample_noise(*rows).difference("0", "3")
    assert found[1:] == approx((expected.low[0, 3], expected.high[0, 3]), rel=1e-4)


def test_two_seeds_tell_a_large_difference_of_accuracy():
    """.386 and .223 on 1,500 images, seeds that differ by .02: told apart in most of 200 studies of
    seven models (in .57 of them before two seeds borrowed more)."""
    source, told = np.random.default_rng(0), 0
    error = math.sqrt(0.386 * 0.614 / 1500)
    for _ in range(200):
        accuracies = np.array([0.386, 0.38, 0.37, 0.36, 0.35, 0.34, 0.223])
        seeds = accuracies[:, None] + 0.02 * source.normal(size=(7, 2))
        moved = error * source.normal(size=(1, 1, 101))
        moved = moved + 0.7 * error * source.normal(size=(7, 2, 101))
        networks = seeds[:, :, None] + moved
        rows = {str(k): Seeds(of[:, 0], of[:, 1:]) for k, of in enumerate(networks)}
        told += Methods(rows).difference("6", "0").high < 0
    assert told >= 0.7 * 200


def test_a_method_that_always_trains_the_same_network_lends_no_variance():
    """Its seeds agree on every resample: the others' intervals are what they are without it."""
    rows = [np.array([-1.0, 1.0]) + shift for shift in (0.0, 5.0, 11.0, 30.0)]
    same = np.array([2.0, 2.0])
    with_it = without_sample_noise(*rows, same)
    alone = without_sample_noise(*rows)
    assert with_it._between_seeds("0", "3") == alone._between_seeds("0", "3")
    assert with_it._between_seeds("0", "4")[0] == approx(1.0)  # of one method alone
    lucky = Seeds(same, np.array([[2.0, 2.1, 1.9], [2.0, 1.9, 2.1]]))  # equal on the samples alone
    assert lucky.vary and not with_it.rows["4"].vary


@pytest.mark.parametrize("power", [1.0, 0.5, 2 / 11])
def test_a_mean_of_many_equal_variances_is_that_variance(power):
    """And arithmetic with power 1, weighted by degrees of freedom."""
    freedom = np.array([2, 4, 11] * 400)
    drawn = 3.0 * np.random.default_rng(0).chisquare(freedom, (60, 1200)) / freedom
    found = [mean_variance([*zip(freedom, row, strict=True)], power) for row in drawn]
    assert np.mean(found) == approx(3.0, rel=0.01)
    assert mean_variance([(2, 1.0), (6, 3.0)], 1.0) == approx(2.5)
    assert mean_variance([(5000, 3.0)] * 2, power) == approx(3.0, rel=1e-3)
    assert mean_variance([(1, 3.0)], power) == 3.0


def test_of_twelve_seeds_a_noisy_method_hardly_widens_the_others_intervals():
    """Ten times noisier: the arithmetic mean with half their weight widened them 3.5 times."""
    quiet = [stats.norm.ppf((np.arange(12) + 0.5) / 12) + shift for shift in range(4)]
    noisy = 10 * quiet[0]
    reaches = [
        math.sqrt(without_sample_noise(*quiet, last)._between_seeds("0", "1")[0])
        for last in (quiet[0], noisy)
    ]
    assert reaches[1] / reaches[0] < 1.3


def test_a_method_whose_seeds_measure_the_same_lends_no_variance():
    """As five seeds with the same accuracy do: a mean that is almost geometric would be 0."""
    quiet = [np.arange(12.0) + shift for shift in range(3)]
    same = np.full(12, 0.1)  # whose mean is rounded
    alone = without_sample_noise(*quiet)._between_seeds("0", "1")
    assert without_sample_noise(*quiet, same)._between_seeds("0", "1") == alone


def test_networks_that_are_equal_leave_the_noise_of_the_samples():
    """Then two methods are a normal test of the paired resamples."""
    moved = np.random.default_rng(1).normal(size=(2, 4000)) * 0.1 + np.random.default_rng(2).normal(
        size=4000
    )
    resampled = np.repeat(moved[:, None], 3, 1)
    rows = {"a": Seeds(np.full(3, 0.5), resampled[0]), "b": Seeds(np.full(3, 0.3), resampled[1])}
    found = Methods(rows).difference("a", "b")
    reach = stats.norm.ppf(0.975) * (moved[0] - moved[1]).std()
    assert found == approx((0.2, 0.2 - reach, 0.2 + reach), rel=1e-9)


def test_a_networks_own_noise_is_in_both_and_counted_once():
    """Seeds that differ only by how the samples treat them: no wider than by
    their variance alone."""
    generator = np.random.default_rng(3)
    values, moved = generator.normal(size=(2, 3)), generator.normal(size=(2, 3, 5000))
    rows = {
        name: Seeds(value, value[:, None] + row)
        for name, value, row in zip("ab", values, moved, strict=True)
    }
    found = Methods(rows).difference("a", "b")
    alone = without_sample_noise(*values).difference("0", "1")
    assert found.high - found.low == approx(alone.high - alone.low, rel=0.05)


def test_wrong_predictions_that_may_be_missing_widen_one_side():
    rows = {
        "a": Seeds(np.zeros(2), np.zeros((2, 5)), 0.01),
        "b": Seeds(np.zeros(2), np.zeros((2, 5)), math.inf),
    }
    assert Methods(rows).difference("a", "b") == (0, -math.inf, 0.01)
    assert Methods(rows).tied("a") == {"b"}


@pytest.mark.parametrize("methods", [2, 6, 16])
@pytest.mark.parametrize("unequal", [0.0, 1.0])
def test_methods_without_a_difference_are_rarely_told_apart(methods, unequal):
    """False differences in at most 6% of tables and three standard errors; by Welch in up to three
    of four."""
    generator, false, former = np.random.default_rng(methods), 0, 0
    tables = 300 if methods == 2 else 100
    for _ in range(tables):
        scale = np.exp(unequal * generator.normal(size=(methods, 1)))
        seeds, samples = (
            scale * generator.normal(size=(methods, 3)),
            0.3 * generator.normal(size=(methods, 1, 41)),
        )
        values = seeds + samples[:, :, 0]
        rows = {
            str(k): Seeds(values[k], seeds[k][:, None] + samples[k][:, 1:]) for k in range(methods)
        }
        best = min(rows, key=lambda name: rows[name].values.mean())
        false += len(Methods(rows).tied(best)) < methods - 1
        others = np.delete(values, int(best), axis=0)
        welch = stats.ttest_ind(others, values[int(best)], axis=1, equal_var=False)
        former += bool((welch.pvalue < 0.05).any())
    assert false <= (0.06 + 3 * math.sqrt(0.06 * 0.94 / tables)) * tables
    assert former > 3 * false or methods == 2


# ---- from predictions ----------------------------------------------------------------------------


def predictions(wrong, samples=359):
    """Ten classes, confident; these samples are wrong."""
    labels = torch.arange(samples) % 10
    told = labels.clone()
    told[list(wrong)] = (told[list(wrong)] + 1) % 10
    return Predictions(6.0 * torch.nn.functional.one_hot(told, 10).float(), labels)


def test_less_than_two_images_are_no_difference():
    """Welch's interval over three seeds excludes 0 here; another 359 images
    would give other counts."""
    one = [range(10), range(10), range(9)]
    other = [range(40, 51), range(40, 52), range(40, 51)]
    counts = [[len(wrong) / 359 for wrong in method] for method in (one, other)]
    assert np.mean(counts[1]) - np.mean(counts[0]) == approx(1.67 / 359, rel=0.01)
    assert stats.ttest_ind(*counts, equal_var=False).pvalue < 0.05
    networks = {
        name: [NetworkPredictions(predictions(wrong), 1.5) for wrong in of]
        for name, of in (("one", one), ("other", other))
    }
    found = compare_methods(networks, ["error", "ts_nll"], 300)
    assert found["error"].tied("one") == {"other"}
    assert found["error"].rows["other"].values == approx(counts[1])
    several = {name: [*of, *of[:1]] for name, of in networks.items()}
    assert set(compare_methods(several, ["ts_nll"], 100)["ts_nll"].rows) == {"one", "other"}


def test_values_are_the_metrics_at_each_networks_temperature():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (200,), generator=generator)
    made = [Predictions(3 * torch.randn(200, 10, generator=generator), labels) for _ in range(4)]
    networks = {
        "a": [NetworkPredictions(made[0], 0.7), NetworkPredictions(made[1], 2.0)],
        "b": [NetworkPredictions(one) for one in made[2:]],
    }
    found = compare_methods(networks, ["nll", "ts_nll", "ts_classwise_ece"], 100)
    at = [made[0].evaluate_at(0.7), made[1].evaluate_at(2.0)], [one.evaluate() for one in made[2:]]
    for metric, methods in found.items():
        for row, expected in zip(methods.rows.values(), at, strict=True):
            assert row.values == approx([values[metric] for values in expected], rel=1e-6)


def test_one_seed_is_compared_with_nothing_and_other_samples_with_none():
    one, short = predictions({1, 2}), predictions({1}, samples=300)
    assert (
        compare_methods(
            {"a": [NetworkPredictions(one)], "b": [NetworkPredictions(one)]}, ["error"], 100
        )
        == {}
    )
    with pytest.raises(FieldError, match="b: its labels differ from those of a"):
        compare_methods(
            {"a": [NetworkPredictions(one)] * 2, "b": [NetworkPredictions(short)] * 2},
            ["error"],
            100,
        )


# ---- what would tell -----------------------------------------------------------------------------


def test_how_many_seeds_would_tell():
    """Without noise of the samples: the fewest seeds at which Tukey's half-width is
    below the difference."""
    one = np.array([-1.0, 0.0, 1.0])
    methods = without_sample_noise(one, one + 1.0)
    found = methods.seeds_to_tell("0", "1", matters=0.1)
    reach = {n: stats.t.ppf(0.975, 2 * (n - 1)) * math.sqrt(2.0 / n) for n in (found - 1, found)}
    assert reach[found] <= 1.0 < reach[found - 1]
    # A difference of nothing is told to be as good once the half-width is below what matters.
    alike = without_sample_noise(one, one).seeds_to_tell("0", "1", matters=0.5)
    assert stats.t.ppf(0.975, 2 * (alike - 1)) * math.sqrt(2.0 / alike) <= 0.5


def test_where_samples_are_lacking_more_seeds_would_not_tell():
    moved = np.random.default_rng(1).normal(size=(2, 4000)) * 0.1
    rows = {
        name: Seeds(np.full(3, 0.5), np.repeat(row[None], 3, 0))
        for name, row in zip("ab", moved, strict=True)
    }
    assert Methods(rows).seeds_to_tell("a", "b", matters=0.01) is None


def test_the_typical_half_width_is_that_of_the_middle_pair():
    rows = [np.array([-1.0, 0.0, 1.0]) + shift for shift in (0.0, 2.0, 7.0)]
    methods = without_sample_noise(*rows)
    _, low, high = methods.difference("0", "1")
    assert methods.typical_reach() == approx(((high - low) / 2, 0.0))
    moved = np.random.default_rng(2).normal(size=(2, 4000)) * 0.1
    of_samples = {
        name: Seeds(np.full(3, 0.5), np.repeat(r[None], 3, 0))
        for name, r in zip("ab", moved, strict=True)
    }
    half, share = Methods(of_samples).typical_reach()
    assert half == approx(stats.norm.ppf(0.975) * (moved[0] - moved[1]).std()) and share == approx(
        1.0
    )
