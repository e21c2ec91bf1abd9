"""What a study with masks, or trees, refuses before anything trains, and what one without."""

import re
from pathlib import Path
from typing import Any

import pytest

from study.schema.errors import SpecError
from study.schema.samples import (
    check_class_weights,
    check_positions,
    check_samples,
    check_worded,
)
from tests.masks import Tiny
from tests.study.schema.specs import small
from trainables.data.tree_bank import TreeBank
from trainables.inputs import Inputs
from trainables.models.bag_of_words import BagOfWords
from trainables.models.cnn import Cnn
from trainables.models.mlp import Mlp
from trainables.models.tree_lstm import TreeLstm

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
        *("esd", "reg_mixup"),
        {"label": "a", "name": "mixup", "base": "mmce"},
    ],
)
def test_a_method_that_needs_one_row_an_image_is_refused(method: Any) -> None:
    methods = [method]
    with pytest.raises(SpecError, match=r"methods\.\w+: \w+ needs one row an image"):
        check_positions(small(methods=methods), WITH_MASKS, "maps.yaml")


def test_the_others_run_but_no_entropy_of_train_is_recorded() -> None:
    methods = ["cross_entropy", "brier", "label_smoothing", "confidence_penalty", "mbls", "focal"]
    methods += ["focal_scheduled", "focal_sample_dependent", "mixup"]
    check_positions(small(methods=methods), WITH_MASKS, "maps.yaml")
    with pytest.raises(SpecError, match="record: train_entropy is of one row an image"):
        check_positions(small(methods=methods, record="train_entropy"), WITH_MASKS, "maps.yaml")


TREES = Inputs((9, 4), "trees", words=20)


def test_trees_are_for_two_networks(tmp_path: Path) -> None:
    for model in (TreeLstm(), BagOfWords()):
        check_samples(model, [], TREES, "trees.yaml")
    mend = "Write model: tree_lstm, or bag_of_words."
    with pytest.raises(
        SpecError, match="mlp takes images or rows, the data are trees of up to 9 nodes"
    ):
        check_samples(Mlp(), [], TREES, "trees.yaml")
    with pytest.raises(SpecError, match=re.escape(mend)):
        check_samples(Cnn(), [], TREES, "trees.yaml")
    with pytest.raises(SpecError, match="tree_lstm takes trees, the data are 3x8x8 images"):
        check_samples(TreeLstm(), [], Inputs((3, 8, 8)), "trees.yaml")
    augmented = TreeBank(path=str(tmp_path), augment="flip")
    with pytest.raises(SpecError, match="augment: flip is for images, the data are trees"):
        check_samples(TreeLstm(), [augmented], TREES, "trees.yaml")


@pytest.mark.parametrize("method", ["mmce", "sece", "dece", "gamma_net"])
def test_a_method_that_needs_one_row_a_tree_is_refused(method: str) -> None:
    with pytest.raises(SpecError, match=f"{method} needs one row a tree, .* label for each node"):
        check_positions(small(methods=[method]), TREES, "trees.yaml")


def test_trees_are_not_mixed() -> None:
    with pytest.raises(SpecError, match="mixup mixes samples, the data are trees of up to 9 nodes"):
        check_worded(small(methods=["mixup"]), TREES, "trees.yaml")


def test_a_list_has_one_for_each_class() -> None:
    method = {"name": "sece", "label": "a", "base": {"name": "focal", "class_weights": [1, 2]}}
    spec = small(methods=[method])
    check_class_weights(spec, 2, "study.yaml")
    with pytest.raises(SpecError, match=r"methods\.a\.class_weights: has 2 weights, .* 3 classes"):
        check_class_weights(spec, 3, "study.yaml")
