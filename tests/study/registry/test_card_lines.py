"""Each line that a card shows is run: by NumPy, torch and a real server of MLflow."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from mlflow.exceptions import MlflowException
from numpy.testing import assert_allclose

from study.registry.model_card import LONGEST_METADATA, metadata, shown
from study.registry.model_card import card as card_of
from tests.patience import wait_until
from tests.study.registry.test_export import Trained, load, softmax
from tests.study.registry.test_export import root as root  # fixtures
from tests.study.registry.test_export import server as server
from tests.study.registry.test_export import trained as trained
from tests.study.registry.test_model_card import FACTS
from tests.study.tracking.line import free_port
from trainables.loading.cache import load_split

pytestmark = pytest.mark.slow


def block(card: str, language: str) -> list[str]:
    """The lines of the card's one block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", card, flags=re.DOTALL)
    return list(found.splitlines())


@contextmanager
def serving(line: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line.removesuffix(' &')}"],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answer_of(line: str, folder: Path, environment: dict[str, str]) -> Any:
    """What the server gives, once it has started."""
    answers: list[Any] = []

    def answered() -> bool:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            answers.append(json.loads(done.stdout))
        return bool(answers)

    try:
        wait_until(answered, 120, "the server's answer")
    except TimeoutError as error:
        raise AssertionError((folder / "log").read_text()) from error
    return answers[0]


@pytest.mark.platform
def test_every_line_of_a_card_gives_the_measured_probabilities(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trained.export("lines")
    card = trained.version(found).description
    assert card is not None
    card = card.replace("/VERSION", f"/{found.version}")
    images = load_split(trained.learner.data.prepared, "validation").images
    logits = trained.learner.predict().logits.numpy()
    expected = softmax(logits / found.temperature)
    given: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    try:
        for line in block(card, "python"):
            is_torch = line.endswith("# torch")
            given["images"] = images if is_torch else images.numpy()
            exec(line.replace('uri("...")', f'uri("{trained.uri}")'), given)
            if "model.predict(" in line:
                assert_allclose(given["probs"], expected, atol=1e-5)
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    with pytest.raises(MlflowException):  # why the lines say which type
        given["model"].predict(images.numpy().astype("float64"))
    assert torch.is_tensor(images) and given["images"].dtype == np.uint8
    sets, serves, waits, asks = block(card, "sh")
    assert waits.startswith("# ")
    port = str(free_port())
    words = dict(word.split("=") for word in sets.removeprefix("export ").split())
    environment = {**os.environ, **words, "MLFLOW_TRACKING_URI": trained.uri}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with serving(serves.replace("5051", port), tmp_path, environment):
        answered = answer_of(asks.replace("5051", port), tmp_path, environment)
    assert_allclose(answered["predictions"], expected, atol=1e-5)


def test_a_loaded_model_knows_its_classes(trained: Trained) -> None:
    found = trained.export("classes")
    assert load(trained, found).metadata.metadata == {
        "classes": [str(digit) for digit in range(10)],
        "num_classes": 10,
    }
    card = trained.version(found).description or ""
    wanted = ", ".join(str(digit) for digit in range(10))
    assert f'as `model.metadata.metadata["classes"]`: {wanted}.' in card


def test_a_card_too_long_for_the_registry_ends_with_a_line() -> None:
    card = "\n".join(f"line {number}" for number in range(1000))
    kept, _, rest = shown(card).partition("\n\n")
    assert len(shown(card)) <= 5000 < len(card)
    assert card.startswith(f"{kept}\n") and rest.endswith("`calstudy/card.md`.")
    assert shown(card[:5000]) == card[:5000]


def test_of_many_classes_the_card_has_the_first() -> None:
    facts = {"classes": [f"n{number:08d}" for number in range(1000)]}
    assert metadata(facts)["classes"] == facts["classes"]
    text = card_of({**FACTS, **facts}, "digits")
    assert "n00000099 and 900 more." in text and "n00000100" not in text
    many = {"classes": [f"a class with a long name {number}" for number in range(5000)]}
    assert len(json.dumps(many)) > LONGEST_METADATA
    assert metadata(many) == {"num_classes": 5000}
    assert "`calstudy/record.json`" in card_of({**FACTS, **many}, "digits")
