"""Models of rows of numbers, from a table to a verified version: iris by named columns, digits
as a column of lists, and one of every method."""

import json
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import infer_and_parse_data
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits, load_iris

from study.schema.uris import embedded_tracking
from tests.study.command_line import here, here_json, write_spec
from trainables import methods

pytestmark = pytest.mark.slow

IRIS = load_iris(as_frame=True)
COLUMNS = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")


def iris() -> pd.DataFrame:
    """Four columns of numbers, one of words."""
    table = IRIS.data.copy()
    table["species"] = IRIS.target_names[IRIS.target]
    return table


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two studies of a trial each, whose models are registered as `iris` and `digits`."""
    root = tmp_path_factory.mktemp("storage")
    iris().to_parquet(root / "iris.parquet")
    digits = load_digits()
    lists = {"emb": digits.data.astype(np.float32).tolist(), "digit": digits.target}
    pq.write_table(
        pa.table({**lists, "writer": digits.target.astype(str)}), root / "digits.parquet"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        for name, label in (("iris", "species"), ("digits", "digit")):
            data = {"name": "table", "path": f"{name}.parquet", "label": label}
            keys = {"name": name, "data": data, "methods": ["focal"], "trials": 1}
            spec = write_spec(root / f"{name}.yaml", **keys, serve="raw", epochs=8, batch_size=16)
            shown = here("run", spec, "--storage", root)
            assert ("warning: left out, as text: 'writer'" in shown) == (name == "digits")
            here("export", name, "--name", name, "--alias", "champion", "--storage", root)
        yield root


def version_of(storage: Path, name: str) -> Path:
    uri = embedded_tracking(storage)
    return Path(MlflowClient(uri, uri).get_model_version_download_uri(name, "1"))


def registered(storage: Path, name: str) -> Any:
    folder = str(version_of(storage, name))
    return mlflow.pyfunc.load_model(folder, model_config={"device": "cpu"})


def measured(storage: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The validation rows as they lie in the cache, and softmax of the trial's logits."""
    facts = json.loads((version_of(storage, name) / "calstudy" / "record.json").read_text())
    rows = np.load(storage / "cache" / facts["data_digest"] / "validation.npy")
    (file,) = (storage / name / "trials" / "focal" / "0000").glob("*/predictions.npz")
    logits = np.load(file)["logits"].astype(np.float64)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rows, shifted / shifted.sum(axis=1, keepdims=True)


def test_columns_are_found_by_name_in_any_order(storage: Path) -> None:
    model = registered(storage, "iris")
    assert tuple(model.metadata.get_input_schema().input_names()) == COLUMNS
    rows, probs = measured(storage, "iris")
    assert len(rows) == 24 and rows.shape[1] == 4  # a fifth of what 30 in test leave
    table = pd.DataFrame(rows.astype(np.float64), columns=list(COLUMNS))
    assert_allclose(model.predict(table), probs, atol=1e-5)
    turned = table[list(reversed(COLUMNS))].assign(note="of another column", day=3)
    assert_allclose(model.predict(turned), probs, atol=1e-5)
    whole = turned[list(COLUMNS[::-1])].round().astype(int)
    sent = json.loads(whole.to_json(orient="split"))  # as a server gets it
    asked = infer_and_parse_data({"dataframe_split": sent}, model.metadata.get_input_schema())
    assert_allclose(model.predict(asked), model.predict(table.round()), atol=1e-6)
    misnamed = table.rename(columns={COLUMNS[2]: "petal"})
    with pytest.raises(MlflowException, match=r"missing inputs \['petal length \(cm\)'\]"):
        model.predict(misnamed)


def test_the_card_names_columns_and_how_whole_numbers_are_asked(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = next(version_of(storage, "iris").rglob("*.md")).read_text()
    assert "Classifies rows of table into 3 classes" in card
    assert "Input: rows of 4 columns, raw numbers" in card
    assert f"## Columns\nIn this order: {', '.join(f'`{name}`' for name in COLUMNS)}." in card
    lines = card.partition("```python\n")[2].partition("```")[0].splitlines()[3:]
    table = pd.DataFrame([[5, 3, 1, 0], [6, 3, 5, 2]], columns=list(COLUMNS))
    model = registered(storage, "iris")
    with pytest.raises(MlflowException, match="Can not safely convert int64 to float64"):
        model.predict(table)
    given: dict[str, Any] = {"model": model, "table": table}
    monkeypatch.chdir(tmp_path)
    for line in lines:
        given["rows"] = table.to_numpy()
        if line.endswith("# torch, [N, 4]"):
            given["rows"] = torch.from_numpy(given["rows"])
        exec(line, given)
        assert_allclose(model.predict(given["table"].astype(float)), given["probs"], atol=1e-6)
    assert_allclose(given["probs"].sum(axis=1), 1, atol=1e-6)
    assert sum("# torch" in line for line in lines) == sum("# NumPy" in line for line in lines) == 1
    sent = json.loads(Path("request.json").read_text())  # as a server gets it
    asked = infer_and_parse_data(sent, model.metadata.get_input_schema())
    assert_allclose(model.predict(asked), given["probs"], atol=1e-6)


def test_a_column_of_lists_is_a_tensor_of_float32(storage: Path) -> None:
    model = registered(storage, "digits")
    (given,) = model.metadata.get_input_schema().inputs
    assert (given.type, given.shape) == (np.dtype(np.float32), (-1, 64))
    rows, probs = measured(storage, "digits")
    assert_allclose(model.predict(rows), probs, atol=1e-5)
    assert_allclose(model.predict(rows[:1]), probs[:1], atol=1e-5)


@pytest.mark.parametrize("name", ["iris", "digits"])
def test_it_is_verified_and_what_is_said_of_it_is_of_rows(storage: Path, name: str) -> None:
    found = here_json("verify", f"models:/{name}@champion", "--storage", storage)
    assert found["ok"] and found["num_samples"] == {"iris": 24, "digits": 287}[name]
    said = here("answer", name, "--why", "--storage", storage)
    assert f"{found['num_samples']} validation rows of {name}.parquet" in said
    assert "sealed test rows" in said and "image" not in said


@pytest.mark.platform
def test_a_model_of_every_method_is_registered_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    clusters = {"name": "gaussian_clusters", "train": 1000}
    spec = write_spec(
        tmp_path / "small.yaml", data=clusters, methods=methods.names(), trials=1, epochs=1
    )
    here("run", spec, "--storage", tmp_path)
    for name in methods.names():
        place = ("--name", name, "--storage", tmp_path)
        here("export", "small", "--trial", f"{name}/0000", *place)
        found = here_json("verify", f"models:/{name}/1", "--storage", tmp_path)
        assert found["ok"], json.dumps(found)
