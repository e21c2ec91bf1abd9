"""What is said about a study, against values by hand and SciPy; nothing of the test
split moves the choice."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from pytest import approx
from scipy.stats import binomtest
from scipy.stats import t as student_t

from search_spaces import strict_yaml
from study.answer.answer import answer
from study.answer.choice import choose
from study.answer.confirmation import results_of
from study.answer.said import NOT_COMPARED, Answer
from study.store import openings
from study.store.exports import ExportedModel, note_export
from study.store.files import stored_predictions
from study.store.ledger import Ledger, open_storage
from study.store.study import StudyFolder, open_study
from study.tracking.descriptions import FROM, TO, with_answer
from study.uncertainty.methods import NetworkPredictions, mean_over_seeds
from tests.study.command_line import here, here_json
from tests.study.made import made_study
from trainables.metrics.shared import post_hoc
from trainables.outputs.predictions import Predictions

Approved = Callable[..., None]
SAMPLES = 400
LABELS = torch.arange(SAMPLES) % 10
SELECTED = "How it was selected"


def predictions(
    wrong: int, confidence: float = 0.95, shift: int = 0, of_wrong: float | None = None
) -> Predictions:
    """The first `wrong` samples (from `shift` on) are wrong. The predicted class has that
    probability; another one
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
) -> StudyFolder:
    """focal with these predictions; cross_entropy with one trial of .90."""
    found = {"focal": focal, "cross_entropy": (predictions(40),)}
    trials = {label: [(one.evaluate(), []) for one in each] for label, each in found.items()}
    made = made_study(root, "small", trials, predictions=lambda label, number: found[label][number])
    return changed(made, trials=2)


def changed(study: StudyFolder, **changes: object) -> StudyFolder:
    """With other values in its study.yaml, at the top or recorded."""
    plain = replace(study.recorded, majority=0.1).to_plain()
    recorded = {key: changes.pop(key, value) for key, value in plain.items()}
    (study.directory / "study.yaml").write_text(
        strict_yaml.dump({**study.plain, **changes, "recorded": recorded})
    )
    return open_study(str(study.directory), None)


def confirm(
    search: StudyFolder,
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
    gamma = {"method.gamma": 3.0}
    own = {
        label: {"fixed": {}, "space": {} if "cross" in label else gamma, "defaults": []}
        for label in validation
    }
    meaning = {**(made.recorded.meaning or {}), "methods": own}
    made = changed(made, confirms="small", methods=methods, meaning=meaning)
    ledger = Ledger(open_storage(made.directory, None), made.name, made.id)
    for label, records in made.records().by_label.items():
        ledger.open(label, made.objectives)
        for record, found in list(zip(records, test[label], strict=True))[:measured]:
            digest = found.save(made.files(record) / "test.npz")
            tested = openings.Tested(
                record.number + 1, found.evaluate_at(2.0), 2.0, {"test.npz": digest}, 1.0
            )
            ledger.note(label, f"{openings.TESTED}{record.number}", asdict(tested))


def said(study: StudyFolder) -> str:
    return every_part(answer(results_of(study)))


def explained(found: Answer, heading: str) -> str:
    """The part of the explanation below this heading."""
    (text,) = (part.text for part in found.why if part.heading == heading)
    return text


def every_part(found: Answer) -> str:
    return "\n".join([*found.sentences, *(f"{one.heading}: {one.text}" for one in found.why)])


# ---- before a confirmation -----------------------------------------------------------------------


def test_before_a_confirmation_it_says_what_is_not_known(
    tmp_path: Path, approved: Approved
) -> None:
    found = answer(results_of(search(tmp_path)))
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    assert found.choice is not None and found.choice.record.name == "focal/0000"
    # .05 + 0, and .10 + .05 of cross_entropy/0000: five units each; half of its NLL
    # is seven units behind.
    nll = [predictions(wrong).evaluate()["nll"] for wrong in (20, 40)]
    assert (nll[1] - nll[0]) / 0.02 / 2 > 5
    selected = explained(found, SELECTED)
    assert "accuracy 0.01, ECE 0.01, NLL 0.02" in selected
    assert "Next comes cross_entropy/0000" in selected
    assert f"0.950 [{low:.3f}, {high:.3f}]" in found.sentences[1]
    assert "ECE 0.000 [0, 0.02" in found.sentences[1]
    assert found.verdict == "better" and found.default is not None
    assert found.words == {
        "accuracy": "better",
        "ece": "undecided",
        "nll": "better",
        "brier": "better",
    }
    assert found.default.name == "cross_entropy/0000"
    assert found.default.validation["accuracy"].estimate == approx(0.9)  # type: ignore[union-attr]
    where = f"--storage {tmp_path}"
    assert [command for command, _ in found.next] == [
        f"calstudy run small {where}",
        f"calstudy confirm small {where}",
    ]
    assert "1 trial not done" in found.sentences[3] and len(found.sentences) == 4
    approved("\n".join([every_part(found), found.next[0][1]]))
    short = answer(
        results_of(changed(open_study("small", str(tmp_path)), budget={"cpu_hours": 1e-9}))
    )
    assert found.next[0][0] == short.next[0][0] and found.next[0][1] != short.next[0][1]
    approved(short.next[0][1])
    done = answer(results_of(changed(open_study("small", str(tmp_path)), trials=1, budget=None)))
    assert [command for command, _ in done.next] == [
        f"calstudy confirm small {where}"
    ] and "not finished" not in str(done)


def test_nll_decides_where_the_objectives_do_not(tmp_path: Path, approved: Approved) -> None:
    """.05 of error each and an ECE of .0005 more; NLL is lower, since the wrong samples give
    their label the rest."""
    probs = predictions(20, 0.9505).logits.exp()
    wrong = probs.argmax(dim=1) != LABELS
    probs[wrong] = torch.where(probs[wrong] > 0.5, probs[wrong], 1e-6)
    probs[wrong, LABELS[wrong]] = 1 - 0.9505 - 8e-6
    study = search(
        tmp_path, (predictions(20, 0.95), Predictions(probs.log(), LABELS), predictions(150, 0.6))
    )
    knee, other, _ = study.records().of("focal")
    assert (
        other.metrics["nll"] < knee.metrics["nll"]
        and 0 < other.metrics["ece"] - knee.metrics["ece"] < 0.001
    )
    found = answer(results_of(study))
    assert found.choice is not None and found.choice.record == other
    selected = explained(found, SELECTED)
    assert "Next comes cross_entropy/0000, which loses most in" in selected
    approved(f"{found.sentences[0]}\n{selected}")
    assert (
        choose(results_of(study)).record == other
        and choose(results_of(study), "knee").record == knee
    )


def test_the_form_that_validation_decides_is_said(tmp_path: Path, approved: Approved) -> None:
    """The sentence follows the answer that the study would give if it had asked for that form."""
    found = answer(results_of(changed(search(tmp_path), serve="either")))
    with_form = {
        form: explained(answer(results_of(changed(search(tmp_path / form), serve=form))), SELECTED)
        for form in ("raw", "temperature")
    }
    said_of_it = explained(found, SELECTED)
    assert found.serves in with_form and said_of_it.startswith(with_form[found.serves])
    approved(said_of_it.removeprefix(with_form[found.serves]))


def test_where_the_default_is_excluded_that_is_said(tmp_path: Path, approved: Approved) -> None:
    """Cross-entropy's only trial has .90, and .93 is the least that counts."""
    found = answer(results_of(changed(search(tmp_path), constraints=["accuracy >= 0.93"])))
    assert (found.verdict, found.default) == (NOT_COMPARED, None)
    approved(found.about)


def test_where_cross_entropy_does_as_well_that_is_said(tmp_path: Path, approved: Approved) -> None:
    """37 and 40 wrong of 400: undecided. 39, if it matters little: as good."""
    found = answer(results_of(search(tmp_path, (predictions(37), predictions(60)))))
    assert found.verdict == "undecided" and "Take focal/0000" in found.sentences[0]
    approved(found.sentences[2])
    same = answer(
        results_of(
            changed(
                search(tmp_path / "same", (predictions(39), predictions(60))),
                matters={"accuracy": 0.05, "ece": 0.05, "nll": 0.2, "brier": 0.05},
            )
        )
    )
    assert same.verdict == "as_good" and "Take focal/0000" in same.sentences[0]
    approved(same.sentences[2])


def like_cross_entropy(shift: int) -> Predictions:
    """As accurate as `predictions(40)`, and as sure; wrong samples give their label all the rest,
    not a ninth of it."""
    found = predictions(40, shift=shift)
    probs = found.logits.exp()
    wrong = probs.argmax(dim=1) != LABELS
    probs[wrong] = torch.where(probs[wrong] > 0.5, probs[wrong], 1e-6)
    probs[wrong, LABELS[wrong]] = 0.05 - 8e-6
    return Predictions(probs.log(), LABELS)


def test_where_ece_is_undecided_nll_tells(tmp_path: Path) -> None:
    """35 of 40 wrong samples are the same. There NLL is lower by log 9 each: .19 of all samples and
    nine times what matters, before a confirmation and after it."""
    study = search(tmp_path, (like_cross_entropy(5), predictions(60)))
    words = {
        "accuracy": "undecided",
        "ece": "undecided",
        "nll": "better",
        "brier": "undecided",
    }
    said = "Better than default cross-entropy in NLL, undecided in accuracy, ECE and Brier score."
    before = answer(results_of(study))
    rows = {
        "focal_0000": [like_cross_entropy(shift) for shift in (5, 6, 7)],
        "cross_entropy_default": [predictions(40, shift=shift) for shift in (0, 1, 2)],
    }
    confirm(study, rows, rows)
    for found in (before, answer(results_of(study))):
        assert "Take focal/0000" in found.sentences[0]
        assert (found.words, found.sentences[2]) == (words, said)
        plain = found.to_plain()
        assert (plain["verdict"], plain["words"]) == ("better", words)
        former = {name: word.replace("undecided", "not told apart") for name, word in words.items()}
        assert plain["words_former"] == former
    others = explained(found, "Beside the other confirmed models")
    assert "worse: cross_entropy_default (in NLL)" in others


def test_what_matters_decides(tmp_path: Path, approved: Approved) -> None:
    """Error and ECE .05, .03 and .08, .005. In units of .01 both: 8 and 8.5; ECE in
    units of .001: 35 and 13."""
    study = search(tmp_path, (predictions(20, 0.98), predictions(32, 0.925)))
    assert choose(results_of(study)).record.name == "focal/0000"
    finer = changed(study, matters={"ece": 0.001})
    assert choose(results_of(finer)).record.name == "focal/0001"
    why = explained(answer(results_of(finer)), SELECTED)
    for words in ("accuracy 0.01, ECE 0.001, NLL 0.02", "Next comes cross_entropy/0000"):
        assert words in why
    approved(why)


def test_what_matters_may_not_change_unsaid_once_test_was_opened(
    tmp_path: Path, approved: Approved
) -> None:
    study = search(tmp_path)
    confirm(study, TWO, TWO)
    then = replace(study.recorded, matters_at_opening={"accuracy": 0.01, "ece": 0.01})
    opened = replace(study, recorded=then)
    assert "`matters`" not in said(opened)
    later = replace(opened, plain={**opened.plain, "matters": {"ece": 0.001}})
    changing = explained(answer(results_of(later)), "Cautions")
    assert "ECE 0.01 then" in changing
    approved(changing)


def test_the_other_way_of_serving_names_its_model_where_it_is_another(
    tmp_path: Path, approved: Approved
) -> None:
    """Sure by .99 of 20 mistakes of 400: a temperature mends it. .95 on 22
    mistakes has nothing to mend."""
    study = search(tmp_path, (predictions(20, 0.999), predictions(23, 0.943)))
    raw, scaled = (answer(results_of(study.served_as(serves))) for serves in ("raw", "temperature"))
    for found, taken, other, option in (
        (raw, "focal/0001", "focal/0000", "--temperature"),
        (scaled, "focal/0000", "focal/0001", "--raw"),
    ):
        assert f"Take {taken}, " in found.sentences[0]
        command = f"`calstudy answer small {option} --storage {tmp_path}`"
        beside = explained(found, "Temperature").partition(" applies it. ")[2]
        beside = beside or explained(found, "Temperature").partition(" leaves it out. ")[2]
        assert command in beside and other in beside
        approved(f"{found.sentences[0]}\n{beside}")


def test_of_a_temperature_a_direction_is_said_only_where_it_is_known(
    tmp_path: Path, approved: Approved
) -> None:
    """At .999 on accuracy .95 it lowers NLL and ECE; at .95 it has nothing to change."""
    sure = changed(
        search(tmp_path, (predictions(20, 0.999), predictions(60, 0.7))), matters={"accuracy": 1e-4}
    )
    text = said(sure)
    assert choose(results_of(sure)).record.name == "focal/0000"
    low = re.search(
        r"A temperature \(([\d.]+) for this network\) lowers NLL \((-[\d.]+) .* and ECE"
        r" \((-[\d.]+) ",
        text,
    )
    assert low is not None
    network = stored_predictions(sure, choose(results_of(sure)).record)
    metrics = network.evaluate()
    assert float(low[1]) == approx(network.temperature(), rel=0.01)
    assert float(low[2]) == approx(metrics["ts_nll"] - metrics["nll"], abs=0.005)
    assert float(low[3]) == approx(metrics["ts_ece"] - metrics["ece"], abs=0.0005)
    assert "lowers" not in said(search(tmp_path / "calm"))
    for storage in (tmp_path, tmp_path / "calm"):
        found = answer(results_of(open_study("small", str(storage))))
        approved(explained(found, "Temperature"))


@pytest.mark.slow
def test_a_guesser_is_never_the_answer(tmp_path: Path, approved: Approved) -> None:
    """One in ten right at a confidence of .1 is perfectly calibrated."""
    study = search(tmp_path, (predictions(360, 0.1001), predictions(60)))
    assert "Take cross_entropy/0000" in said(study) and "1 guesses" in said(study)
    assert answer(results_of(study)).verdict == "is_default"
    study = changed(
        study, methods=[method for method in study.plain["methods"] if method["label"] == "focal"]
    )
    assert "Take focal/0001" in said(study)
    nothing = search(tmp_path / "nothing", (predictions(360, 0.1001), predictions(362, 0.2)))
    nothing = changed(nothing, methods=nothing.plain["methods"][:1])
    assert answer(results_of(nothing)).choice is None and "2 guess" in said(nothing)
    approved("\n".join(answer(results_of(nothing)).sentences))
    assert answer(results_of(nothing)).next[0][0] == (
        f"calstudy trials small --storage {tmp_path}/nothing"
    )


def test_of_an_empty_study_it_says_how_to_run_it(tmp_path: Path, approved: Approved) -> None:
    found = answer(results_of(made_study(tmp_path, "small", {"focal": []})))
    assert found.choice is None and len(found.sentences) == 1
    assert found.next[0][0] == f"calstudy run small --storage {tmp_path}"
    approved(found.sentences[0])


# ---- after a confirmation ------------------------------------------------------------------------

# Of equal accuracy and ECE on validation, focal_0000 has the lower NLL;
# focal_0001 is less accurate.
ROWS = {
    "focal_0000": [predictions(20, 0.95, shift) for shift in (0, 3, 6)],
    "focal_default": [predictions(20 + more, 0.93, more) for more in (0, 2, 4)],
    "focal_0001": [predictions(58, 0.95, shift) for shift in (0, 3, 6)],
    "cross_entropy_default": [predictions(22 + more, 0.99, more) for more in (0, 1, 2)],
}
TWO = {label: ROWS[label] for label in ("focal_0000", "cross_entropy_default")}


@pytest.mark.slow
def test_of_what_was_confirmed_the_lowest_sum(tmp_path: Path, approved: Approved) -> None:
    study = search(tmp_path)
    confirm(study, ROWS, ROWS)
    found = answer(results_of(study))
    assert found.choice is not None and found.choice.record.label == "focal_0000"
    assert found.sentences[0].startswith("Take focal/0000") and len(found.sentences) <= 4
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    assert f"0.950 [{low:.3f}, {high:.3f}]" in found.sentences[1]
    assert "360 sealed test images" in found.sentences[1] and "3 fresh" in found.sentences[1]
    assert found.verdict == "better"
    # .05 + 0; of the default .055 + .015: two thirds of the difference are of ECE.
    selected = explained(found, SELECTED)
    assert "4 confirmed models" in selected
    assert "focal_default, which loses most in ECE" in selected
    others = explained(found, "Beside the other confirmed models")
    assert "287 validation images" in others and "undecided: focal_default" in others
    # .855 is told from .95, and an NLL of .24 from .20; an ECE of .04 is not told from 0.
    worse = "worse: focal/0001 (in every metric) and cross_entropy_default (in NLL)"
    assert worse in others, others
    widths = r"0\.0\d+ in accuracy, 0\.0\d+ in ECE and 0\.\d+ in NLL"
    assert re.search(rf"3 seeds .* from about {widths} on, among 4 models; 0.01 in", others)
    beside = explained(found, "Beside default cross-entropy")
    assert "cross_entropy_default has accuracy 0.94" in beside
    assert "undecided in accuracy, NLL and Brier score, better in ECE" in beside
    assert "A temperature (1 for this network)" in explained(found, "Temperature")
    approved(every_part(found))
    command = f"calstudy export small --name small --storage {tmp_path}"
    assert found.next[0][0] == command
    approved(found.next[0][1])


@pytest.mark.slow
def test_after_an_export_it_says_how_to_verify_the_latest_of_that_form(
    tmp_path: Path, approved: Approved
) -> None:
    study = search(tmp_path)
    confirm(study, TWO, TWO)
    found = answer(results_of(study))
    made = found.choice
    assert made is not None
    uri = "models:/small/2"
    noted = ExportedModel(made.study.name, made.record.name, study.serves, uri, "http://server")
    note_export(study.directory, replace(noted, uri="models:/small/1"))
    note_export(study.directory, replace(noted, serves="temperature", uri="models:/small/3"))
    note_export(study.directory, noted)
    checks = f"calstudy verify {uri} --tracking http://server"
    registered = answer(results_of(study)).next[0]
    assert registered[0] == checks
    approved(registered[1])
    (study.directory / "registered.json").write_text('[{"torn')
    assert answer(results_of(study)).next == found.next
    scaled = answer(results_of(study.served_as("temperature")))
    assert scaled.choice is not None
    which = f"--name small --trial {scaled.choice.record.name} --temperature"
    command = f"calstudy export small-confirm {which} --storage {tmp_path}"
    assert scaled.next[0] == (command, found.next[0][1])


@pytest.mark.slow
def test_the_test_split_moves_the_values_and_not_the_choice(tmp_path: Path) -> None:
    study = search(tmp_path)
    worst = [predictions(390, 0.99, shift) for shift in (0, 1, 2)]
    confirm(study, TWO, {**TWO, "focal_0000": worst})
    found = answer(results_of(study))
    assert "Take focal/0000" in found.sentences[0] and "0.025 [" in found.sentences[1]
    assert found.model is not None and found.model.validation["accuracy"].estimate == approx(0.95)  # type: ignore[union-attr]


@pytest.mark.slow
def test_what_is_not_finished_is_not_yet_the_answer(tmp_path: Path, approved: Approved) -> None:
    study = search(tmp_path)
    confirm(study, TWO, TWO, measured=2)
    found = answer(results_of(study))
    assert "for now" in every_part(found)
    command, why = found.next[-1]
    assert command == f"calstudy confirm small --storage {tmp_path}"
    approved(why)


@pytest.mark.slow
def test_a_constraint_holds_for_what_is_confirmed(tmp_path: Path, approved: Approved) -> None:
    study = changed(search(tmp_path), constraints=["nll <= 0.0001"])
    confirm(study, ROWS, ROWS)
    found = answer(results_of(study))
    assert found.choice is None
    assert any(sentence.startswith("focal/0000: nll is 0.") for sentence in found.sentences)
    approved("\n".join(found.sentences))


# ---- the interval of a mean over seeds -----------------------------------------------------------


def test_equal_networks_have_the_interval_of_one() -> None:
    one = NetworkPredictions(predictions(20))
    low, high = binomtest(380, 400).proportion_ci(0.95, "wilson")
    for networks in ([one], [one, one, one]):
        assert mean_over_seeds(networks, ["accuracy"])["accuracy"] == approx((0.95, low, high))


def test_seeds_that_differ_widen_it_by_students_t() -> None:
    """Accuracies .94, .95, .96: standard error .01 / sqrt(3)."""
    networks = [NetworkPredictions(predictions(wrong)) for wrong in (24, 20, 16)]
    alone = [binomtest(400 - wrong, 400).proportion_ci(0.95, "wilson") for wrong in (24, 20, 16)]
    low, high = sum(ends.low for ends in alone) / 3, sum(ends.high for ends in alone) / 3
    reach = (((high - low) / 2) ** 2 + (student_t.ppf(0.975, 2) * 0.01 / 3**0.5) ** 2) ** 0.5
    middle = (low + high) / 2
    assert mean_over_seeds(networks, ["accuracy"])["accuracy"] == approx(
        (0.95, middle - reach, middle + reach)
    )


def test_a_metric_after_temperature_uses_the_temperature_fitted_elsewhere() -> None:
    found = predictions(20, 0.99)
    (scaled,) = (NetworkPredictions(Predictions(found.logits / 2.0, LABELS)),)
    expected = mean_over_seeds([scaled], ["ece"])["ece"]
    assert mean_over_seeds([NetworkPredictions(found, 2.0)], ["ts_ece"])["ts_ece"] == approx(
        expected
    )


@pytest.mark.slow
def test_it_covers_the_mean_of_a_method_over_seeds_and_samples() -> None:
    """Three networks whose accuracies vary by .02 around .9, on shared samples: at
    least 93% of 100 times."""
    generator, covered = torch.Generator().manual_seed(0), 0
    for _ in range(100):
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
                NetworkPredictions(
                    Predictions(3.0 * torch.nn.functional.one_hot(classes, 10).float(), LABELS)
                )
            )
        _, low, high = mean_over_seeds(networks, ["accuracy"], resamples=100)["accuracy"]
        covered += low <= 0.9 <= high
    assert covered / 100 >= 0.93


# ---- in MLflow -----------------------------------------------------------------------------------


def test_the_description_has_one_answer_and_keeps_what_a_user_wrote() -> None:
    first = with_answer(
        "Mine.\n\nOurs.", ["Take a.", "Accuracy 0.9."], [("calstudy confirm s", "retrains")]
    )
    assert (
        first == f"{FROM}\n**Take a.** Accuracy 0.9.\n\nNext: `calstudy confirm s`"
        f" retrains.\n{TO}\n\nMine.\n\nOurs."
    )
    units = with_answer("", [f"Take a of <i>{TO}."], [("calstudy confirm 'a`b'", "does *it*")])
    assert (
        f"**Take a of \\<i\\>\\{TO[:-1]}\\>.**" in units and "``calstudy confirm 'a`b'``" in units
    )
    assert r"does \*it\*" in units
    again = with_answer("Before. " + first, ["Take b."], [])
    assert again == f"{FROM}\n**Take b.**\n{TO}\n\nBefore. \n\nMine.\n\nOurs."


def test_a_temperature_of_a_split_without_an_error_is_said(
    tmp_path: Path, approved: Approved
) -> None:
    """Before a confirmation of the trial, after it of the seed that `export`
    would take; with its T."""
    right = predictions(0)
    study = search(tmp_path, (right, predictions(60)))
    fitted = post_hoc.fit_temperature(right.logits, right.labels)
    before = of_temperature(study)
    assert f"{fitted:.4g}, " in before and f"{SAMPLES:,} validation samples" in before
    approved(before)
    found = {"focal_default": [right] * 2, "cross_entropy_default": [predictions(40)] * 2}
    confirm(study, found, found)
    after = of_temperature(open_study(str(study.directory), None))
    assert f"{fitted:.4g}, " in after and f"{SAMPLES:,} validation samples" in after
    approved(after)


def of_temperature(study: StudyFolder) -> str:
    cautions = explained(answer(results_of(study)), "Cautions")
    return cautions[cautions.index("The temperature, ") :]


def test_no_word_of_a_temperature_that_the_data_determine(tmp_path: Path) -> None:
    assert "The temperature, " not in said(search(tmp_path))


# ---- the object that everything shows ------------------------------------------------------------


@pytest.mark.slow
def test_the_json_has_model_default_and_verdict(tmp_path: Path) -> None:
    """Of a method's default too, all settings; of both, values of both splits with intervals."""
    study = search(tmp_path)
    better = {
        "focal_default": [predictions(10 + more, 0.97) for more in (0, 1, 2)],
        "cross_entropy_default": ROWS["cross_entropy_default"],
    }
    confirm(study, better, better)
    found = here_json("answer", "small", "--storage", tmp_path)
    assert found["sentences"][0] == "Take focal_default (gamma 3), as trained."
    model, default = found["model"], found["default"]
    assert (model["name"], model["method"], model["serves"]) == ("focal_default", "focal", "raw")
    assert model["settings"]["method.gamma"] == 3.0 and found["trial"] is None
    for each, wrong in ((model, 11), (default, 23)):
        for split in ("validation", "test"):
            value = each[split]["accuracy"]
            assert value["value"] == approx(1 - wrong / SAMPLES)
            assert value["low"] < value["value"] < value["high"]
            assert "floor" in each[split]["ece"]
    assert default["name"] == "cross_entropy_default"
    assert found["verdict"] in ("better", "undecided") and set(found["words"]) == {
        "accuracy",
        "ece",
        "nll",
        "brier",
    }
    why = {part["heading"] for part in found["why"]}
    assert {SELECTED, "How sure", "Beside default cross-entropy", "Temperature"} <= why
    shown = here("answer", "small", "--storage", tmp_path, "--why")
    assert all(f"\n{heading}\n" in shown for heading in why)
    short = here("answer", "small", "--storage", tmp_path)
    assert len(short.splitlines()) <= 4 + len(found["next"]) + 1
    assert not any(f"\n{heading}\n" in short for heading in why)


@pytest.mark.slow
def test_words_of_an_earlier_confirmation_are_said_to_be_computed_anew(tmp_path: Path) -> None:
    study = search(tmp_path)
    confirm(study, TWO, TWO)
    heading = "Beside the other confirmed models"
    assert "computed anew" not in explained(answer(results_of(study)), heading)
    file = tmp_path / "small-confirm" / "study.yaml"
    plain = strict_yaml.read(file)
    del plain["guard"]
    file.write_text(strict_yaml.dump(plain))
    assert explained(answer(results_of(study)), heading).count("computed anew") == 1


@pytest.mark.slow
def test_one_seed_each_is_not_compared(tmp_path: Path) -> None:
    study = search(tmp_path)
    single = {label: networks[:1] for label, networks in ROWS.items()}
    confirm(study, single, single)
    found = answer(results_of(study))
    assert found.verdict == "not_compared"
    assert found.sentences[2] == (
        "Not compared with default cross-entropy: each needs two seeds or more."
    )


def test_without_cross_entropy_there_is_no_verdict(tmp_path: Path) -> None:
    study = search(tmp_path)
    alone = changed(study, methods=[one for one in study.plain["methods"] if "focal" in str(one)])
    found = answer(results_of(alone))
    assert found.verdict == "not_compared" and found.default is None
    assert not any("cross-entropy" in sentence for sentence in found.sentences)
