"""A model registered with structured scaling: what it gives, what it says, and what verifies."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from pytest import CaptureFixture, approx

from study.answer.choice import Choice
from study.cli import main
from study.registry import verification
from study.registry.export import Exported, export
from study.registry.names import ExportError
from study.registry.verification import verify
from study.schema.objective import TEMPERATURE
from study.uncertainty.calibrators import calibrators
from tests.study.command_line import verified_here
from tests.study.registry.test_export import Trained, load, record_digests, softmax
from tests.study.registry.test_export import here as here  # fixtures
from tests.study.registry.test_export import root as root
from tests.study.registry.test_export import server as server
from tests.study.registry.test_export import trained as trained
from trainables.loading.cache import load_split
from trainables.metrics.shared.post_hoc import by_structured
from trainables.metrics.shared.structured import FORMS

pytestmark = pytest.mark.slow


def calibrated(trained: Trained, form: str, name: str, alias: str | None = None) -> Exported:
    choice = Choice(trained.study, trained.record)
    return export(choice, name, alias, trained.uri, TEMPERATURE, calibrator=form)


@pytest.mark.parametrize("form", FORMS)
def test_it_gives_numpys_probabilities_and_verifies(
    trained: Trained, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = calibrated(trained, form, form)
    stored = trained.learner.predict()
    images = load_split(trained.learner.data.prepared, "validation").images.float().numpy()
    found = by_structured(stored.logits, stored.labels, form)
    samples = len(images)
    probs = softmax(stored.logits.double().numpy() / float(found.temperature))
    weight = found.weight.numpy()
    mixed = np.log((samples * probs + 1 / 10) / (samples + 1))
    scaled = mixed @ (np.diag(weight) if weight.ndim == 1 else weight).T + found.bias.numpy()
    for batch in (1, samples):
        given = load(trained, exported).predict(images[:batch])
        assert given.dtype == np.float32
        assert_allclose(given, softmax(scaled[:batch]), rtol=0, atol=1e-6)
    monkeypatch.setattr(verification, "subprocess", SimpleNamespace(run=verified_here))
    report = verify(exported.uri, trained.uri, trained.study.directory.parent)
    assert report.ok, report
    assert "calibrators with a different digest" in {check.name for check in report.checks}


def test_it_is_a_version_of_its_own_and_moves_no_selected_alias(trained: Trained) -> None:
    selected = trained.export("beside", "champion")
    with pytest.raises(ExportError, match=r"champion: beside/1 .* structured_vector was not"):
        calibrated(trained, "structured_vector", "beside", "champion")
    vector = calibrated(trained, "structured_vector", "beside", "trial")
    matrix = calibrated(trained, "structured_matrix", "beside", "trial")
    again = calibrated(trained, "structured_vector", "beside")
    versions = [each.version for each in (selected, vector, matrix, again)]
    assert versions == [1, 2, 3, 2] and not again.created
    client = trained.client
    assert int(client.get_model_version_by_alias("beside", "champion").version) == 1
    assert int(client.get_model_version_by_alias("beside", "trial").version) == 3
    assert trained.export("beside", "champion").version == 1


def test_card_and_line_say_what_it_changes(trained: Trained) -> None:
    exported = calibrated(trained, "structured_matrix", "structured_matrix")
    stored = trained.learner.predict()
    found = calibrators(stored, ["structured_matrix"])["structured_matrix"]
    record = json.loads((trained.artifacts(exported) / "calstudy/record.json").read_text())
    said = record["calibration"]
    assert (record["calibrator"], record["serves"]) == ("structured_matrix", "temperature")
    assert (said["parameters"], said["samples"]) == (111, len(stored.labels))
    for key in ("nll_less", "nll_less_low", "brier_less_high", "ece_less", "changed"):
        assert said[key] == approx(found[key], abs=1e-6)
    assert exported.calibrated.startswith(
        "Selected after temperature, and given structured_matrix, which was not selected: 111"
        f" parameters on {len(stored.labels)} validation samples. Cross-fitted there"
    )
    card = (trained.artifacts(exported) / "calstudy/card.md").read_text()
    assert "applies `structured_matrix`" in card and "(served)" not in card
    assert f"NLL {found['nll_less']:+.3f}"[:8] in card and "after temperature" in card
    plain = (trained.artifacts(trained.export("beside")) / "calstudy/card.md").read_text()
    assert "Calibrator" not in plain and "(served)" in plain


def test_verify_finds_another_calibrator(trained: Trained, here: Callable[..., object]) -> None:
    exported = calibrated(trained, "structured_vector", "swapped")
    other = calibrated(trained, "structured_matrix", "structured_matrix")
    shutil.copy(
        trained.artifacts(other) / "data" / "model.pt2",
        trained.artifacts(exported) / "data" / "model.pt2",
    )
    record_digests(trained, exported)
    report = here(exported.uri)
    failing = {check.name for check in report.checks if not check.ok}
    assert {"calibrators with a different digest", "probabilities"} <= failing


def test_it_excludes_a_temperature(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    words = ("export", "small", "--name", "m", "--calibrator", "structured_vector", "--raw")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--storage", str(tmp_path)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--calibrator takes the place of a temperature" in said and said.count("\n") == 1


def test_too_many_classes_for_a_matrix_are_said(trained: Trained) -> None:
    logits = torch.zeros(30, 300)
    with pytest.raises(ValueError, match="Take structured_vector"):
        by_structured(logits, torch.arange(30), "structured_matrix")
