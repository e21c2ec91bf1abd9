"""The digits with noise on each pixel: methods differ in calibration. Alpaydin & Kaynak 1998."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from trainables.data.digits import Digits
from trainables.dataset import Header, RawData, RawSplit
from trainables.fields import number
from trainables.plain import Value

GREATEST = 16  # of a pixel


@dataclass(frozen=True)
class NoisyDigits(Digits):
    """[1797, 1, 8, 8], pixels 0 to 16, ten classes. The test split is carved by the study's seed.

    To each pixel a normal number of deviation `noise` is added; the sum is rounded, and clipped to
    the range of pixels. The same noise in every epoch: it is part of the image.
    """

    noise: float = number(6.0, low=0, high=100, doc="standard deviation of the noise, of 16")
    noise_seed: int = number(0, low=0, below=2**32, doc="of the noise")

    def source_digest(self) -> str:
        parts = [super().source_digest(), self.noise, self.noise_seed]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def read(self) -> RawData:
        plain = super().read()
        images = plain.train.images
        # NumPy never changes what it draws, unlike what its newer Generator draws.
        noise = np.random.RandomState(self.noise_seed).standard_normal(images.shape)
        noisy = np.rint(images + self.noise * noise).clip(0, GREATEST).astype(np.uint8)
        return RawData(plain.classes, RawSplit(noisy, plain.train.labels))

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        return Digits().samples_header(where)._replace(rows=self.source_rows())
