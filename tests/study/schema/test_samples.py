"""What a study with masks refuses before anything trains, and what one without."""

from typing import Any

import pytest

from study.schema.errors import SpecError
from study.schema.samples import check_masks, check_samples
from tests.masks import Tiny
from tests.study.schema.specs import small
from trainables.inputs import Inputs
from trainables.models.cnn import Cnn
from trainables.models.mlp import Mlp

WITH_MASKS = Inputs((3, 8, 8), marked=True)


@pytest.mark.parametrize("model", [Cnn(), Mlp()])
def test_a_network_of_whole_images_is_not_for_masks(model: Any) -> None:
    with pytest.raises(SpecError, match="gives a class to each image, the data have masks"):
        check_samples(model, [], WITH_MASKS, "maps.yaml")


def test_a_network_of_pixels_is_for_masks_alone() -> None:
    check_samples(Tiny(), [], WITH_MASKS, "maps.yaml")
    with pytest.raises(SpecError, match="gives a class to every pixel, the data have no masks"):
        check_samples(Tiny(), [], Inputs((3, 8, 8)), "maps.yaml")


@pytest.mark.parametrize(
    "method",
    [
        *("mmce", "sece", "dece", "gamma_net", "meta_l2", "sample_prioritization"),
        {"label": "a", "name": "mixup", "base": "mmce"},
    ],
)
def test_a_method_that_needs_one_row_an_image_is_refused(method: Any) -> None:
    methods = [method]
    with pytest.raises(SpecError, match=r"methods\.\w+: \w+ needs one row an image"):
        check_masks(small(methods=methods), "maps.yaml")


def test_the_others_run_but_no_entropy_of_train_is_recorded() -> None:
    methods = ["cross_entropy", "brier", "label_smoothing", "confidence_penalty", "mbls", "focal"]
    methods += ["focal_scheduled", "focal_sample_dependent", "mixup"]
    check_masks(small(methods=methods), "maps.yaml")
    with pytest.raises(SpecError, match="record: train_entropy is of one row an image"):
        check_masks(small(methods=methods, record="train_entropy"), "maps.yaml")
