"""Whether a study's network, methods and augmentation are for the samples that its data have."""

from __future__ import annotations

from collections.abc import Iterable

from study.schema.errors import SpecError
from study.schema.spec import StudySpec
from trainables.dataset import Dataset
from trainables.inputs import Inputs
from trainables.kinds import NOUNS, Kind
from trainables.method import Method
from trainables.model import Model
from trainables.plugins import name_of

MENDS: dict[Kind, str] = {
    "image": "Use a network of images.",
    "features": "Write model: mlp.",
    "words": "Write model: bag_of_words, or global_pooling_cnn.",
    "trees": "Write model: tree_lstm, or bag_of_words.",
}


def check_samples(model: Model, data: Iterable[Dataset], inputs: Inputs, file_name: str) -> None:
    """Raise SpecError if the network does not take such samples, or they are augmented in vain.

    data: with each augmentation that is searched.
    """
    if inputs.kind not in model.takes:
        found = f"{name_of(type(model))} takes {' or '.join(NOUNS[kind] for kind in model.takes)}"
        mend = MENDS[inputs.kind]
        raise SpecError(file_name, "model", f"{found}, the data are {inputs.shown}", mend)
    if model.per_position != inputs.marked and inputs.kind != "trees":
        gives = "a class to each image, the data have masks"
        mend = "Write model: unet, or deeplabv3."
        if model.per_position:
            gives = "a class to every pixel, the data have no masks"
            mend = "Name the masks in `data`, or use another network."
        found = f"{name_of(type(model))} gives {gives}"
        raise SpecError(file_name, "model", found, mend)
    if inputs.kind == "image":
        return
    found = f"is for images, the data are {inputs.shown}"
    for one in data:
        if one.augment != "none":
            raise SpecError(file_name, "data.augment", f"{one.augment} {found}", "Remove it.")
        if one.padding is not None:
            raise SpecError(file_name, "data.padding", found, "Remove it.")


def check_worded(spec: StudySpec, inputs: Inputs, file_name: str) -> None:
    """Raise SpecError for a method that mixes samples, whose numbers are words."""
    for variant in spec.variants:
        if variant.method.mixes:
            name = name_of(type(variant.method))
            found = f"{name} mixes samples, the data are {inputs.shown}"
            mend = "Leave it out: words cannot be mixed."
            raise SpecError(file_name, f"methods.{variant.label}", found, mend)


def check_positions(spec: StudySpec, inputs: Inputs, file_name: str) -> None:
    """Raise SpecError for what needs one row a sample, where each pixel, or node, has a label."""
    sample, position = ("a tree", "node") if inputs.kind == "trees" else ("an image", "pixel")
    there = f"the data have a label for each {position}"
    for variant in spec.variants:
        if not variant.method.per_position:
            name = name_of(type(variant.method))
            found = f"{name} needs one row {sample}, {there}"
            mend = "Leave it out; cross_entropy, focal, label_smoothing and mbls can."
            raise SpecError(file_name, f"methods.{variant.label}", found, mend)
    if spec.record is not None:
        found = f"{spec.record} is of one row {sample}, {there}"
        raise SpecError(file_name, "record", found, "Remove it.")


def check_class_weights(spec: StudySpec, num_classes: int, file_name: str) -> None:
    """Raise SpecError for a list of class weights that has not one for each class."""
    for variant in spec.variants:
        method: Method | None = variant.method
        while method is not None:
            given = method.class_weights
            if isinstance(given, tuple) and len(given) != num_classes:
                found = f"has {len(given)} weights, the data have {num_classes} classes"
                place = f"methods.{variant.label}.class_weights"
                raise SpecError(file_name, place, found, "Write one for each class, or balanced.")
            method = getattr(method, "base", None)
