"""`calstudy.evaluate`: values against exact fractions and slow definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pytest import approx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import calstudy

CLASSES = ["cat", "dog", "eel"]
MAIN = ["accuracy", "nll", "brier", "ece"]


def drawn(samples: int = 300, seed: int = 0, sharp: float = 2.0) -> tuple[Any, Any, Any]:
    """Over-confident logits and probabilities [N, 3], and labels [N]."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(samples, 3)) * 3
    odds = np.exp(logits / sharp)
    chances = (odds / odds.sum(1, keepdims=True)).cumsum(1)
    labels = (chances > random.random((samples, 1))).argmax(1)
    odds = np.exp(logits)
    return logits, odds / odds.sum(1, keepdims=True), labels


LOGITS, PROBS, LABELS = drawn()
WORDS = np.array(CLASSES)[LABELS]


def exact_ece(counts: list[tuple[int, ...]], labels: Any, of: int) -> Fraction:
    """ECE of probabilities that are counts / `of`: 15 bins (lo, hi], the first holds 0."""
    gaps = dict.fromkeys(range(15), Fraction(0))
    for row, label in zip(counts, labels, strict=True):
        confidence = Fraction(max(row), of)
        place = max(0, -(-confidence * 15 // 1) - 1)
        gaps[int(place)] += int(row.index(max(row)) == label) - confidence
    return sum(map(abs, gaps.values()), Fraction(0)) / len(counts)


@pytest.mark.parametrize(
    ("model", "of"),
    [
        (RandomForestClassifier(10, bootstrap=False, max_features=1, random_state=0), 10),
        (KNeighborsClassifier(5), 5),
    ],
)
def test_votes_equal_exact_fractions(model: Any, of: int) -> None:
    """Of ten trees, grown until a leaf holds one class, and of five neighbours."""
    images, labels = load_digits(return_X_y=True)
    model.fit(images[:500], labels[:500])
    probs = model.predict_proba(images[500:900])
    truth = labels[500:900]
    counts = [tuple(round(value * of) for value in row) for row in probs]
    assert np.allclose(np.array(counts) / of, probs, atol=1e-12)
    found = calstudy.evaluate(truth, probs=probs, intervals=False).metrics
    right = sum(row.index(max(row)) == label for row, label in zip(counts, truth, strict=True))
    assert found["accuracy"].value == approx(right / 400, abs=1e-12)
    assert found["ece"].value == approx(float(exact_ece(counts, truth, of)), abs=1e-12)
    square = sum(
        sum((Fraction(count, of) - (place == label)) ** 2 for place, count in enumerate(row))
        for row, label in zip(counts, truth, strict=True)
    )
    assert found["brier"].value == approx(float(square / 400), abs=1e-12)
    never = any(row[label] == 0 for row, label in zip(counts, truth, strict=True))
    assert np.isinf(found["nll"].value) == never


FRAME = pd.DataFrame(PROBS, columns=CLASSES)


def values(labels: Any, **given: Any) -> calstudy.Evaluation:
    return calstudy.evaluate(labels, intervals=False, **given)


BROUGHT: dict[str, Callable[[], calstudy.Evaluation]] = {
    "numbers": lambda: values(LABELS, probs=PROBS),
    "lists": lambda: values(LABELS.tolist(), probs=PROBS.tolist()),
    "torch": lambda: values(torch.tensor(LABELS), probs=torch.tensor(PROBS)),
    "logits": lambda: values(LABELS, logits=LOGITS),
    "names": lambda: values(WORDS, probs=PROBS, classes=CLASSES),
    "a frame": lambda: values(pd.Series(WORDS), probs=FRAME),
    "numbered columns": lambda: values(
        LABELS, probs=pd.DataFrame(PROBS[:, [2, 0, 1]], columns=["p_2", "p_0", "p_1"])
    ),
    "numbers and names": lambda: values(LABELS, probs=FRAME, classes=CLASSES),
    "categories": lambda: values(pd.Series(WORDS, dtype="category"), probs=FRAME),
    "named from 1": lambda: values(LABELS + 1, probs=PROBS, classes=[1, 2, 3]),
    "text of numbers": lambda: values(LABELS.astype(str), probs=PROBS),
    "another order": lambda: values(WORDS, probs=FRAME[["eel", "cat", "dog"]]),
}


@pytest.mark.parametrize("way", BROUGHT)
def test_whatever_brings_them_the_values_are_the_same(way: str) -> None:
    found = BROUGHT[way]()
    expected = BROUGHT["numbers"]().metrics
    assert list(found.metrics) == [*MAIN, *(f"ts_{name}" for name in MAIN)]
    for name, value in expected.items():
        assert found.metrics[name].value == approx(value.value, abs=1e-9)
    named = dict.fromkeys(("names", "a frame", "numbers and names", "categories"), "cat to eel")
    ends = {**named, "another order": "eel to dog", "named from 1": "1 to 3"}.get(way, "0 to 2")
    assert found.lines[0] == f"300 samples, 3 classes, {ends}"


def test_one_column_is_the_probability_of_the_second_class() -> None:
    is_eel = LABELS == 2
    score = PROBS[:, 2]
    both = calstudy.evaluate(is_eel.astype(int), probs=np.column_stack([1 - score, score]))
    for labels in (is_eel, is_eel.astype(int), np.where(is_eel, "eel", "other")):
        classes = ["other", "eel"] if labels.dtype.kind == "U" else None
        found = calstudy.evaluate(labels, probs=score, classes=classes)
        assert found.metrics == both.metrics
        assert f"the probability of {'eel' if classes else 'class 1'}." in str(found)
        assert found.sentence.startswith("Divide the log-odds of the scores by ")


def test_pixels_of_a_map_belong_together() -> None:
    maps = LOGITS[:288].reshape(12, 4, 6, 3).transpose(0, 3, 1, 2)
    masks = LABELS[:288].reshape(12, 4, 6)
    images = np.repeat(np.arange(12), 24)
    flat = calstudy.evaluate(LABELS[:288], logits=LOGITS[:288], groups=images)
    assert calstudy.evaluate(masks, logits=maps).metrics == flat.metrics
    for groups in (np.arange(12), images.reshape(12, 4, 6)):
        assert calstudy.evaluate(masks, logits=maps, groups=groups).metrics == flat.metrics
    weights = np.random.default_rng(0).random((12, 4, 6))
    weighed = calstudy.evaluate(masks, logits=maps, weights=weights).metrics["accuracy"].value
    hits = LOGITS[:288].argmax(1) == LABELS[:288]
    assert weighed == approx((weights.ravel() * hits).sum() / weights.sum())
    assert "288 samples in 12 groups" in str(flat)


# ---- weights -------------------------------------------------------------------------------------


def test_a_weight_is_so_many_copies() -> None:
    """Of weights that are whole numbers, each metric is that of the repeated rows."""
    counts = np.random.default_rng(1).integers(0, 4, len(LABELS))
    rows = np.repeat(np.arange(len(LABELS)), counts)
    names = ["accuracy", "error", "nll", "brier", "ece", "mce", "classwise_ece"]
    copies = calstudy.evaluate(LABELS[rows], probs=PROBS[rows], metrics=names, intervals=False)
    for scale in (1, 0.01):
        found = calstudy.evaluate(LABELS, probs=PROBS, metrics=names, weights=counts * scale)
        assert list(found.metrics) == names and found.temperature is None
        for name in names:
            assert found.metrics[name].value == approx(copies.metrics[name].value, abs=1e-12)


def test_the_size_of_weights_does_not_matter() -> None:
    found = [
        calstudy.evaluate(LABELS, probs=PROBS, weights=np.full(300, size)).metrics
        for size in (1.0, 1e-300, 1e300)
    ]
    assert found[0] == found[1] == found[2]


def test_intervals_of_weighted_means() -> None:
    """Equal weights change nothing; unequal ones give the standard error of a ratio."""
    random = np.random.default_rng(2)
    _, probs, labels = drawn(2000, 3)
    plain = calstudy.evaluate(labels, probs=probs).metrics
    equal = calstudy.evaluate(labels, probs=probs, weights=np.full(2000, 7.0)).metrics
    assert equal["accuracy"].interval == approx(plain["accuracy"].interval, abs=1e-12)
    assert equal["nll"].interval == approx(plain["nll"].interval, abs=1e-4)
    assert equal["ece"] == (approx(plain["ece"].value, abs=1e-12), None, None)
    weights = random.exponential(size=2000)
    found = calstudy.evaluate(labels, probs=probs, weights=weights).metrics["nll"]
    losses = -np.log(probs[np.arange(2000), labels])
    mean = (weights * losses).sum() / weights.sum()
    error = np.sqrt((weights**2 * (losses - mean) ** 2).sum()) / weights.sum()
    assert found.value == approx(mean, abs=1e-12) and found.interval is not None
    assert found.interval == approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.3 * error)


# ---- what it tells -------------------------------------------------------------------------------


def test_the_temperature_is_told_where_it_helps_measurably() -> None:
    found = calstudy.evaluate(LABELS, logits=LOGITS)
    assert found.temperature == approx(2.0, rel=0.25)
    assert found.sentence.startswith(f"Divide the logits by {found.temperature:.3g}: ECE ")
    calm = calstudy.evaluate(LABELS, logits=LOGITS / 2)
    assert calm.sentence.startswith(
        "A temperature makes no measurable difference: it changes NLL by "
    )
    assert calm.advice is not None and calm.advice.helps is False
    unknown = calstudy.evaluate(LABELS, logits=LOGITS, intervals=False)
    assert unknown.advice is not None and unknown.advice.helps is None
    assert "it is not known" in unknown.sentence


def test_where_nll_is_infinite_the_brier_score_tells() -> None:
    probs = np.where(PROBS.max(1, keepdims=True) == PROBS, 1.0, 0.0)
    found = calstudy.evaluate(LABELS, probs=probs)
    assert np.isinf(found.metrics["nll"].value) and found.metrics["nll"].interval is None
    assert "the Brier score" in found.sentence


@pytest.mark.parametrize("samples", [1, 9])
def test_few_samples_have_values_and_no_intervals(samples: int) -> None:
    found = calstudy.evaluate(LABELS[:samples], probs=PROBS[:samples])
    assert all(value.interval is None for value in found.metrics.values())
    assert "too few to resample; 10 are needed" in str(found)


def test_labels_of_one_class_are_said() -> None:
    assert "Every label is cat." in str(
        calstudy.evaluate(["cat"] * 300, probs=PROBS, classes=CLASSES)
    )


def test_every_number_is_in_the_dict() -> None:
    found = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES, intervals=0.9)
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["num_samples"], plain["classes"], plain["level"]) == (300, CLASSES, 0.9)
    assert plain["metrics"]["ece"] == found.metrics["ece"].value
    interval = plain["intervals"]["ece"]
    assert (interval["low"], interval["high"]) == found.metrics["ece"].interval
    assert interval["floor"]["mean"] == found.metrics["ece"].floor.mean  # type: ignore[union-attr]
    assert plain["temperature"]["temperature"] == found.temperature
    shown = found._repr_html_()
    assert "<table>" in shown and found.sentence.replace(">", "&gt;") in shown


def test_the_diagram_shows_itself_and_bins_what_was_given() -> None:
    """Probabilities on an edge stay in the bin that ECE puts them in."""
    probs = np.tile([0.6, 0.4], (20, 1))
    found = calstudy.evaluate([0, 1] * 10, probs=probs)
    figure = found.reliability()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert f"as given: ECE {found.metrics['ece'].value:.4f}" in [
        axes.get_title() for axes in figure.axes
    ]


def test_it_keeps_what_was_given_when_that_changes() -> None:
    scores = LOGITS.copy()
    found = calstudy.evaluate(LABELS, logits=scores)
    scores[:] = 0
    other = calstudy.evaluate(LABELS, logits=scores)
    assert found.difference(other).differences["nll"].one == approx(found.metrics["nll"].value)


def test_one_temperature_is_named_everywhere() -> None:
    found = calstudy.evaluate(LABELS, logits=LOGITS)
    (legend,) = found.reliability().legends
    said = f"{found.temperature:.3g}"
    assert legend.get_title().get_text() == f"before and after a temperature of {said}"
    assert f"by {said}:" in found.sentence


# ---- classes -------------------------------------------------------------------------------------


def test_each_class_by_slow_definitions() -> None:
    found = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES).by_class()
    predicted = PROBS.argmax(1)
    assert list(found["class"]) == CLASSES and len(found) == 3
    for number, row in found.iterrows():
        own = PROBS[:, number]  # type: ignore[call-overload]
        is_it = number == LABELS
        said = predicted == number
        assert (row["samples"], row["predicted"]) == (is_it.sum(), said.sum())
        assert row["recall"] == approx((is_it & said).sum() / is_it.sum())
        assert row["precision"] == approx((is_it & said).sum() / said.sum())
        error = (own - is_it).std() / np.sqrt(300)
        ends = (own - is_it).mean() + np.array([-1.96, 1.96]) * error
        assert row["excess"] == approx((own - is_it).mean(), abs=1e-12)
        assert [row["excess_low"], row["excess_high"]] == approx(ends, abs=0.3 * error)
        bins = np.clip(np.ceil(own * 15) - 1, 0, 14)
        gaps = [abs((is_it - own)[bins == each].sum()) for each in range(15)]
        assert row["ece"] == approx(sum(gaps) / 300, abs=1e-12)
        assert row["recall_low"] < row["recall"] < row["recall_high"]
        assert row["ece_low"] <= row["ece"]


def test_classes_of_groups_and_without_intervals() -> None:
    groups = np.arange(300) // 10
    in_groups = calstudy.evaluate(LABELS, probs=PROBS, groups=groups).by_class()
    alone = calstudy.evaluate(LABELS, probs=PROBS, intervals=False).by_class()
    assert in_groups["ece"].tolist() == approx(alone["ece"].tolist(), abs=1e-12)
    assert in_groups.notna().all(axis=None)
    assert alone[["recall_low", "ece_high", "excess_low"]].isna().all(axis=None)


# ---- two models ----------------------------------------------------------------------------------


def test_the_difference_of_two_models() -> None:
    one = calstudy.evaluate(LABELS, logits=LOGITS)
    other = calstudy.evaluate(LABELS, logits=LOGITS / 2)
    found = one.difference(other).differences
    assert list(found) == [*MAIN, "ts_nll", "ts_brier", "ts_ece"]
    nll = found["nll"]
    losses = [
        -torch.tensor(logits).log_softmax(-1)[torch.arange(300), torch.tensor(LABELS)].numpy()
        for logits in (LOGITS, LOGITS / 2)
    ]
    by = losses[0] - losses[1]
    error = by.std() / 300**0.5
    ends = (by.mean() - 1.96 * error, by.mean() + 1.96 * error)
    assert nll.difference == approx(by.mean(), abs=1e-9) and nll.word == "worse"
    assert nll.interval == approx(ends, abs=0.4 * error)
    # Where NLL tells, ECE may not.
    assert found["accuracy"].difference == 0 and found["ece"].word == "undecided"
    assert found["ece"].difference > 0.02
    back = other.difference(one).differences["nll"]
    assert (back.difference, back.word) == (approx(-nll.difference), "better")


def test_rows_are_paired_by_ids_and_classes_by_names() -> None:
    one = calstudy.evaluate(WORDS, probs=FRAME)
    order = np.random.default_rng(5).permutation(300)
    frame = pd.DataFrame(drawn()[1] ** 0.5, None, CLASSES)
    frame = frame.div(frame.sum(axis=1), axis=0)
    straight = calstudy.evaluate(WORDS, probs=frame)
    moved = calstudy.evaluate(WORDS[order], probs=frame.iloc[order, [2, 0, 1]].to_numpy(),
                              classes=["eel", "cat", "dog"])  # fmt: skip
    ids = np.arange(300)
    found = one.difference(moved, id=(ids, ids[order])).differences
    for name, expected in one.difference(straight).differences.items():
        assert found[name].difference == approx(expected.difference, abs=1e-9)
        assert found[name].interval == approx(expected.interval, abs=1e-6)


def test_what_cannot_be_paired_is_refused() -> None:
    one = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES)
    ids = list(range(300))

    def refused(other: calstudy.Evaluation, **more: Any) -> str:
        with pytest.raises(calstudy.UserError) as error:
            one.difference(other, **more)
        return str(error.value)

    fewer = calstudy.evaluate(WORDS[:200], probs=PROBS[:200], classes=CLASSES)
    assert refused(fewer).startswith("labels: 300 samples, the other has 200.")
    others = np.roll(WORDS, 1)
    row = int(np.flatnonzero(others != WORDS)[0])
    shifted = calstudy.evaluate(others, probs=PROBS, classes=CLASSES)
    assert refused(shifted).startswith(f"labels: row {row} is {WORDS[row]}, of the other ")
    fish = calstudy.evaluate(LABELS, probs=PROBS, classes=["cat", "dog", "cod"])
    assert refused(fish).startswith("classes: has 3 classes, cat to cod; the other has 3, cat to")
    assert "'7' is there twice" in refused(one, id=(ids, [7, *ids[:7], 7, *ids[9:]]))
    twice = [7, *ids[1:]]
    assert "'7' is there twice" in refused(one, id=(twice, twice))
    assert "the first is '0'" in refused(one, id=(ids, [*ids[1:], 999]))
    assert "2 ids for 300 samples" in refused(one, id=(ids, [1, 2]))
    assert "id: is no pair" in refused(one, id=ids)
    skce = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES, metrics="skce")
    assert refused(skce) == "metrics: the two have none in common. Measure both by the same."
    assert skce.difference(skce).differences["skce"][2:] == (0, None, None)
    heavy = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES, weights=[1] * 300)
    assert refused(heavy).startswith("weights: a difference has no weighted form")


# ---- what is refused -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "probs, logits: neither is given"),
    "both": ({"probs": PROBS, "logits": LOGITS}, "probs, logits: both are given"),
    "nan": ({"probs": np.where(PROBS < 0.9, PROBS, np.nan)}, "probs: row"),
    "infinite": ({"logits": np.where(LOGITS < 3, LOGITS, np.inf)}, "logits: row"),
    "logits as probs": ({"probs": LOGITS}, "probs: row"),
    "probs as logits": ({"logits": PROBS}, "logits: the logits are probabilities"),
    "words": ({"labels": WORDS, "probs": PROBS}, f"labels: row 0: '{WORDS[0]}' is a word"),
    "no such word": ({"labels": ["emu", *WORDS[1:]], "probs": PROBS, "classes": CLASSES},
                     "labels: row 0: 'emu' is no class. Valid values: cat, dog, eel."),
    "missing": ({"labels": [None, *WORDS[1:]], "probs": PROBS, "classes": CLASSES},
                "labels: row 0: it is missing."),
    "numbers beside words": ({"probs": FRAME}, "probs: labels are numbers, and the columns are"),
    "columns from 1": ({"probs": pd.DataFrame(PROBS, columns=["p_1", "p_2", "p_3"])},
                       "probs: labels are numbers, and the columns are p_1, p_2, p_3."),
    "from 1": ({"labels": LABELS + 1, "probs": PROBS}, "labels: row"),
    "halves": ({"labels": LABELS + 0.5, "probs": PROBS}, "labels: row 0: 'labels' is"),
    "an index": ({"labels": pd.Series(LABELS), "probs": pd.DataFrame(PROBS).iloc[::-1]},
                 "probs: its index is not that of labels"),
    "a weight's index": ({"labels": pd.Series(LABELS), "probs": PROBS,
                          "weights": pd.Series(1.0, index=range(1, 301))}, "weights: its index"),
    "a score": ({"labels": LABELS == 0, "probs": PROBS[:, 0] * 2}, "probs: row"),
    "one logit": ({"labels": LABELS == 0, "logits": LOGITS[:, 0]}, "logits: there is one column"),
    "too few labels": ({"labels": LABELS[:9], "probs": PROBS}, "labels: has the shape [9]; probs"),
    "nothing": ({"labels": [], "probs": np.zeros((0, 3))}, "labels: there is no sample"),
    "text": ({"probs": "p.csv"}, "probs: is no array"),
    "two names": ({"probs": PROBS, "classes": ["a", "b"]}, "classes: 2 names for 3 columns"),
    "one name twice": ({"probs": PROBS, "classes": ["a", "b", "a"]}, "classes: 'a' is there twice"),
    "negative": ({"probs": PROBS, "weights": -np.ones(300)}, "weights: row 0: -1. A weight is"),
    "weightless": ({"probs": PROBS, "weights": np.zeros(300)}, "weights: all are 0."),
    "no form": ({"probs": PROBS, "weights": np.ones(300), "metrics": ["adaptive_ece"]},
                "weights: adaptive_ece has no weighted form"),
    "no metric": ({"probs": PROBS, "metrics": "ecee"}, "metrics: there is no metric 'ecee'. Did"),
    "no names": ({"probs": PROBS, "metrics": []}, "metrics: there is none"),
    "a level": ({"probs": PROBS, "intervals": 95}, "intervals: got 95. Give True, False or"),
    "too high a level": ({"probs": PROBS, "intervals": 0.99999}, "intervals: got 0.99999. Give"),
    "a number of metrics": ({"probs": PROBS, "metrics": 3}, "metrics: got 3. Give names"),
    "a set": ({"probs": PROBS, "classes": {"a", "b", "c"}}, "classes: is a set, which has no"),
    "a mapping": ({"probs": PROBS, "classes": {"a": 1}}, "classes: is a dict, which has no order"),
    "masked": ({"labels": np.ma.masked_equal(LABELS, 2), "probs": PROBS}, "labels: row"),
    "weights of another shape": ({"labels": np.zeros((12, 2, 2), int),
                                  "logits": np.zeros((12, 3, 2, 2)), "weights": np.ones((3, 3))},
                                 "weights: has the shape [3, 3]"),
    "a weight of words": ({"probs": PROBS, "weights": WORDS}, "weights: row 0: the weight is"),
    "a mask": ({"labels": LABELS, "logits": np.zeros((300, 3, 2, 2))}, "labels: has the shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_its_name_with_the_mend(case: str) -> None:
    given, said = REFUSED[case]
    labels = given.get("labels", LABELS)
    with pytest.raises(calstudy.UserError) as error:
        calstudy.evaluate(labels, **{name: it for name, it in given.items() if name != "labels"})
    assert isinstance(error.value, ValueError) and str(error.value).startswith(said)
    assert error.value.mend  # type: ignore[attr-defined]


def test_the_diagram_and_the_classes_have_no_weights() -> None:
    found = calstudy.evaluate(LABELS, probs=PROBS, weights=np.ones(300))
    for call in (found.reliability, found.by_class):
        with pytest.raises(calstudy.UserError, match=r"^weights: .* Leave them out\.$"):
            call()
