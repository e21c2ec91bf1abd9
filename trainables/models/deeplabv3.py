"""DeepLabV3, a class for every pixel, as torchvision has it. Chen et al. 2017."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from torchvision import models

from trainables.fields import choice
from trainables.model import Model, Network, Origin
from trainables.models.shared.pretrained import (
    ThreeChannels,
    digest_of,
    load_into,
    read_state,
    without,
)
from trainables.models.shared.torchvision_weights import published_file
from trainables.problems import FieldError

LAST = "classifier.4"  # torchvision's name of the last layer


@dataclass(frozen=True)
class Deeplabv3(Model):
    """A ResNet whose last two stages are dilated, convolutions of several dilations beside the mean
    of the image, and a 1x1 convolution, whose logits are interpolated to the image's size.

    torchvision's auxiliary classifier is left out. Batch norm after the mean cannot train on one
    image: the learner leaves out a last batch of one, and batch_size: 1 fails.
    """

    per_position: ClassVar[bool] = True

    network: str = choice("resnet50", "resnet101", doc="the ResNet")
    weights: str = choice(
        "none",
        *("backbone", "default"),
        doc=(
            "none: random by seed; backbone: the ResNet's of ImageNet; default: torchvision's, of"
            " COCO with the classes of VOC, whose last layer stays where there are 21 classes"
        ),
    )

    def origin(self) -> Origin | None:
        file = self._file()
        if file is None:
            return None
        return Origin(self._full_name, digest_of(file), "torchvision")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        """Raises FieldError: images of other channels, or weights that cannot be had."""
        channels, *size = input_shape
        if channels not in (1, 3):
            found = f"deeplabv3 takes images of one or three channels, not of {channels}"
            raise FieldError("name", found, "Write model: unet.")
        whole = models.get_model(
            f"deeplabv3_{self.network}",
            weights=None,
            weights_backbone=None,
            num_classes=num_classes,
            aux_loss=False,
        )
        self._load(whole, num_classes)
        features: nn.Module = _Features(whole)
        if channels == 1:
            features = nn.Sequential(ThreeChannels(), features)
        # Logits are interpolated, not features: of 256 channels these would take gigabytes.
        to_size = nn.Upsample(size=tuple(size), mode="bilinear", align_corners=False)
        return Network(features, nn.Sequential(whole.get_submodule(LAST), to_size))

    def _load(self, whole: nn.Module, num_classes: int) -> None:
        file = self._file()
        if file is None:
            return
        problem = f"{file} does not fit {self._full_name}"
        state = without(read_state(file), ("aux_classifier", "fc"))
        if self.weights == "backbone":
            load_into(whole.get_submodule("backbone"), state, problem)
            return
        last = state.get(f"{LAST}.bias")
        if last is None or len(last) != num_classes:
            own = whole.state_dict()
            state.update({key: own[key] for key in own if key.startswith(f"{LAST}.")})
        load_into(whole, state, problem)

    def _file(self) -> Path | None:
        """The weights' file; None: there are none."""
        published: Any = None
        if self.weights == "backbone":
            # Those that torchvision's own DeepLabV3 began with.
            published = models.get_model_weights(self.network)["IMAGENET1K_V1"]
        elif self.weights == "default":
            published = models.get_model_weights(self._full_name)["DEFAULT"]
        return published and published_file(published.url, self._full_name)

    @property
    def _full_name(self) -> str:
        """torchvision's name of what the weights are of."""
        return self.network if self.weights == "backbone" else f"deeplabv3_{self.network}"


class _Features(nn.Module):
    """[N, 3, H, W] -> [N, 256, h, w], an eighth as high and wide."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.backbone = whole.backbone
        self.classifier = nn.Sequential(*list(whole.classifier)[:-1])

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.classifier(self.backbone(images)["out"])
        return found
