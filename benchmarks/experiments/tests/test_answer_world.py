"""The simulated world: metrics, truth and rules, against definitions and cases worked by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.optimize import minimize_scalar

from benchmarks.experiments.answer_world import rules, runs, simulate, tables
from benchmarks.experiments.answer_world.networks import Networks, counts_of
from benchmarks.experiments.answer_world.rules import Disagreement
from benchmarks.experiments.answer_world.world import (
    CLASSES,
    OF_SEED,
    Settings,
    Split,
    Truth,
    drawn_labels,
    population,
)
from study.analysis import pareto
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.uncertainty.methods import Methods, Seeds
from trainables import metrics

NAMES = ("accuracy", "ece", "nll")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth.of(population(20_000, np.random.default_rng(0)), noises=7, distances=41)


@pytest.fixture(scope="module")
def networks(truth: Truth) -> Networks:
    """Five trained networks on 300 samples, 20 resamples."""
    split = Split(Settings.drawn(simulate.KINDS["spread"], 1, truth), 300)
    return Networks(
        split.logits([(row, 0) for row in (0, 9, 18, 27, 36)]), split.labels, counts_of(300, 20)
    )


def by_definition(logits: np.ndarray, labels: np.ndarray) -> list[float]:
    """logits: [N, CLASSES]"""
    scores, names = torch.from_numpy(logits), torch.from_numpy(labels)
    return [float(metrics.find(name)(scores, names)) for name in NAMES]


def fitted(logits: np.ndarray, labels: np.ndarray) -> float:
    """log T with the lowest sum of NLL and half its square."""

    def cost(log_t: float) -> float:
        scaled = logits.astype(float) / math.exp(log_t)
        total = np.log(np.exp(scaled - scaled.max(axis=1, keepdims=True)).sum(axis=1)) + scaled.max(
            axis=1
        )
        return float((total - scaled[np.arange(len(labels)), labels]).sum() + log_t**2 / 2)

    return float(minimize_scalar(cost, bounds=(-2, 2), method="bounded", options={"xatol": 1e-9}).x)


def cross_fitted(logits: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """logits: [N, CLASSES]; fold: [N]."""
    found = logits.astype(float)
    for k in range(5):
        found[fold == k] /= math.exp(fitted(logits[fold != k], labels[fold != k]))
    return found


# ---- metrics -------------------------------------------------------------------------------------


def test_metrics_of_many_networks_are_those_of_each(networks):
    found = networks.as_trained
    for place in range(5):
        logits = networks.logits[:, place].T
        assert found[place, :, 0] == approx(by_definition(logits, networks.labels), abs=1e-6)
        for resample in (1, 7, 20):
            rows = np.repeat(np.arange(300), networks.counts[:, resample].astype(int))
            expected = by_definition(logits[rows], networks.labels[rows])
            assert found[place, :, resample] == approx(expected, abs=1e-6)


def test_a_temperature_is_fitted_with_a_prior_worth_one_sample(networks):
    expected = [fitted(networks.logits[:, place].T, networks.labels) for place in range(5)]
    assert networks.log_t == approx(expected, abs=1e-5)


def test_metrics_after_a_cross_fitted_temperature(networks):
    found, fold = networks.after_temperature, np.arange(300) % 5
    for place in range(5):
        logits = networks.logits[:, place].T
        expected = by_definition(cross_fitted(logits, networks.labels, fold), networks.labels)
        assert found[place, :, 0] == approx(expected, abs=2e-5)
        assert networks.at_one_temperature[place, :, 0] == approx(expected, abs=2e-5)


def test_temperatures_are_refitted_inside_resamples(networks):
    """NLL is close to its definition; ECE, whose bins jump, on average."""
    found, errors = networks.after_temperature, []
    for place in (0, 3):
        for resample in range(1, 21):
            rows = np.repeat(np.arange(300), networks.counts[:, resample].astype(int))
            logits, labels = networks.logits[:, place].T[rows], networks.labels[rows]
            accuracy, ece, nll = by_definition(cross_fitted(logits, labels, rows % 5), labels)
            assert found[place, [0, 2], resample] == approx([accuracy, nll], abs=2e-4)
            errors.append(found[place, 1, resample] - ece)
    assert abs(np.mean(errors)) < 0.001 and np.std(errors) < 0.005


# ---- the truth -----------------------------------------------------------------------------------


def test_a_network_that_sees_the_evidence_is_calibrated():
    people = population(20_000, np.random.default_rng(1))
    accuracy, ece, nll = people.metrics(-30.0, 0.0)
    assert accuracy == approx(people.probs.max(axis=0).mean(), abs=1e-6)  # all that can be known
    # The entropy.
    assert nll == approx(-(people.probs * np.log(people.probs)).sum(axis=0).mean(), abs=1e-5)
    assert ece < 1e-6


def test_the_truth_is_what_a_large_sample_shows(truth):
    source = np.random.default_rng(2)
    people = population(100_000, source)
    labels = drawn_labels(people.evidence, source)
    for noise, off in ((0.1, 0.3), (0.35, 0.0), (-0.2, -0.5)):
        scale = float(truth.best_scale(noise)) + off
        expected = by_definition(people.logits(noise, scale).T, labels)
        found = truth.of_networks(np.array(noise), np.array(scale))
        # Three standard errors or more: of conditional means over 20,000, and
        # of labels over 100,000.
        assert found[:2] == approx(expected[:2], abs=0.007) and found[2] == approx(
            expected[2], abs=0.015
        )
    # No scale is better than the best one.
    best = float(truth.best_scale(0.2))
    assert people.nll(0.2, best) <= min(people.nll(0.2, best + off) for off in (-0.1, 0.1))


def test_the_truth_of_a_setting_is_the_mean_over_seeds(truth):
    noise, scale = np.array([0.1]), np.array([0.2])
    source = np.random.default_rng(3)
    moved = source.normal(size=(2, 20_000)) * np.array(OF_SEED)[:, None]
    of_each = truth.of_networks(noise + moved[0], scale + moved[1])
    assert truth.of_settings(noise, scale)[0] == approx(of_each.mean(axis=0), abs=5e-4)
    assert truth.spread_of_seeds(noise) == approx([of_each[:, 0].std()], rel=0.05)


def test_networks_share_half_of_their_noise(truth):
    settings = Settings.drawn(simulate.KINDS["close"], 0, truth)
    split = Split(settings, 4000)
    seeds = [(3, 0), (3, 1), (4, 0)]
    noise = [
        split.logits([one])[:, 0] / math.exp(settings.of_seed(*one)[1]) - split.evidence
        for one in seeds
    ]
    found = np.corrcoef([each.ravel() for each in noise])
    assert found[0, 1] == approx(0.5, abs=0.02) and found[0, 2] == approx(0, abs=0.02)
    assert noise[0].std() == approx(math.exp(settings.of_seed(3, 0)[0]), rel=0.02)


# ---- rules ---------------------------------------------------------------------------------------

# Units of .01: sums 30, 29, 29.1, 29.6 and 34; the third has the lowest NLL of those within
# .1, the fourth within 1.
COSTS = np.array([[10.0, 20.0], [12.0, 17.0], [11.1, 18.0], [11.0, 18.6], [9.0, 25.0]])
NLL = np.array([0.6, 0.55, 0.54, 0.50, 0.45])


def test_the_lowest_sum_and_of_those_near_it_the_lowest_nll():
    assert [rules.lowest(COSTS, NLL, within) for within in (0.0, 0.1, 0.5, 1.0, 5.0)] == [
        1,
        2,
        2,
        3,
        4,
    ]
    # Half of NLL in units of .02 adds 15, 13.75, 13.5, 12.5 and 11.25.
    assert [rules.lowest_with_nll(COSTS, NLL, weight) for weight in (0.0, 0.5, 5.0)] == [1, 3, 4]


def test_shrinkage_keeps_what_is_no_noise_and_drops_what_is():
    """The variance of the first column is 4, that of the second 1."""
    costs = np.array([[0.0, 1.0], [2.0, 2.0], [4.0, 3.0]])
    noise = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert rules.shrunken(costs, noise) == approx(np.array([[0.0, 2.0], [2.0, 2.0], [4.0, 2.0]]))
    # Half of the variance is noise: half-way to the mean.
    assert rules.shrunken(costs, np.full((3, 2), [2.0, 0.5]))[:, 0] == approx([1.0, 2.0, 3.0])


def test_todays_rule_takes_the_lowest_nll_of_the_unbeaten_like_the_knee():
    like = np.array([True, True, True, True, False])
    assert rules.of_those_like(COSTS, NLL, like, 1) == 3
    beaten = np.vstack([COSTS, [11.0, 18.7]])
    assert rules.of_those_like(beaten, np.append(NLL, 0.51), np.append(like, True), 1) == 3
    assert rules.of_those_like(COSTS, NLL, np.zeros(5, bool), 1) == 1


def test_front_and_knee_are_those_of_the_project():
    source = np.random.default_rng(4)
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    for rows in (1, 2, 3, 12, 40):
        values = source.integers(1, 30, size=(rows, 2)) / 100  # with ties
        records = [
            TrialRecord("m", k, "complete", {}, {"accuracy": 1 - error, "ece": ece})
            for k, (error, ece) in enumerate(values)
        ]
        found = pareto.front(records, objectives)
        assert rules.front(values * 100).tolist() == [record.number for record in found]
        knee = pareto.knee(found, objectives)
        assert knee is not None and rules.knee(values * 100) == knee.number


def test_candidates_meet_the_constraint():
    values = np.array([[0.90, 0.1, 0.5], [0.88, 0.02, 0.4], [0.879, 0.01, 0.3]])
    seen = rules.candidates([3, 5, 8], values, np.full((3, 2), 1e-4), 5, 0)
    assert seen.names.tolist() == [3, 5] and seen.costs == approx(
        np.array([[10.0, 10.0], [12.0, 2.0]])
    )
    assert seen.noise == approx(np.ones((2, 2)))
    assert seen.names[rules.RULES["today"](seen)] == 5


# ---- words ---------------------------------------------------------------------------------------


def test_four_words_for_two_models():
    assert rules.word(-0.009, 0.009, 0.01) == "as good"
    assert rules.word(0.001, 0.009, 0.01) == "as good"  # within what matters, on whichever side
    assert rules.word(0.001, 0.011, 0.01) == "worse"
    assert rules.word(0.001, 0.011, 0.01, sign=-1.0) == "better"  # of accuracy
    assert rules.word(-0.03, -0.001, 0.01) == "better"
    assert rules.word(-0.011, 0.001, 0.01) == "undecided"


def test_words_that_the_truth_belies():
    assert rules.is_wrong("as good", 0.011, 0.01) and not rules.is_wrong("as good", -0.009, 0.01)
    assert rules.is_wrong("better", 0.001, 0.01) and not rules.is_wrong("better", -0.001, 0.01)
    assert rules.is_wrong("better", -0.001, 0.01, sign=-1.0)
    assert rules.is_wrong("worse", -0.001, 0.01) and not rules.is_wrong("undecided", 1.0, 0.01)


# ---- resolution ----------------------------------------------------------------------------------


def hits_of(rows: int, seeds: int, samples: int, source: np.random.Generator) -> np.ndarray:
    """[rows, seeds, samples]: right where what all, a row's and a network's own normal
    values add up to is large."""
    shared, of_row = source.normal(size=samples), source.normal(size=(rows, 1, samples))
    return shared + 0.6 * of_row + 0.6 * source.normal(size=(rows, seeds, samples)) > -1.0


def test_disagreement_gives_the_half_width_of_the_projects_intervals():
    source, samples = np.random.default_rng(5), 4000
    hits = hits_of(8, 3, samples, source)
    draws = (
        np.random.default_rng(6).multinomial(samples, np.full(samples, 1 / samples), size=400).T
        / samples
    )
    named = {
        str(k): Seeds(one.mean(axis=1), one.astype(float) @ draws) for k, one in enumerate(hits)
    }
    halves = [
        (high - low) / 2
        for _, low, high in (Methods(named, 0.975).difference("0", str(k)) for k in range(1, 8))
    ]
    known = Disagreement(*simulate.disagreement_of_rows(hits))
    assert known.reach(samples, 3, 8, 0.975) == approx(np.median(halves), rel=0.15)
    assert known.samples_for(known.reach(1234, 3, 8, 0.975), 3, 8, 0.975) == approx(1234)
    spread = Disagreement(known.between, known.within, 0.02)
    assert spread.samples_for(0.01, 3, 8, 0.975) == math.inf  # seeds alone exceed it


def test_disagreement_by_hand():
    hits = np.array([[[1, 1, 0, 0], [1, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 1, 0]]], bool)
    # Seeds of a row differ in one of four; rows in two, one, three and two.
    assert simulate.disagreement_of_rows(hits) == approx((0.5, 0.25))


# ---- studies and tables --------------------------------------------------------------------------


def test_a_study_and_its_tables(truth, tmp_path):
    """A small one, whole; what the rules see and take can be checked from what is stored."""
    path = tmp_path / "truth.npz"
    np.savez(
        path, noises=truth.noises, distances=truth.distances, best=truth.best, table=truth.table
    )
    studies = [
        json.loads(json.dumps(simulate.simulated("close", 200, number, path))) for number in (0, 1)
    ]
    part = studies[0]["raw"]
    assert set(range(0, 40, 8)) <= set(part["rows"]["base"]) <= set(part["rows"]["names"])
    own = part["said"]["today"]["chosen"]
    assert own == part["rows"]["today"]
    values = np.array(part["rows"]["values"])
    assert own in [
        name
        for name, kept in zip(part["rows"]["names"], rules.meets(values[:, 0]), strict=True)
        if kept
    ]
    text = "\n".join(tables.every({("close", 200): studies}, truth))
    assert all(f"| {name} | " in text for name in rules.RULES)
    assert (
        len([row for row in text.splitlines() if row.startswith("| knee |")]) == 8
    )  # before, after: two ways, all, by cell


def test_regret_is_the_distance_from_the_best_that_meets_the_constraint():
    truth = np.array([[0.90, 0.05, 0.4], [0.89, 0.03, 0.3], [0.80, 0.01, 0.2]])
    assert tables.regret(truth, 0) == approx([0.0, 0.02, 0.1])
    assert tables.regret(truth, 2) == approx([0.1, -0.02, -0.1])


def test_words_of_a_study_are_counted_with_their_errors():
    pairs = [
        # As good, wrongly.
        tables.Pair([(-0.009, 0.009), (-0.009, 0.009)], np.array([0.001, 0.02])),
        tables.Pair([(0.01, 0.03), (-0.03, 0.03)], np.array([-0.001, 0.0])),  # better, wrongly
    ]
    said = tables.Said.of(pairs, former=False)
    assert said.words == [["as good", "as good"], ["better", "undecided"]]
    assert said.alike == [True, False] and said.falsely == [True, False] and said.has_wrong_side()
    former = tables.Said.of(pairs, former=True)
    assert former.words[0] == ["undecided", "undecided"] and former.falsely == [
        True,
        False,
    ]


def numbered(kind: str, samples: int, number: int, truth: Path) -> dict[str, object]:
    return {"number": number, "kind": kind, "once": samples}


def test_what_is_stored_is_not_simulated_again(truth, tmp_path):
    np.savez(
        tmp_path / "truth.npz",
        noises=truth.noises,
        distances=truth.distances,
        best=truth.best,
        table=truth.table,
    )
    path = tmp_path / "a_1.jsonl"
    path.write_text('{"number": 1, "kind": "stored"}\n{"number": 2, "ki')  # torn by an interruption
    found = runs.simulated(numbered, [("a", 1), ("b", 1)], tmp_path, "", 3, 1, 2)
    assert [one["kind"] for one in found["a", 1]] == ["a", "stored", "a"]
    assert [one["number"] for one in found["b", 1]] == [0, 1, 2]
    again = runs.simulated(numbered, [("a", 2), ("b", 1)], tmp_path, "", 2, 1, 2)
    assert [one["number"] for one in again["b", 1]] == [0, 1] and len(
        runs.stored(tmp_path / "b_1.jsonl")
    ) == 3


def test_a_label_is_drawn_from_the_softmax_of_the_evidence():
    seen = np.tile(np.log(np.arange(1, CLASSES + 1, dtype=np.float32))[:, None], 55_000)
    labels = drawn_labels(seen, np.random.default_rng(0))
    assert np.bincount(labels, minlength=CLASSES) / 1000 == approx(
        np.arange(1, CLASSES + 1), abs=0.35
    )
