"""What is said of a temperature that the data do not determine, and which fit
a study's values are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pytest import approx

from study.audit.values import recomputed
from study.schema import temperature
from study.schema.errors import SpecError
from study.schema.temperature import temperature_note
from study.store.study import open_directory, write_study_file
from tests import references
from tests.cases import random_case
from tests.study.report_studies import make_study
from trainables.metrics.shared import post_hoc
from trainables.outputs.predictions import Predictions


def test_names_and_range_are_those_of_the_fits() -> None:
    """They are written twice, since reading a study loads no torch."""
    assert post_hoc.TEMPERATURES[temperature.WITH_PRIOR] is post_hoc.by_temperature
    assert (temperature.LOWEST, temperature.HIGHEST) == (post_hoc.LOWEST, post_hoc.HIGHEST)


@pytest.mark.parametrize(
    ("fitted", "accuracy", "said"),
    [
        (1.3, 0.97, None),
        (
            0.2345,
            1.0,
            "The temperature, 0.2345, is fitted to 300 validation samples without an error",
        ),
        (0.2345, 1.0, "a prior worth one sample"),
        (0.01, 1.0, "the lowest that is tried"),
        (0.01, 0.99, "the lowest that is tried"),
        (999.9999999999998, 0.1, "the highest that is tried"),
    ],
)
def test_only_a_doubtful_temperature_has_a_note(
    fitted: float, accuracy: float, said: str | None
) -> None:
    note = temperature_note(fitted, accuracy, 300)
    assert (said in note and note.endswith(".")) if said else note == ""
    assert ("prior" in note) == (accuracy == 1)


@pytest.mark.parametrize(("logits", "end"), [([0.001, 0.0], "lowest"), ([-30.0, 0.0], "highest")])
def test_a_fit_at_an_end_of_its_range_is_found_there(logits: list[float], end: str) -> None:
    """A thousand barely right samples; one hundred thousand surely wrong ones."""
    count = 1000 if end == "lowest" else 100_000
    predictions = Predictions(torch.tensor([logits] * count), torch.zeros(count, dtype=torch.int64))
    assert end in temperature_note(predictions.temperature(), 0.5, count)


def made(root: Path, name: str, fit: str | None) -> Path:
    """The folder of a study with a fit recorded, or none."""
    study = make_study(root, name)
    versions = {"calstudy": "0.1.0", "git_commit": "c0ffee"}
    meaning = study.spec.meaning()
    recorded = replace(study.recorded, temperature_fit=fit, meaning=meaning, versions=versions)
    study.directory.mkdir(parents=True)
    write_study_file(replace(study, recorded=recorded))
    return study.directory


def test_another_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"temperature_fit.*must be temperature, got lbfgs"):
        open_directory(made(tmp_path, "small", "lbfgs"), "small")


@pytest.mark.parametrize(
    ("fit", "found"),
    [(None, "is missing"), ("temperature_by_nll", "is temperature_by_nll")],
)
def test_a_study_of_an_earlier_version_is_refused_with_that_version(
    tmp_path: Path, fit: str | None, found: str
) -> None:
    folder = made(tmp_path, "small", fit)
    with pytest.raises(SpecError) as refused:
        open_directory(folder, "small")
    assert str(refused.value) == (
        f"{folder}/study.yaml: recorded.temperature_fit: {found}: the study is of calstudy 0.1.0"
        " (commit c0ffee) or an earlier one, whose format this version does not read. Use that"
        " version, or start again under a new name."
    )


def test_values_of_stored_predictions_are_of_the_recorded_fit(tmp_path: Path) -> None:
    """Ten samples, where the prior matters: NLL after it, as in trials, and as
    the audit recomputes it."""
    logits, labels = random_case((10, 3, 3.0))
    predictions = Predictions(logits, labels)

    def reference(*case: torch.Tensor) -> float:
        return references.fit_temperature_with_prior(*case)[0]

    assert predictions.temperature() == approx(reference(logits, labels), rel=2e-3)
    scaled = logits.clone()
    for k in range(5):
        others = torch.arange(10) % 5 != k
        scaled[~others] /= reference(logits[others], labels[others])
    expected = references.nll(scaled, labels)
    assert predictions.evaluate()["ts_nll"] == approx(expected, rel=1e-3)
    found = recomputed(["ts_nll"], predictions, predictions.cross_fitted())
    assert found == approx({"ts_nll": expected}, rel=1e-3)
