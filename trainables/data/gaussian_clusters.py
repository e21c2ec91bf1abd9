"""Two classes of two Gaussian clusters in the plane. Mukhoti et al. 2020, Appendix C."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from trainables.dataset import Dataset, Header, RawData, RawSplit
from trainables.fields import number
from trainables.plain import Value

CLASSES = ("left", "right")
COLUMNS = ("x", "y")
MEANS = np.array([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])  # a square of side 4
GRID = 2.0**16  # numbers are multiples of 1 / GRID, which float32 holds


@dataclass(frozen=True)
class GaussianClusters(Dataset):
    """[N, 2], two classes. Sample i is of cluster i % 4; clusters 0 and 1 are the first class.

    A cluster is normal numbers of deviation 1 times a random 2 x 2 matrix, uniform in [-1, 1], plus
    its mean: scikit-learn's make_classification, which the paper seems to use. That assigns
    vertices to classes at random, and its flip_y=0.1 draws a new label, which is the old one half
    of the time. Here a class has one side of the square, as a line must part them, and exactly
    the share `flipped` of each split's labels is wrong.
    """

    seed: int = number(0, low=0, below=2**32, doc="of the samples")
    train: int = number(4000, low=40, doc="samples of train; validation is carved from them")
    test: int = number(1000, low=40, doc="samples of test")
    flipped: float = number(
        0.1, low=0, high=0.5, doc="share of labels that are wrong, in all splits"
    )

    def source_digest(self) -> str:
        parts = [self.seed, self.train, self.test, self.flipped]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def read(self) -> RawData:
        train = self._drawn(1, self.train)
        return RawData(CLASSES, train, test=self._drawn(2, self.test), columns=COLUMNS)

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        names = dict(enumerate(CLASSES))
        return Header(self.source_rows(), (2,), np.arange(2), names, COLUMNS)

    def mixes(self) -> np.ndarray:
        """[4, 2, 2]: a sample of cluster k is its mean + z @ mixes[k], z standard normal."""
        return 2 * self._random(0).random_sample((4, 2, 2)) - 1

    def _drawn(self, stream: int, count: int) -> RawSplit:
        random = self._random(stream)
        cluster = np.arange(count) % 4
        normal = random.standard_normal((count, 2))
        mix = self.mixes()[cluster]
        values = MEANS[cluster] + normal[:, :1] * mix[:, 0] + normal[:, 1:] * mix[:, 1]
        labels = cluster // 2
        wrong = random.permutation(count)[: round(self.flipped * count)]
        labels[wrong] = 1 - labels[wrong]
        # The last bit of a logarithm differs between machines.
        on_grid = np.rint(values * GRID) / GRID
        return RawSplit(on_grid.astype(np.float32), labels.astype(np.int64))

    def _random(self, stream: int) -> np.random.RandomState:
        """NumPy never changes what it draws, unlike what its newer Generator draws."""
        return np.random.RandomState([self.seed, stream])
