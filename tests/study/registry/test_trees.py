"""A model of trees, from a treebank to a verified version."""

import json
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pytest
from mlflow import MlflowClient

from study.schema.uris import embedded_tracking
from tests.data.tree_files import write_negations
from tests.study.command_line import here, here_json, write_spec

pytestmark = [pytest.mark.slow, pytest.mark.platform]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A study of a trial, confirmed on test and other trees; its best is registered."""
    root = tmp_path_factory.mktemp("storage")
    write_negations(root / "bank", train=200, other=60)
    write_negations(root / "other", train=40, filler="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        spec = write_spec(
            root / "trees.yaml",
            name="trees",
            data={"name": "tree_bank", "path": "bank"},
            model={"name": "tree_lstm", "width": 16, "memory": 16},
            methods=["focal"],
            optimizer={"name": "adagrad", "lr": 0.05},
            shift={"other": {"name": "tree_bank", "path": "other"}},
            trials=1,
            epochs=4,
            batch_size=16,
        )
        here("run", spec, "--storage", root)
        here("confirm", "trees", "--seeds", 1, "--storage", root)
        here("export", "trees", "--name", "trees", "--alias", "champion", "--storage", root)
        yield root


def test_the_registered_graph_gives_what_was_measured(storage: Path) -> None:
    uri = embedded_tracking(storage)
    folder = Path(MlflowClient(uri, uri).get_model_version_download_uri("trees", "1"))
    facts = json.loads((folder / "calstudy" / "record.json").read_text())
    trees = np.load(storage / "cache" / facts["data_digest"] / "validation.npy")
    assert facts["kind"] == "trees" and facts["input_shape"] == [trees.shape[1], 4]
    model = mlflow.pyfunc.load_model(str(folder), model_config={"device": "cpu"})
    kept = np.load(folder / "calstudy" / "validation_probs.npz")
    for count in (1, 5, len(trees)):
        found = model.predict(np.ascontiguousarray(trees[:count, :, :4]))
        np.testing.assert_allclose(found, kept["probs"][:count], rtol=0, atol=1e-6)
    with pytest.raises(Exception, match="int32"):
        model.predict(trees[:2, :, :4].astype(np.float32))
    words = (folder / "calstudy" / "vocabulary.txt").read_text().split("\n")
    assert "not" in words
    card = (folder / "calstudy" / "card.md").read_text()
    assert "int32" in card and "encode" not in card


def test_it_is_verified_and_audited(storage: Path) -> None:
    assert here_json("verify", "models:/trees@champion", "--storage", storage)
    here("audit", "trees", "--storage", storage)


def test_a_plan_says_what_the_trees_are(storage: Path) -> None:
    shown = " ".join(here("plan", storage / "trees.yaml", "--storage", storage).split())
    assert "trees of" in shown and "the vocabulary has the" in shown
    assert "words of shift.other" in shown
