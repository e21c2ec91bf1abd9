"""Whether a study's network and augmentation are for the samples that its data have."""

from __future__ import annotations

from collections.abc import Iterable

from study.schema.errors import SpecError
from trainables.dataset import Dataset
from trainables.inputs import Inputs
from trainables.kinds import NOUNS
from trainables.model import Model
from trainables.plugins import name_of


def check_samples(model: Model, data: Iterable[Dataset], inputs: Inputs, file_name: str) -> None:
    """Raise SpecError if the network does not take such samples, or they are augmented in vain.

    data: with each augmentation that is searched.
    """
    if inputs.kind not in model.takes:
        found = f"{name_of(type(model))} takes {' or '.join(NOUNS[kind] for kind in model.takes)}"
        mend = "Write model: mlp." if inputs.kind == "features" else "Use a network of images."
        raise SpecError(file_name, "model", f"{found}, the data are {inputs.shown}", mend)
    if inputs.kind == "image":
        return
    found = f"is for images, the data are {inputs.shown}"
    for one in data:
        if one.augment != "none":
            raise SpecError(file_name, "data.augment", f"{one.augment} {found}", "Remove it.")
        if one.padding is not None:
            raise SpecError(file_name, "data.padding", found, "Remove it.")
