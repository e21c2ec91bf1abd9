"""A trial's data: train, meta and validation on its device. No test split."""

from __future__ import annotations

import functools
import json

import numpy as np
import torch
from torch import Tensor

from trainables.config import TrialConfig, build, to_plain
from trainables.data.shared.splits import ranks_in_class, size_note, whole_groups
from trainables.dataset import Dataset
from trainables.loading.batches import DeviceSplit, padded_bytes, padding_of
from trainables.loading.cache import COPIES, SAME, Prepared, Split, load_split, mapped, prepare
from trainables.loading.frozen import features_of, refuse_augmentation
from trainables.loading.marks import classes_in
from trainables.loading.splitting import whole_images
from trainables.loading.vocabulary import VECTORS
from trainables.model import Model
from trainables.problems import FieldError
from trainables.seeding import stream


class TrialData:
    """The splits of one prepared data set, shared by all trials in a process. per_position: as of
    the trials' network."""

    def __init__(
        self,
        prepared: Prepared,
        device: torch.device,
        augment: str,
        padding: int | None,
        per_position: bool = True,
    ) -> None:
        self.prepared = prepared
        self._augment = augment
        statistics = prepared.mean, prepared.std, device
        train, validation = sample_bytes(prepared, augment, padding)
        self.train = DeviceSplit(
            load_split(prepared, "train"), *statistics, augment, padding, validation, per_position
        )
        self.validation = DeviceSplit(load_split(prepared, "validation"), *statistics, beside=train)
        self._with_meta: dict[tuple[float, int], tuple[DeviceSplit, DeviceSplit]] = {}

    @functools.cached_property
    def vectors(self) -> Tensor | None:
        """Vectors of the vocabulary's words [words, D], by number; None if there are none."""
        file = self.prepared.directory / VECTORS
        return mapped(file) if self.prepared.input_shape.vectors else None

    def with_meta(self, share: float, seed: int) -> tuple[DeviceSplit, DeviceSplit]:
        """(train without meta, meta): stratified, by seed; meta is never augmented."""
        if (share, seed) not in self._with_meta:
            self._with_meta = {(share, seed): self._carve(share, seed)}
        return self._with_meta[share, seed]

    def images_of(self, rows: Tensor) -> Tensor:
        """Samples of train at these rows, normalised, not augmented; always on the CPU."""
        train = load_split(self.prepared, "train")
        marked = None if train.marked is None else train.marked[rows]
        chosen = Split(train.images[rows], torch.zeros(len(rows)), marked=marked)
        split = DeviceSplit(chosen, self.prepared.mean, self.prepared.std, "cpu")
        return split.images(0, len(rows))

    def _carve(self, share: float, seed: int) -> tuple[DeviceSplit, DeviceSplit]:
        kept = meta_of(self.prepared, share, seed)
        rest = self.train.subset((~kept).nonzero().squeeze(-1), self._augment)
        return rest, self.train.subset(kept.nonzero().squeeze(-1), "none")


def meta_of(prepared: Prepared, share: float, seed: int) -> Tensor:
    """[N] bool: the samples of train that are the meta split, stratified, groups whole. Raises
    FieldError if there are none."""
    train = load_split(prepared, "train")
    labels = train.labels.numpy()
    generator = stream(seed, "split", "meta")
    together = together_in_train(prepared)
    if train.marked is not None and train.positions is not None:
        present = classes_in(train.marked.numpy(), prepared.num_classes)
        units = np.arange(len(present)) if together is None else together
        return _held_out(whole_images(present, units, share, generator))
    if together is None:
        counts = np.bincount(labels)
        quota = np.clip(np.rint(share * counts).astype(np.int64), np.minimum(counts - 1, 1), None)
        return torch.from_numpy(ranks_in_class(labels, generator) < quota[labels])
    return _held_out(whole_groups(labels, together, share * len(labels), generator, strict=False))


def _held_out(kept: np.ndarray | None) -> Tensor:
    if kept is None or not kept.any():
        found = "train has too few groups to hold any out as the meta split"
        raise FieldError("data.meta", found, "Add some, or take methods that need none.")
    return torch.from_numpy(kept)


def together_in_train(prepared: Prepared) -> np.ndarray | None:
    """[N] int64: a number for samples of train that belong together; None if there are none."""
    for name in ("train_groups.npy", COPIES):
        if (prepared.directory / name).exists():
            return mapped(prepared.directory / name).numpy()
    return None


def meta_notes(prepared: Prepared, share: float, seed: int, unit: str | None) -> tuple[str, ...]:
    """What `plan` says of a meta split whose size is not as asked for."""
    together = together_in_train(prepared)
    if together is None:
        return ()
    size = int(meta_of(prepared, share, seed).sum())
    return size_note("meta", size, share * len(together), together, unit or SAME)


def sample_bytes(prepared: Prepared, augment: str, padding: int | None) -> tuple[int, int]:
    """The bytes that train, padded, and validation take on a device."""
    inputs = prepared.input_shape
    edge = padding_of(augment, padding, inputs)
    train = padded_bytes(prepared.sizes["train"], inputs, edge)
    return train, padded_bytes(prepared.sizes["validation"], inputs, 0)


def prepared_for(config: TrialConfig, device: torch.device, digest: str | None = None) -> Prepared:
    """The data of a trial on this node; of a frozen network, its features of them. As
    `trial_data`."""
    model = config.model if config.model.frozen else None
    return _prepared(config.data, model, config.seed, device, digest)


def trial_data(config: TrialConfig, device: torch.device, digest: str | None = None) -> TrialData:
    """The data of a trial, prepared once per node and kept once per process.

    Raises FieldError if a `digest` is given and the source has another.
    """
    dataset = json.dumps(to_plain(config.data), sort_keys=True)
    model = json.dumps(to_plain(config.model), sort_keys=True) if config.model.frozen else None
    per_position = config.model.per_position
    return _trial_data(dataset, model, config.seed, device, digest, per_position)


@functools.lru_cache(maxsize=2)
def _trial_data(
    dataset: str,
    model: str | None,
    seed: int,
    device: torch.device,
    digest: str | None,
    per_position: bool,
) -> TrialData:
    data = build(Dataset, json.loads(dataset))
    frozen = None if model is None else build(Model, json.loads(model))
    prepared = _prepared(data, frozen, seed, device, digest)
    return TrialData(prepared, device, data.augment, data.padding, per_position)


def _prepared(
    data: Dataset, frozen: Model | None, seed: int, device: torch.device, digest: str | None
) -> Prepared:
    prepared = prepare(data, seed, digest=digest)
    if frozen is None:
        return prepared
    refuse_augmentation(data)
    return features_of(frozen, prepared, device)
