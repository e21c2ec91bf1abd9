"""Per-sample values recorded in training, for use by other trials: `record: train_entropy`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.files.arrays import read_arrays, write_arrays
from trainables.problems import FieldError

FILE = "train_entropy.npz"


@dataclass(frozen=True)
class TrainEntropy:
    """entropy: [epochs, N] float32, nats; N: the prepared train split; NaN if not trained on.

    data_digest: of the prepared data that the rows refer to.
    """

    entropy: Tensor
    data_digest: str

    def save(self, path: Path) -> str:
        """Write `path` (npz) atomically; returns its sha256."""
        digest = np.array(self.data_digest)
        return write_arrays(path, {"entropy": self.entropy.cpu().numpy(), "data_digest": digest})

    @classmethod
    def load(cls, path: Path) -> TrainEntropy:
        """Read what `save` wrote. Raises FieldError."""
        arrays = read_arrays(path, "the file of a trial with `record: train_entropy`")
        if set(arrays) != {"entropy", "data_digest"} or arrays["entropy"].ndim != 2:
            raise FieldError(
                str(path), "has no recorded entropies", "Give a trial with `record: train_entropy`."
            )
        return cls(torch.from_numpy(arrays["entropy"]), str(arrays["data_digest"]))

    def check(self, data_digest: str) -> None:
        """Raise FieldError if it was recorded on other data, or on another seed's split."""
        if data_digest != self.data_digest:
            raise FieldError(
                "target",
                f"was recorded on data {self.data_digest[:12]}, but this is {data_digest[:12]}",
                "Use a trial with the same data and seed.",
            )

    def of(self, data_digest: str, rows: Tensor) -> Tensor:
        """[epochs, len(rows)] of train. Gaps get the previous value, inf before the first.

        Raises FieldError as in `check`.
        """
        self.check(data_digest)
        filled = self.entropy[:, rows].clone()
        filled[0].nan_to_num_(nan=torch.inf)
        for before, epoch in itertools.pairwise(filled):
            torch.where(epoch.isnan(), before, epoch, out=epoch)
        return filled
