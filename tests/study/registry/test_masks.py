"""A study of images with masks, from a parquet file to a registered model that is verified, asked
and shown: everything that is said of it is of images and their pixels."""

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from mlflow.pyfunc.scoring_server import invocations
from numpy.testing import assert_allclose
from PIL import Image

from study.report import figure_set, page_data
from study.schema.uris import embedded_tracking
from tests import references
from tests.masks import CLASSES, images_with_masks
from tests.study.command_line import here, here_json, write_spec

pytestmark = pytest.mark.slow

HEIGHT, WIDTH = 14, 18
UNET = {"name": "unet", "width": 4, "depth": 1}


def png(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def write_table(path: Path, count: int) -> None:
    """Each image as it is; its mask with 255 where it has no label."""
    samples = images_with_masks(count, HEIGHT, WIDTH)
    rows = {
        "image": [png(np.moveaxis(sample[:3], 0, -1).copy()) for sample in samples],
        "mask": [png(sample[3] - 1) for sample in samples],  # 0 - 1 is 255
    }
    pq.write_table(pa.table(rows), path)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study of two trials, the answer's registered as `pixels`."""
    root = tmp_path_factory.mktemp("storage")
    write_table(root / "fields.parquet", 100)
    data = {"name": "parquet", "path": "fields.parquet", "mask": "mask", "classes": list(CLASSES)}
    keys: dict[str, Any] = {"data": data, "model": UNET, "trials": 1, "epochs": 3}
    keys |= {"optimizer": {"name": "adam"}, "search_space": {"optimizer.lr": 0.02}}
    keys |= {"batch_size": 8, "keep_models": "all", "diagnostics": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        here("run", write_spec(root / "small.yaml", **keys), "--storage", root)
        here("export", "small", "--name", "pixels", "--alias", "champion", "--storage", root)
        yield root


def version_of(storage: Path) -> Path:
    uri = embedded_tracking(storage)
    return Path(MlflowClient(uri, uri).get_model_version_download_uri("pixels", "1"))


def facts_of(storage: Path) -> Any:
    return json.loads((version_of(storage) / "calstudy" / "record.json").read_text())


def registered(storage: Path) -> Any:
    folder = str(version_of(storage))
    return mlflow.pyfunc.load_model(folder, model_config={"device": "cpu"})


def cached(storage: Path, split: str = "validation") -> np.ndarray:
    """Images and masks as they lie in the cache, [N, 4, H, W]."""
    return np.load(storage / "cache" / facts_of(storage)["data_digest"] / f"{split}.npy")


def trial_files(storage: Path) -> Path:
    (folder,) = (storage / "small" / "trials" / facts_of(storage)["trial"]).glob("attempt-*")
    return folder


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def test_it_gives_each_pixel_probabilities_which_are_the_measured_ones(storage: Path) -> None:
    """These images have fewer pixels than are measured of each: all that have a label are."""
    samples = cached(storage)
    model = registered(storage)
    (given,) = model.metadata.get_input_schema().inputs
    (gives,) = model.metadata.get_output_schema().inputs
    assert (given.type, given.shape) == (np.dtype(np.float32), (-1, 3, HEIGHT, WIDTH))
    assert (gives.type, gives.shape) == (np.dtype(np.float32), (-1, 3, HEIGHT, WIDTH))
    probs = model.predict(samples[:, :3].astype(np.float32))
    assert probs.shape == (len(samples), 3, HEIGHT, WIDTH)
    assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    stored = np.load(trial_files(storage) / "predictions.npz")
    rows = []
    labels = []
    images = []
    for number, sample in enumerate(samples):
        for row, column in zip(*np.nonzero(sample[3]), strict=True):
            rows.append(probs[number, :, row, column])
            labels.append(sample[3, row, column] - 1)
            images.append(number)
    facts = facts_of(storage)
    temperature = facts["temperature"] if facts["serves"] == "temperature" else 1.0
    assert_allclose(np.array(rows), softmax(stored["logits"] / temperature), atol=1e-5)
    np.testing.assert_array_equal(stored["labels"], labels)
    assert len(set(zip(stored["groups"].tolist(), images, strict=True))) == len(set(images))
    with np.load(version_of(storage) / "calstudy" / "validation_probs.npz") as kept:
        assert kept["probs"].shape == (len(rows), 3)
        np.testing.assert_array_equal(kept["labels"], labels)
    assert facts["marked"] is True and facts["num_samples"] == len(rows)
    accuracy = np.mean(np.argmax(rows, axis=1) == labels)
    assert facts["metrics"]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    miou = references.miou(np.array(rows), np.array(labels))
    assert facts["metrics"]["miou"] == pytest.approx(miou, abs=1e-6)


def test_no_calibrator_is_of_pixels(storage: Path) -> None:
    words = ("export", "small", "--name", "m", "--calibrator", "structured_vector")
    said = here(*words, "--storage", storage, check=2)
    assert said == (
        "--calibrator: small classifies pixels, and a calibrator is of whole samples."
        " Leave it out.\n"
    )


def test_a_server_is_asked_for_one_image(storage: Path) -> None:
    """As `mlflow models serve` does it."""
    image = cached(storage)[3, :3]
    model = registered(storage)
    asked = json.dumps({"inputs": [image.tolist()]})
    schema = model.metadata.get_input_schema()
    answer = invocations(asked, "application/json", model, schema)
    assert answer.status == 200, answer.response
    found = np.array(json.loads(answer.response)["predictions"])
    assert found.shape == (1, 3, HEIGHT, WIDTH)
    assert_allclose(found, model.predict(image[None].astype(np.float32)), atol=1e-6)


def test_it_is_verified_and_audited(storage: Path) -> None:
    found = here_json("verify", "models:/pixels@champion", "--storage", storage)
    assert found["ok"], json.dumps(found)
    assert found["num_samples"] == int((cached(storage)[:, 3] > 0).sum())
    assert "miou" in [check["name"] for check in found["checks"]]
    assert here_json("audit", "small", "--storage", storage)["clean"]


def test_its_card_says_what_it_gives_of_which_pixels(storage: Path) -> None:
    card = (version_of(storage) / "calstudy" / "card.md").read_text()
    samples = cached(storage)
    assert "Classifies each pixel of images of parquet into 3 classes" in card
    low, high = samples[:, :3].min(), samples[:, :3].max()
    ranged = f"raw pixel values (not normalized; on validation from {low} to {high})"
    assert f"Input: float32 [N, 3 x 14 x 18], {ranged}" in card
    assert "Output: float32 [N, 3 x 14 x 18] probabilities of the classes at each pixel" in card
    assert ": sky, road, tree." in card
    pixels = int((samples[:, 3] > 0).sum())
    assert f"## Validation ({pixels:,} pixels of {len(samples)} images)" in card
    assert "at most 1,024 labelled pixels an image" in card and "Intervals resample images" in card
    assert re.search(r"\| mIoU \| (0\.\d{4}) \| \1 \|", card)
    line = next(line for line in card.splitlines() if line.startswith("masks = "))
    given: dict[str, Any] = {"probs": registered(storage).predict(samples[:2, :3].astype("f4"))}
    exec(line, given)
    assert given["masks"].shape == (2, HEIGHT, WIDTH) and given["masks"].max() < 3


def test_what_is_said_of_it_is_of_images_and_pixels(storage: Path) -> None:
    samples = cached(storage)
    pixels = int((samples[:, 3] > 0).sum())
    shown = f"{len(samples)} validation images ({pixels:,} pixels)"
    assert f"on {shown} of fields.parquet" in here("answer", "small", "--why", "--storage", storage)
    front = here("pareto", "small", "--bootstrap", "100", "--storage", storage)
    assert shown in front and f"100 resamples of {len(samples)} images" in front
    trials = ("--compare", "cross_entropy/0000", "focal/0000")
    assert f"{shown}, the same" in here("pareto", "small", *trials, "--storage", storage)
    table = here("report", "small", "--format", "csv", "--storage", storage)
    assert re.search(rf"^small,validation,{len(samples)},3,", table, re.MULTILINE)
    groups = here("evaluate", trial_files(storage) / "predictions.npz", "--intervals")
    assert f"{pixels:,} samples in {len(samples)} groups" in groups
    assert f"resamples of {len(samples)} groups" in groups


def test_its_diagnostics_are_finite(storage: Path) -> None:
    history = json.loads((trial_files(storage) / "history.json").read_text())
    for row in history:
        assert row["feature_norm"] > 0 and row["head_norm"] > 0


@pytest.fixture
def maps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps and the front: tests/study/report looks at the other figures."""
    monkeypatch.setattr(page_data, "drawings", lambda gallery: ([], []))
    few = {name: figure_set.FIGURES[name] for name in ("front", figure_set.MAPS)}
    monkeypatch.setattr(figure_set, "FIGURES", few)


def page_of(storage: Path) -> Any:
    text = (storage / "small" / "report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    (study,) = json.loads(data)["studies"]
    return study


@pytest.mark.usefixtures("maps_alone")
def test_the_page_shows_four_images_and_so_do_the_figures(storage: Path) -> None:
    here("report", "small", "--bootstrap", 0, "--storage", storage)
    found = page_of(storage)
    samples = cached(storage)
    probs = registered(storage).predict(samples[:, :3].astype(np.float32))
    errors = {}
    for number, sample in enumerate(samples):
        there = sample[3] > 0
        if there.any():
            wrong = probs[number].argmax(axis=0) != sample[3].astype(int) - 1
            errors[number] = float(wrong[there].mean())
    numbers = [int(re.findall(r"image (\d+),", each["caption"])[0]) for each in found["maps"]]
    assert len(set(numbers)) == 4 and set(numbers) <= set(errors)
    worst = sorted(errors.values(), reverse=True)[:2]
    assert [errors[number] for number in numbers[:2]] == worst
    for number, each in zip(numbers, found["maps"], strict=True):
        assert f"{errors[number]:.1%} of its" in each["caption"]
        assert each["trial"] == facts_of(storage)["trial"]
    assert found["samples"] == sum(int((sample[3] > 0).sum()) for sample in samples)
    folder = storage / "figures"
    here("figures", "small", "--only", "maps", "--output", folder, "--storage", storage)
    assert sorted(file.name for file in folder.iterdir()) == [f"map-{k}.png" for k in (1, 2, 3, 4)]
    for place, each in enumerate(found["maps"], start=1):
        drawn = (folder / f"map-{place}.png").read_bytes()
        assert drawn == base64.b64decode(each["source"].partition(",")[2])
        assert len(drawn) <= 60_000


@pytest.mark.usefixtures("maps_alone")
def test_without_its_model_one_line_says_that_there_are_no_maps(
    storage: Path, tmp_path: Path
) -> None:
    shutil.copytree(storage / "small", tmp_path / "small")
    file = tmp_path / "small" / (trial_files(storage) / "model.pt").relative_to(storage / "small")
    file.unlink()
    said = here("figures", "small", "--bootstrap", 0, "--storage", tmp_path)
    (line,) = [line for line in said.splitlines() if "maps" in line]
    assert line.startswith("not drawn: maps: ") and "model.pt is missing" in said
    said = here("report", "small", "--bootstrap", 0, "--storage", tmp_path)
    assert "No maps of images: " in said and page_of(tmp_path)["maps"] == []
