"""The noise of noisy digits, and the study of `make study`."""

from pathlib import Path

import numpy as np
import pytest

import study
from study.schema.reading import read_spec
from trainables.data.digits import Digits
from trainables.data.noisy_digits import NoisyDigits

SPEC = Path(study.__file__).parent / "specs" / "noisy_digits.yaml"


def images(**settings: float | int) -> np.ndarray:
    return NoisyDigits(**settings).read().train.images  # type: ignore[arg-type]


def test_the_noise_has_its_deviation_where_nothing_is_clipped() -> None:
    """Of the inner pixels that lie a good way from both ends; rounding adds a twelfth."""
    plain = Digits().read().train.images.astype(float)
    change = images(noise=1.0) - plain
    kept = change[(plain >= 6) & (plain <= 10)]
    assert abs(kept.mean()) < 5 / np.sqrt(len(kept))
    assert kept.var() == pytest.approx(1 + 1 / 12, rel=0.05)


def test_pixels_stay_in_their_range_and_labels_are_kept() -> None:
    noisy = NoisyDigits().read().train
    assert noisy.images.dtype == np.uint8 and noisy.images.max() == 16
    assert np.array_equal(noisy.labels, Digits().read().train.labels)


def test_without_noise_they_are_the_digits_and_a_seed_gives_others() -> None:
    assert np.array_equal(images(noise=0.0), Digits().read().train.images)
    assert np.array_equal(images(), images()) and not np.array_equal(images(), images(noise_seed=1))
    sources = [NoisyDigits(), NoisyDigits(noise_seed=1), NoisyDigits(noise=5.0), Digits()]
    assert len({source.source_digest() for source in sources}) == 4


def test_the_study_is_of_them() -> None:
    found = read_spec(SPEC)
    assert found.data == NoisyDigits(noise=6.0) and found.serve == "raw"
