"""A model of texts, from a csv to a verified version that is asked for new sentences."""

import json
import shutil
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from mlflow.pyfunc.scoring_server import infer_and_parse_data
from numpy.testing import assert_allclose

from study import encode
from study.schema.uris import embedded_tracking
from tests.study.command_line import here, here_json, write_spec
from tests.texts import made_texts
from trainables.data.shared.words import words_of
from trainables.problems import FieldError

pytestmark = pytest.mark.slow
SENTENCES = ["A warm, bright film \u2014 sharp!", "dull plot", "", "zebras " * 20 + "slow"]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("storage")
    made_texts().to_csv(root / "reviews.csv", index=False)
    rows = {"text": ["a dull film", "a fine film of zebras"] * 10, "y": [0, 1] * 10}
    pd.DataFrame(rows).to_csv(root / "later.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        texts = {"name": "text", "path": "reviews.csv", "label": "y", "length": 12, "keep": "last"}
        spec = write_spec(
            root / "reviews.yaml",
            name="reviews",
            data=texts,
            model={"name": "bag_of_words", "width": 8},
            optimizer={"name": "adam", "lr": 0.05},
            methods=["focal"],
            trials=1,
            epochs=6,
            serve="raw",
            shift={"later": {**texts, "path": "later.csv"}},
        )
        here("run", spec, "--storage", root)
        here("export", "reviews", "--name", "reviews", "--alias", "champion", "--storage", root)
        yield root


def folder_of(storage: Path) -> Path:
    uri = embedded_tracking(storage)
    return Path(MlflowClient(uri, uri).get_model_version_download_uri("reviews", "1"))


def test_it_takes_whole_numbers_and_gives_what_was_measured(storage: Path) -> None:
    model = mlflow.pyfunc.load_model(str(folder_of(storage)), model_config={"device": "cpu"})
    (given,) = model.metadata.get_input_schema().inputs
    assert (given.type, given.shape) == (np.dtype(np.int32), (-1, 12))
    record = json.loads((folder_of(storage) / "calstudy" / "record.json").read_text())
    rows = np.load(storage / "cache" / record["data_digest"] / "validation.npy")
    (file,) = (storage / "reviews" / "trials").rglob("predictions.npz")
    expected = torch.from_numpy(np.load(file)["logits"]).softmax(dim=1).numpy()
    assert_allclose(model.predict(rows), expected, atol=1e-6)
    assert_allclose(model.predict(rows[:1]), expected[:1], atol=1e-6)
    sent = json.loads(json.dumps({"inputs": rows[:3].tolist()}))  # as a server gets it
    asked = infer_and_parse_data(sent, model.metadata.get_input_schema())
    assert_allclose(model.predict(asked), expected[:3], atol=1e-6)


def test_encode_is_the_numbers_of_the_words(storage: Path) -> None:
    """By hand from the file: the last twelve words, zeros in front."""
    lines = (folder_of(storage) / "calstudy" / "vocabulary.txt").read_text().split("\n")[:-1]
    assert {"the", "film", "warm"} <= set(lines)
    expected = []
    for sentence in SENTENCES:
        numbers = [lines.index(word) + 2 if word in lines else 1 for word in words_of(sentence)]
        kept = numbers[-12:] or [1]
        expected.append([0] * (12 - len(kept)) + kept)
    found = encode(SENTENCES, folder_of(storage))
    assert found.dtype == np.int32 and found.tolist() == expected
    assert encode([], str(folder_of(storage))).shape == (0, 12)


def test_the_cards_lines_go_from_texts_to_probabilities(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = (folder_of(storage) / "calstudy" / "card.md").read_text()
    assert "Input: int32 [N, 12], numbers of words, of its file `calstudy/vocabulary.txt`." in card
    assert "The model applies" in card and "`encode` needs calstudy" in card
    lines = card.partition("```python\n")[2].partition("```")[0].splitlines()
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {}
    try:
        for line in lines:
            shown = line.replace('"..."', repr(embedded_tracking(storage)))
            shown = shown.replace("/VERSION", "/1")
            exec(shown.replace("['A new text.']", repr(SENTENCES[:2])), given)
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    assert given["probs"].shape == (2, 2)
    assert given["probs"][0, 1] > 0.5 > given["probs"][1, 1]  # warm; dull
    assert json.loads(Path("request.json").read_text())["inputs"] == given["numbers"].tolist()


def test_what_encode_refuses(storage: Path, tmp_path: Path) -> None:
    def problem(texts: Any, folder: Path) -> str:
        with pytest.raises(FieldError) as caught:
            encode(texts, folder)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    folder = folder_of(storage)
    assert "is a text, not a list of them" in problem("a film", folder)
    assert "number 1 is NoneType, not text" in problem(["a film", None], folder)
    assert "has no model of texts" in problem(["a film"], tmp_path)
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    (changed / "calstudy" / "vocabulary.txt").write_text("the\n")
    assert "vocabulary.txt is not the one that was registered" in problem(["a film"], changed)


def test_it_is_verified_confirmed_and_audited(storage: Path) -> None:
    found = here_json("verify", "models:/reviews@champion", "--storage", storage)
    assert found["ok"], json.dumps(found)
    checks = {one["name"]: one["found"] for one in found["checks"]}
    assert checks["vocabularies with a different digest"] == 0
    said = here("answer", "reviews", "--why", "--storage", storage)
    assert f"{found['num_samples']} validation texts of reviews.csv" in said
    assert "image" not in said
    here("confirm", "reviews", "--seeds", "1", "--storage", storage)
    here("report", "reviews", "--bootstrap", 0, "--storage", storage)
    here("audit", "reviews", "--storage", storage)


def test_another_vocabulary_is_not_verified(storage: Path) -> None:
    """The file is refused before it is opened, as each that differs from what was registered."""
    file = folder_of(storage) / "calstudy" / "vocabulary.txt"
    before = file.read_bytes()
    file.write_bytes(before.replace(b"film", b"flim"))
    try:
        found = json.loads(
            here("verify", "models:/reviews/1", "--storage", storage, "--json", check=None)
        )
        assert not found["ok"] and "vocabulary.txt" in found["problem"]
    finally:
        file.write_bytes(before)
