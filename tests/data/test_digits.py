"""The digits, against what their source says of itself."""

import numpy as np
import pytest

from trainables.data.digits import Digits


def test_has_the_images_of_the_uci_description():
    data = Digits().read()
    assert data.train.images.shape == (1797, 1, 8, 8)
    assert data.train.images.dtype == np.uint8
    assert (data.train.images.min(), data.train.images.max()) == (0, 16)
    # Samples of each digit, as the UCI repository lists them for the test part of the set.
    assert np.bincount(data.train.labels).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    assert data.train.labels.dtype == np.int64
    assert data.classes == tuple("0123456789")
    assert data.validation is None
    assert data.test is None


@pytest.mark.slow  # importing scikit-learn
def test_is_what_scikit_learn_loads():
    from sklearn.datasets import load_digits

    data, theirs = Digits().read(), load_digits()
    assert np.array_equal(data.train.images[:, 0], theirs.images)
    assert np.array_equal(data.train.labels, theirs.target)
