"""timm's networks: names, weights that are read from a file, and what is said without timm."""

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.testing import assert_close

from study.store.study import open_study
from tests.frozen_network import HAS_TIMM
from tests.study.command_line import here, here_json, write_spec
from trainables.models.timm import Timm
from trainables.problems import FieldError

if not HAS_TIMM:
    pytest.skip("no tests with timm: pip install 'calstudy[timm]'", allow_module_level=True)

NETWORK = "test_vit"
SHAPE = (3, 160, 160)


def whole(network: str = NETWORK) -> Any:
    """timm's own, with its last layer."""
    import timm

    return timm.create_model(network, pretrained=False).eval()


def saved(tmp_path: Path, network: Any) -> Path:
    import safetensors.torch

    file = tmp_path / "own.safetensors"
    safetensors.torch.save_file(network.state_dict(), file)
    return file


def test_weights_are_those_of_the_file_and_the_head_is_new(tmp_path: Path) -> None:
    theirs = whole()
    file = saved(tmp_path, theirs)
    made = Timm(network=NETWORK, weights=str(file), train="head")
    network = made.backbone(SHAPE)
    images = torch.randn(2, *SHAPE)
    with torch.no_grad():
        assert_close(theirs.head(network(images)), theirs(images))
    half = (127.5, 127.5, 127.5)  # 0.5 of 255, as its page says
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert made.origin() == ("test_vit.r160_in1k", digest, "timm", half, half)
    trained = Timm(network=NETWORK, weights=str(file)).build(SHAPE, 7).eval()
    with torch.no_grad():
        assert_close(trained.features(images), network(images))
        assert trained(images).shape == (2, 7)


def test_grey_images_enter_as_three_equal_channels() -> None:
    network = Timm(network=NETWORK).build((1, 160, 160), 7).eval()
    images = torch.randn(2, 1, 160, 160)
    with torch.no_grad():
        assert_close(network.features(images), network.features[1](images.repeat(1, 3, 1, 1)))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("test_vitt", "timm has no 'test_vitt'. Did you mean 'test_vit'?"),
        ("no such one", "timm has no 'no such one'. timm.list_models.. has all names"),
        ("hf-hub:timm/resnet18.a1_in1k", "names a place, not a network of timm"),
        ("local-dir:weights", "names a place, not a network of timm"),
    ],
)
def test_names_are_those_that_timm_lists(name: str, problem: str) -> None:
    with pytest.raises(FieldError, match=f"^network: .*{problem}"):
        Timm(network=name)
    assert Timm(network="resnet18.a1_in1k").full_name == Timm(network="resnet18").full_name


def test_without_published_weights(tmp_path: Path) -> None:
    file = tmp_path / "own.pth"
    torch.save({}, file)
    with pytest.raises(FieldError, match=r"^weights: timm has no published weights of"):
        Timm(network="coatnet_0_224", weights="default").origin()
    with pytest.raises(FieldError, match=r"^train: .*, and coatnet_0_224 has none"):
        Timm(network="coatnet_0_224", weights=str(file), train="head").origin()


def test_published_weights_are_taken_from_the_hubs_cache_before_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    there: dict[bool, Path] = {}

    def hf_hub_download(repository: str, name: str, revision: Any, local_files_only: bool) -> str:
        asked.append((repository, name, revision, local_files_only))
        if local_files_only not in there:
            raise OSError("no such thing,\nas it says in two lines")
        return str(there[local_files_only])

    hub = SimpleNamespace(hf_hub_download=hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    made = Timm(network=NETWORK, weights="default", train="head")
    with pytest.raises(FieldError) as error:
        made.origin()
    assert "\n" not in str(error.value)
    file = "model.safetensors of timm/test_vit.r160_in1k"
    assert f"Download {file} elsewhere, and write weights: and its path" in str(error.value)
    wanted = ("timm/test_vit.r160_in1k", "model.safetensors", None)
    assert asked == [(*wanted, True), (*wanted, False)]
    theirs = whole()
    there[False] = saved(tmp_path, theirs)
    images = torch.randn(2, *SHAPE)
    with torch.no_grad():
        assert_close(theirs.head(made.backbone(SHAPE)(images)), theirs(images))
    there[True] = there.pop(False)
    asked.clear()
    assert made.origin() is not None
    assert asked == [(*wanted, True)]


def test_names_of_an_older_convnext_are_todays(tmp_path: Path) -> None:
    """Under the names that its authors published it by."""
    theirs = whole("test_convnext")
    names = {"stem.": "downsample_layers.0.", "conv_dw": "dwconv", "mlp.fc": "pwconv"}
    names |= {"head.norm": "norm", "head.fc": "head"}
    older = {}
    for key, value in theirs.state_dict().items():
        key = re.sub(r"stages\.(\d)\.downsample", r"downsample_layers.\1", key)
        key = re.sub(r"stages\.(\d)\.blocks", r"stages.\1", key)
        for today, then in names.items():
            key = key.replace(today, then)
        older[key] = value
    torch.save(older, tmp_path / "older.pth")
    network = Timm(network="test_convnext", weights=str(tmp_path / "older.pth")).build(SHAPE, 7)
    images = torch.randn(2, *SHAPE)
    with torch.no_grad():
        assert_close(theirs.head.fc(network.eval().features(images)), theirs(images))


def test_without_timm_a_study_is_read_and_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    made = Timm(network="never_heard_of")
    with pytest.raises(FieldError, match=r"^timm is not installed. pip install 'calstudy\[timm\]'"):
        made.origin()
    with pytest.raises(FieldError, match=r"pip install 'calstudy\[timm\]'$"):
        made.build((3, 32, 32), 7)


@pytest.mark.slow
def test_a_network_of_timm_to_a_verified_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm
    from safetensors.torch import save_file

    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:150], digits.target, strict=False)):
        file = tmp_path / "images" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.kron(15 * image, np.ones((4, 4))).astype(np.uint8)).save(file)
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "vit.safetensors")
    model = {"name": "timm", "network": "test_vit", "weights": "vit.safetensors", "train": "head"}
    keys: dict[str, Any] = {
        "methods": ["cross_entropy"],
        "trials": 1,
        "epochs": 2,
        "search_space": {},
    }
    data = {"name": "image_folder", "path": "images"}
    optimizer = {"name": "adam", "lr": 0.01}
    spec = write_spec(
        tmp_path / "small.yaml",
        model=model,
        data=data,
        optimizer=optimizer,
        **keys,
    )
    here("run", spec, "--storage", tmp_path / "storage")
    study = open_study("small", str(tmp_path / "storage"))
    assert list((study.recorded.weights or {}).values()) == ["test_vit.r160_in1k"]
    here("export", "small", "--name", "m", "--storage", tmp_path / "storage")
    assert here_json("verify", "models:/m/1", "--storage", tmp_path / "storage")["ok"]
