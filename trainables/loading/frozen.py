"""A frozen network's outputs, computed once per node and shared by all trials.

CACHE/DIGEST.KEY/{train,validation}.npy        float32 [N, D]
CACHE/DIGEST.KEY/{...}_labels.npy              int64 [N]; as of a data set, if there are:
CACHE/DIGEST.KEY/{...}_{groups,group_keys,copies}.npy
CACHE/DIGEST.KEY/meta.json                     as of a data set, and the sha256 of the features

DIGEST is that of the data. The test split is never among them.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trainables.dataset import Dataset
from trainables.files.atomic import replacing_folder
from trainables.files.digest import file_digest
from trainables.inputs import Inputs
from trainables.loading.cache import Prepared, load_split, open_or_make, write_meta
from trainables.machine import versions
from trainables.model import Model, Network, Origin
from trainables.outputs.classifier import PREDICTION_BATCH, Classifier
from trainables.plain import Plain
from trainables.problems import FieldError

FORMAT = 1  # of the files; increment on any change
SPLITS = ("train", "validation")
BATCH_BYTES = 2**25  # of the images of a forward pass, in float32


def refuse_augmentation(dataset: Dataset) -> None:
    """Raise FieldError if batches would be augmented: features are of images as they are."""
    if dataset.augment != "none":
        found = f"{dataset.augment} has no effect on a network that is run once (train: head)"
        raise FieldError("data.augment", found, "Write augment: none, or train: all.")


def features_of(model: Model, prepared: Prepared, device: torch.device) -> Prepared:
    """The outputs of a frozen model's backbone as a prepared data set, which is as it is to be
    trained on: mean 0, standard deviation 1. Raises FieldError."""
    origin = model.origin()
    assert origin is not None
    key = _key(origin, prepared.input_shape, device)
    directory = prepared.directory.with_name(f"{prepared.digest}.{key}")
    return open_or_make(directory, lambda: _make(model, origin, prepared, device, directory))


def backbone_of(model: Model, prepared: Prepared) -> tuple[Classifier, Prepared]:
    """A frozen model's backbone as a classifier of images without a head, and what its outputs on
    the data are. Raises FieldError."""
    origin = model.origin()
    assert origin is not None
    network = Network(model.backbone(prepared.input_shape), nn.Identity())
    whole = Classifier(network, origin.mean, origin.std)
    with torch.inference_mode():
        width = whole.logits(torch.zeros(1, *prepared.input_shape)).shape[1]
    inputs = Inputs((width,), "features")
    return whole, replace(prepared, input_shape=inputs, mean=(0.0,), std=(1.0,))


def _key(origin: Origin, input_shape: Inputs, device: torch.device) -> str:
    """sha256 of what features depend on, beside the data."""
    parts = [FORMAT, origin, input_shape, device.type, versions(("torch", origin.package))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _make(
    model: Model, origin: Origin, prepared: Prepared, device: torch.device, directory: Path
) -> None:
    """Write the features atomically. The caller holds the lock."""
    whole, found = backbone_of(model, prepared)
    whole.to(device)
    with replacing_folder(directory) as partial, _full_precision():
        for split in SPLITS:
            images = load_split(prepared, split).images
            shape = (len(images), *found.input_shape)
            _write(partial / f"{split}.npy", shape, _outputs(whole, images, device))
            for name in ("labels", "groups", "group_keys", "copies"):
                file = prepared.directory / f"{split}_{name}.npy"
                if file.exists():
                    shutil.copy(file, partial)
        meta: dict[str, Plain] = {
            "digest": prepared.digest,
            "classes": prepared.classes,
            "input_shape": found.input_shape,
            "kind": found.input_shape.kind,
            "mean": found.mean,
            "std": found.std,
            "sizes": prepared.sizes,
            "notes": prepared.notes,
            "groups": dict(prepared.groups),
            "shared": prepared.shared,
            "identical": prepared.identical,
            "features": _sha256([partial / f"{split}.npy" for split in SPLITS]),
            "origin": origin._asdict(),
            "device": device.type,
        }
        if model.origin() != origin:
            problem = f"the file of {origin.name} was changed while it was read"
            raise FieldError("model.weights", problem, "Run again once it is complete.")
        write_meta(partial, meta)
    if device.type == "cuda":
        del whole
        torch.cuda.empty_cache()


def _outputs(whole: Classifier, images: Tensor, device: torch.device) -> Iterator[np.ndarray]:
    batch = max(1, min(PREDICTION_BATCH, BATCH_BYTES // (4 * prod(images.shape[1:]))))
    with torch.inference_mode():
        for chunk in torch.split(images, batch):
            yield whole.logits(chunk.to(device)).float().cpu().numpy()


def _write(file: Path, shape: tuple[int, ...], chunks: Iterable[np.ndarray]) -> None:
    """Write an array that is never held whole."""
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with file.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for chunk in chunks:
            out.write(np.ascontiguousarray(chunk, dtype="<f4").data)


def _sha256(files: Iterable[Path]) -> str:
    return hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()


@contextmanager
def _full_precision() -> Iterator[None]:
    """Without TF32, which convolutions take by default."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        matmul.allow_tf32 = before
