"""torchvision's networks for larger images, with its ImageNet weights for fine-tuning."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn
from torchvision import models

from trainables.fields import FieldError, choice, nearest, text
from trainables.files.download import DownloadError, download
from trainables.model import Model, Network

# No final linear layer, or several outputs in training.
NOT_TAKEN = ("squeezenet", "googlenet", "inception")


def networks() -> list[str]:
    """torchvision's classification networks with a final linear layer."""
    return [name for name in models.list_models(module=models) if not name.startswith(NOT_TAKEN)]


@dataclass(frozen=True)
class Torchvision(Model):
    """Trains the whole network with a new last linear layer; grayscale images are repeated to three channels.

    Images are normalised by the data set's mean and standard deviation, not ImageNet's: inputs have mean 0 and standard
    deviation 1 per channel, as in pretraining. The remaining shift and scale, small for photographs, is left to
    fine-tuning.
    """

    network: str = text(
        "resnet18", doc="torchvision's name, e.g. resnet50, convnext_tiny, vit_b_16"
    )
    weights: str = choice(
        "none",
        "default",
        doc="none: random by seed; default: best ImageNet weights, downloaded once",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in networks():
            raise FieldError(
                "network", f"there is no '{self.network}'.{nearest(self.network, networks())}"
            )

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        """Raises FieldError: unsupported image shape, or weights that cannot be downloaded."""
        network = models.get_model(self.network, weights=None)
        if self.weights == "default":
            network.load_state_dict(self._published_weights())
        path, last = [item for item in network.named_modules() if isinstance(item[1], nn.Linear)][
            -1
        ]
        network.set_submodule(path, nn.Identity())
        features = nn.Sequential(_ThreeChannels(), network) if input_shape[0] == 1 else network
        self._try(features, input_shape)
        return Network(features, nn.Linear(last.in_features, num_classes))

    def _try(self, features: nn.Module, input_shape: tuple[int, int, int]) -> None:
        try:
            with torch.no_grad():
                features.eval()(torch.zeros(1, *input_shape))
        except Exception as error:  # each network reports unsupported shapes in its own way
            shape, reason = (
                "x".join(str(side) for side in input_shape),
                str(error).partition("\n")[0].rstrip(".!"),
            )
            problem = f"{self.network} does not support images of {shape}: {reason}. Use another network, or size."
            raise FieldError("network", problem) from None
        features.train()

    def _published_weights(self) -> dict[str, Tensor]:
        """Loaded as data, without code. The file's name ends with the start of its sha256."""
        url = models.get_model_weights(self.network).DEFAULT.url
        file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
        try:
            download([url], file, "sha256", file.stem.rpartition("-")[2])
        except DownloadError as error:
            fix = f"Download the file elsewhere and copy it to {file} on every node."
            raise FieldError(
                "weights", f"those of {self.network} cannot be downloaded ({error}). {fix}"
            ) from None
        state = torch.load(file, weights_only=True, map_location="cpu")
        # The published DenseNets still use the names of an older torchvision.
        return {
            re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): state[key]
            for key in state
        }


class _ThreeChannels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)
