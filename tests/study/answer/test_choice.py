"""What becomes the model: means and medians by hand; nothing of the test split moves it."""

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytest import approx
from scipy.stats import binomtest

from study.answer import networks
from study.answer.choice import choose, median_seed
from study.answer.confirmation import Confirmation, Confirmed, Results, front_on_test
from study.registry import model_card
from study.schema.objective import Objective
from study.store.recorded import Recorded
from study.store.trials import TrialRecord, Trials
from tests.study.made import trials_of, unwritten_study
from tests.study.registry.test_model_card import section_of
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

NONE = Trials({})
BOTH = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
# Validation values of three fresh seeds each. Mean accuracies .95, .94, .80;
# mean ECE .05, .02, .01.
SEEDS = {
    "focal_0001": [(0.96, 0.06), (0.94, 0.04), (0.95, 0.05)],
    "mbls_0007": [(0.93, 0.01), (0.95, 0.03), (0.94, 0.02)],
    "cross_entropy_default": [(0.80, 0.01), (0.81, 0.01), (0.79, 0.01)],
}


def rows(seeds: dict[str, Any] = SEEDS, test: float = 0.5) -> tuple[Confirmed, ...]:
    return tuple(
        Confirmed(
            label,
            "candidate",
            None,
            tuple(
                TrialRecord(label, number, "complete", {}, {"accuracy": accuracy, "ece": ece})
                for number, (accuracy, ece) in enumerate(values)
            ),
            tuple(
                {"accuracy": test * place, "ece": test / (1 + place)}
                for place in range(len(values))
            ),
            {},
        )
        for label, values in seeds.items()
    )


def with_confirmation(
    found: tuple[Confirmed, ...], lacking: int = 0, of_search: Trials = NONE
) -> Results:
    """A study's results, with a confirmation of these rows."""
    study = unwritten_study(["focal"])
    confirming: Any = SimpleNamespace(
        name="small-confirm",
        confirms_itself=False,
        command=lambda verb: f"calstudy {verb} small",
        lacking=lambda records: lacking,
        recorded=Recorded(sizes={"validation": 200}),
    )
    return Results(study, of_search, Confirmation(confirming, found, study, NONE, {}))


def chosen(rule: str, found: tuple[Confirmed, ...], lacking: int = 0) -> str:
    of_search = trials_of([TrialRecord("focal", 1, "complete", {}, {"accuracy": 0.99, "ece": 0.0})])
    results = with_confirmation(found, lacking, of_search)
    choice = choose(results, rule)
    assert results.confirmation is not None
    confirming = results.confirmation.study
    assert choice.study is (confirming if any(row.records for row in found) else results.study)
    return choice.record.name


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("max accuracy", "focal_0001/0002"),
        ("min ece", "cross_entropy_default/0000"),
        ("min ece where accuracy>=0.9", "mbls_0007/0002"),
        ("weighted accuracy=1 ece=0.1", "focal_0001/0002"),
        ("weighted accuracy=1 ece=1", "mbls_0007/0002"),
    ],
)
def test_confirmed_ones_by_their_means_and_of_these_the_median_seed(
    rule: str, expected: str
) -> None:
    assert chosen(rule, rows()) == expected
    # Whatever the test split says.
    assert [chosen(rule, rows(test=test)) for test in (0.0, 0.9, -5.0)] == [expected] * 3


def test_not_told_from_the_best_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """.94 is not told from .95 over three seeds of 200 samples, .80 is."""

    def stored(study: Any, record: TrialRecord) -> Predictions:
        labels = torch.arange(200) % 10
        wrong = torch.arange(200) < round(200 * (1 - record.metrics["accuracy"]))
        return Predictions(
            5.0 * torch.nn.functional.one_hot(torch.where(wrong, (labels + 1) % 10, labels), 10),
            labels,
        )

    monkeypatch.setattr(networks, "stored_predictions", stored)
    assert chosen("min ece where accuracy~best", rows()) == "mbls_0007/0002"
    one_seed = {label: values[:1] for label, values in SEEDS.items()}
    with pytest.raises(FieldError, match="accuracy~best needs two seeds per"):
        chosen("min ece where accuracy~best", rows(one_seed))


def test_where_every_seed_failed_it_is_chosen_from_the_search() -> None:
    nothing = {label: [] for label in SEEDS}
    assert chosen("min ece", rows(nothing)) == "focal/0001"


def test_of_a_confirmation_that_is_not_finished_nothing_is_chosen() -> None:
    """Which of its rows are there is up to when it was stopped."""
    said = (
        r"^pick: small-confirm is not finished\. Resume it with `calstudy confirm small`. \(--trial"
        r" can export"
    )
    with pytest.raises(FieldError, match=said):
        chosen("knee", rows(), lacking=1)
    with pytest.raises(FieldError, match=said):
        chosen("knee", tuple(replace(row, tests=row.tests[:2]) for row in rows()))


def test_of_a_confirmation_itself_nothing_is_picked() -> None:
    study = unwritten_study(["focal"])
    study.plain.update(name="small-confirm", confirms="small")
    with pytest.raises(
        FieldError, match=r"^pick: small-confirm confirms 'small'. Use --pick on 'small'"
    ):
        choose(Results(study, NONE), "knee")


def test_the_median_of_two_is_the_worse_one() -> None:
    values = [0.9, 0.8, 0.85, 0.95]
    found = [
        TrialRecord("focal", number, "complete", {}, {"accuracy": value})
        for number, value in enumerate(values)
    ]
    assert median_seed(found, BOTH[0]).number == 2
    assert median_seed(found[:3], BOTH[0]).number == 2
    assert median_seed(found[:2], BOTH[0]).number == 1


def test_the_card_of_a_model_that_is_nearly_always_right(tmp_path: Path) -> None:
    """NLL has no interval there, and its figure stands alone."""
    labels = torch.arange(200) % 10
    answers = Predictions(9.0 * torch.nn.functional.one_hot(labels, 10).float(), labels)
    digest = answers.save(tmp_path / "test.npz")
    tested: Any = SimpleNamespace(
        digests={"test.npz": digest}, temperature=1.0, metrics=answers.evaluate_at(1.0)
    )
    recorded = Recorded(sizes={"test": 200})
    study = SimpleNamespace(files=lambda record: tmp_path, recorded=recorded)
    choice: Any = SimpleNamespace(study=study)
    found = model_card._with_intervals(choice, None, tested, 0.95)
    assert [len(found[name]) for name in ("accuracy", "nll", "ece", "ts_nll")] == [3, 1, 3, 1]
    assert model_card._with_range(found["nll"]) == f"{answers.evaluate()['nll']:.4f}"
    assert re.fullmatch(r"1 \(≥ 0\.98\d\)", model_card._with_range(found["accuracy"]))


def test_the_card_names_the_level_of_its_intervals(tmp_path: Path) -> None:
    """Accuracy against SciPy's Wilson interval; what an older version registered
    without a level is 95%."""
    labels = torch.arange(200) % 10
    logits = 9.0 * torch.nn.functional.one_hot(labels, 10).float()
    answers = Predictions(logits, torch.where(torch.arange(200) < 20, (labels + 1) % 10, labels))
    digest = answers.save(tmp_path / "test.npz")
    tested: Any = SimpleNamespace(
        digests={"test.npz": digest}, temperature=1.0, metrics=answers.evaluate_at(1.0)
    )
    row = Confirmed(
        "focal",
        "baseline",
        None,
        (TrialRecord("focal", 0, "complete", {}, answers.evaluate()),),
        (),
        {},
    )
    study: Any = SimpleNamespace(
        files=lambda record: tmp_path,
        confirms=None,
        confirms_itself=False,
        served=BOTH,
        recorded=Recorded(sizes={"test": 200}),
    )
    confirmation = Confirmation(study, (row,), study, NONE, {"focal": {0: tested}})
    choice = model_card.Choice(study, row.records[0], row, confirmation)
    for level, named in ((0.95, "95%"), (0.8, "80%")):
        facts = model_card.confirmed_facts(choice, level)
        assert facts is not None
        expected = binomtest(180, 200).proportion_ci(level, "wilson")
        assert facts["seeds"][0]["test"]["accuracy"] == approx([0.9, *expected])
        of_card = {
            "confirmed": facts,
            "serves": "raw",
            "method": "focal",
            "config": {"method": "focal"},
        }
        section = section_of(of_card)
        assert (
            f"with {named} intervals" in section
            and f"0.900 [{expected[0]:.3f}, {expected[1]:.3f}]" in section
        )
        assert ("level" in facts) == (level != 0.95)


def test_none_is_chosen_that_another_beats_in_everything() -> None:
    """Of the means as deployed (accuracy, ECE) and NLL, none is better in all three."""
    source = random.Random(0)
    for _ in range(200):
        values = {
            f"m_{place:04d}": [source.randrange(5) / 5 for _ in range(3)] for place in range(6)
        }
        found = tuple(
            Confirmed(
                label,
                "candidate",
                None,
                (seed(label, 0, *mean), seed(label, 1, *mean)),
                ({}, {}),
                {},
            )
            for label, mean in values.items()
        )
        choice = choose(with_confirmation(found))
        assert choice.row is not None
        accuracy, ece, nll = values[choice.row.label]
        assert not any(
            other[0] > accuracy and other[1] < ece and other[2] < nll for other in values.values()
        )


def seed(label: str, number: int, accuracy: float, ece: float, nll: float) -> TrialRecord:
    return TrialRecord(
        label, number, "complete", {}, {"accuracy": accuracy, "ece": ece, "nll": nll}
    )


def test_on_the_front_of_test_is_who_has_every_objective_there() -> None:
    objectives = (Objective("accuracy", "maximize"), Objective("accuracy_above_99", "maximize"))
    tests = {"sure": [{"accuracy": 0.9, "accuracy_above_99": 1.0}], "modest": [{"accuracy": 0.95}]}
    both = [
        Confirmed(label, "default", None, (), tuple(found), {}) for label, found in tests.items()
    ]
    assert front_on_test(both, objectives) == ["sure"]
