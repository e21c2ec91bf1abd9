"""What is said about a study, against values by hand and SciPy; nothing of the test split moves the choice."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pytest import approx
from scipy.stats import binomtest
from scipy.stats import t as student_t

from search_spaces import strict_yaml
from study.analysis.ranking import Ranking
from study.answer.answer import answer
from study.answer.choice import choose
from study.store import test_openings
from study.store.ledger import Ledger, open_storage
from study.store.study import Study, open_study
from study.tracking.descriptions import FROM, TO, with_answer
from study.uncertainty.methods import Measured, mean_over_seeds
from tests.study.made import made_study
from trainables.outputs.predictions import Predictions

SAMPLES = 400
LABELS = torch.arange(SAMPLES) % 10


def predictions(
    wrong: int, confidence: float = 0.95, shift: int = 0, of_wrong: float | None = None
) -> Predictions:
    """The first `wrong` samples (from `shift` on) are wrong. The predicted class has that probability; another one
    where it is wrong, if given.
    """
    classes = LABELS.clone()
    places = (torch.arange(wrong) + shift) % SAMPLES
    classes[places] = (classes[places] + 1) % 10
    tops = torch.full((SAMPLES,), confidence)
    tops[places] = confidence if of_wrong is None else of_wrong
    probs = ((1 - tops) / 9)[:, None].repeat(1, 10)
    return Predictions(probs.scatter(1, classes[:, None], tops[:, None]).log(), LABELS)


def search(
    root: Path, focal: tuple[Predictions, ...] = (predictions(20), predictions(60))
) -> Study:
    """focal with these predictions; cross_entropy with one trial of .90."""
    found = {"focal": focal, "cross_entropy": (predictions(40),)}
    trials = {label: [(one.evaluate(), []) for one in each] for label, each in found.items()}
    made = made_study(root, "small", trials, predictions=lambda label, number: found[label][number])
    return changed(made, trials=2)


def changed(study: Study, **changes: object) -> Study:
    """With other values in its study.yaml, at the top or recorded."""
    recorded = {
        key: changes.pop(key, value) for key, value in {**study.recorded, "majority": 0.1}.items()
    }
    (study.directory / "study.yaml").write_text(
        strict_yaml.dump({**study.plain, **changes, "recorded": recorded})
    )
    return open_study(str(study.directory), None)


def confirm(
    search: Study,
    validation: dict[str, list[Predictions]],
    test: dict[str, list[Predictions]],
    measured: int = 99,
) -> None:
    """small-confirm, as `calstudy confirm` leaves it. measured: seeds with test results."""
    trials = {label: [(one.evaluate(), []) for one in each] for label, each in validation.items()}
    root = search.directory.parent
    made = made_study(
        root, "small-confirm", trials, predictions=lambda label, number: validation[label][number]
    )
    methods = [
        {"label": label, "name": "cross_entropy" if "cross" in label else "focal", "values": {}}
        for label in validation
    ]
    made = changed(made, confirms="small", methods=methods)
    ledger = Ledger(open_storage(made.directory, None), made.name, made.id)
    for label, records in made.records().items():
        ledger.open(label, made.objectives)
        for record, found in list(zip(records, test[label], strict=True))[:measured]:
            digest = found.save(made.files(record) / "test.npz")
            tested = test_openings.Tested(
                record.number + 1, found.evaluate_at(2.0), 2.0, {"test.npz": digest}, 1.0
            )
            ledger.note(label, f"{test_openings.TESTED}{record.number}", tested.to_plain())


def said(study: Study) -> str:
    return " ".join(answer(study).sentences)


# ---- before a confirmation -----------------------------------------------------------------------------------------


def test_before_a_confirmation_it_says_what_is_not_known(tmp_path: Path) -> None:
    found = answer(search(tmp_path))
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    why = "of 3 trials, the one with the lowest NLL of those not significantly different from the knee"
    assert found.sentences[0] == f"Take focal/0000, as trained, for now: {why}."
    assert found.sentences[1].startswith(
        f"Accuracy 0.9500 [{low:.4f}, {high:.4f}] and ECE 0.0000 [0.0000, "
    )
    assert (
        "one seed (95% intervals)" in found.sentences[1]
        and "looks better than it is" in found.sentences[1]
    )
    assert found.sentences[2].startswith("Not known yet: its values on the sealed test images")
    assert [command for command, _ in found.next] == ["calstudy run SPEC", "calstudy confirm small"]
    assert "The search is not finished: 1 trial not done yet." in found.sentences
    short = answer(changed(open_study("small", str(tmp_path)), budget={"cpu_hours": 1e-9}))
    assert (found.next[0][1], short.next[0][1]) == (
        "resumes the search",
        "resumes the search, once its budget is raised",
    )
    done = answer(changed(open_study("small", str(tmp_path)), trials=1, budget=None))
    assert [command for command, _ in done.next] == [
        "calstudy confirm small"
    ] and "not finished" not in str(done)


def test_of_what_cannot_be_told_from_the_knee_the_lowest_nll(tmp_path: Path) -> None:
    """The knee is as sure of its 14 mistakes; another is less sure of 15, in one bin of its own. A third is far off."""
    unsure = predictions(15, 0.99, 7, of_wrong=0.4)
    study = search(tmp_path, (predictions(14, 0.95), unsure, predictions(150, 0.6)))
    knee, other, _ = study.records()["focal"]
    assert other.metrics["nll"] < knee.metrics["nll"] and other.metrics["ece"] > knee.metrics["ece"]
    assert Ranking(study, study.all_records()).knee == knee
    found = answer(study)
    assert found.sentences[0].startswith(
        "Take focal/0001, as trained, for now: of 4 trials, the one with the lowest NLL"
    )
    assert found.sentences[0].endswith("not significantly different from the knee, focal/0000.")
    assert choose(study).record == other and choose(study, "knee").record == knee


@pytest.mark.slow
def test_a_guesser_is_never_the_answer(tmp_path: Path) -> None:
    """One in ten right at a confidence of .1 is perfectly calibrated."""
    study = search(tmp_path, (predictions(360, 0.1001), predictions(60)))
    assert "Take cross_entropy/0000" in said(study) and "1 trial is set aside: 1 guesses." in said(
        study
    )
    study = changed(
        study, methods=[method for method in study.plain["methods"] if method["label"] == "focal"]
    )
    assert "Take focal/0001" in said(study)
    nothing = search(tmp_path / "nothing", (predictions(360, 0.1001), predictions(362, 0.2)))
    nothing = changed(nothing, methods=nothing.plain["methods"][:1])
    assert said(nothing).startswith(
        "No model can be recommended: no trial counts. 2 trials are set aside: 2 guess."
    )
    assert answer(nothing).next[0][0] == "calstudy trials small"


def test_of_an_empty_study_it_says_how_to_run_it(tmp_path: Path) -> None:
    found = answer(made_study(tmp_path, "small", {"focal": []}))
    assert (
        found.sentences == ("No trial is complete yet.",)
        and found.next[0][0] == "calstudy run SPEC"
    )


def test_a_study_of_before_says_that_it_keeps_the_temperature(tmp_path: Path) -> None:
    study = search(tmp_path)
    before = replace(
        study, recorded={key: value for key, value in study.recorded.items() if key != "serves"}
    )
    before.plain.pop("serve")
    assert "Take focal/0000, with its temperature" in said(before)
    assert (
        "This study was made before `serve` and keeps the temperature: its registered models have"
        in said(before)
    )


# ---- after a confirmation ------------------------------------------------------------------------------------------

# Of equal accuracy and ECE on validation, focal_0000 has the lower NLL; focal_0001 is far less accurate.
ROWS = {
    "focal_0000": [predictions(20, 0.95, shift) for shift in (0, 3, 6)],
    "focal_default": [predictions(20 + more, 0.93, more) for more in (0, 2, 4)],
    "focal_0001": [predictions(120, 0.95, shift) for shift in (0, 3, 6)],
    "cross_entropy_default": [predictions(22 + more, 0.99, more) for more in (0, 1, 2)],
}


@pytest.mark.slow
def test_of_those_that_cannot_be_told_apart_the_lowest_nll(tmp_path: Path) -> None:
    study = search(tmp_path)
    confirm(study, ROWS, ROWS)
    found = answer(study)
    assert found.choice is not None and found.choice.record.label == "focal_0000"
    assert found.choice.tied is not None and "focal_default" in found.choice.tied
    assert "focal_0001" not in found.choice.tied  # .70 is told from .95
    assert found.sentences[0] == "Take focal/0000, as trained."
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    assert found.sentences[1].startswith(
        f"Accuracy 0.9500 [{low:.4f}, {high:.4f}] and ECE 0.0000 [0.0000, "
    )
    assert (
        "on 360 sealed test images of digits, 3 fresh seeds (95% intervals)." in found.sentences[1]
    )
    assert (
        "focal_default" in found.sentences[2]
        and "; of all these, it has the lowest NLL" in found.sentences[2]
    )
    assert (
        "Cross-entropy's default has accuracy 0.9425 [" in found.sentences[3]
        and "this model is better in accuracy and ECE." in found.sentences[3]
    )
    assert (
        found.sentences[4].startswith("After a temperature it would have ECE ")
        and "on validation" in found.sentences[4]
    )
    assert found.next[0] == ("calstudy export small --name small", "registers it")


@pytest.mark.slow
def test_the_test_split_moves_the_values_and_not_the_choice(tmp_path: Path) -> None:
    study = search(tmp_path)
    worst = {label: [predictions(390, 0.99, shift) for shift in (0, 1, 2)] for label in ROWS}
    confirm(study, ROWS, {**ROWS, "focal_0000": worst["focal_0000"]})
    found = answer(study)
    assert (
        found.sentences[0] == "Take focal/0000, as trained."
        and "Accuracy 0.0250 [" in found.sentences[1]
    )


@pytest.mark.slow
def test_what_is_not_finished_is_not_yet_the_answer(tmp_path: Path) -> None:
    study = search(tmp_path)
    confirm(study, ROWS, ROWS, measured=2)
    assert "for now" in said(study)
    assert answer(study).next[-1] == (
        "calstudy confirm small",
        "resumes the confirmation, which is not finished",
    )


@pytest.mark.slow
def test_a_constraint_holds_for_what_is_confirmed(tmp_path: Path) -> None:
    study = changed(search(tmp_path), constraints=["nll <= 0.0001"])
    confirm(study, ROWS, ROWS)
    found = answer(study)
    assert found.sentences[0] == "No model can be recommended: no confirmed model counts."
    assert any(sentence.startswith("focal_0000: nll is 0.") for sentence in found.sentences)


# ---- the interval of a mean over seeds -----------------------------------------------------------------------------


def test_equal_networks_have_the_interval_of_one() -> None:
    one = Measured(predictions(20))
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    for networks in ([one], [one, one, one]):
        assert mean_over_seeds(networks, ["accuracy"])["accuracy"] == approx((0.95, low, high))


def test_seeds_that_differ_widen_it_by_students_t() -> None:
    """Accuracies .94, .95, .96: standard error .01 / sqrt(3)."""
    networks = [Measured(predictions(wrong)) for wrong in (24, 20, 16)]
    alone = [binomtest(400 - wrong, 400).proportion_ci(0.95, "wilson") for wrong in (24, 20, 16)]
    low, high = sum(ends.low for ends in alone) / 3, sum(ends.high for ends in alone) / 3
    reach = (((high - low) / 2) ** 2 + (student_t.ppf(0.975, 2) * 0.01 / 3**0.5) ** 2) ** 0.5
    middle = (low + high) / 2
    assert mean_over_seeds(networks, ["accuracy"])["accuracy"] == approx(
        (0.95, middle - reach, middle + reach)
    )


def test_a_metric_after_temperature_uses_the_temperature_fitted_elsewhere() -> None:
    found = predictions(20, 0.99)
    (scaled,) = (Measured(Predictions(found.logits / 2.0, LABELS)),)
    expected = mean_over_seeds([scaled], ["ece"])["ece"]
    assert mean_over_seeds([Measured(found, 2.0)], ["ts_ece"])["ts_ece"] == approx(expected)


@pytest.mark.slow
def test_it_covers_the_mean_of_a_method_over_seeds_and_samples() -> None:
    """Three networks whose accuracies vary by .02 around .9, on shared samples: at least 93% of 300 times."""
    generator, covered = torch.Generator().manual_seed(0), 0
    for _ in range(300):
        difficulty = torch.rand(SAMPLES, generator=generator)
        networks = []
        for _ in range(3):
            accuracy = 0.9 + 0.02 * torch.randn(1, generator=generator)
            own = torch.rand(SAMPLES, generator=generator)
            # Half of what decides is shared by the networks.
            score = torch.special.ndtr(
                (torch.special.ndtri(difficulty) + torch.special.ndtri(own)) / 2**0.5
            )
            classes = torch.where(score < accuracy, LABELS, (LABELS + 1) % 10)
            networks.append(
                Measured(
                    Predictions(3.0 * torch.nn.functional.one_hot(classes, 10).float(), LABELS)
                )
            )
        _, low, high = mean_over_seeds(networks, ["accuracy"], resamples=100)["accuracy"]
        covered += low <= 0.9 <= high
    assert covered / 300 >= 0.93


# ---- in MLflow -----------------------------------------------------------------------------------------------------


def test_the_description_has_one_answer_and_keeps_what_a_user_wrote() -> None:
    first = with_answer(
        "Mine.\n\nOurs.", ["Take a.", "Accuracy 0.9."], [("calstudy confirm s", "retrains")]
    )
    assert (
        first
        == f"{FROM}\n**Take a.** Accuracy 0.9.\n\nNext: `calstudy confirm s` retrains.\n{TO}\n\nMine.\n\nOurs."
    )
    again = with_answer("Before. " + first, ["Take b."], [])
    assert again == f"{FROM}\n**Take b.**\n{TO}\n\nBefore. \n\nMine.\n\nOurs."
