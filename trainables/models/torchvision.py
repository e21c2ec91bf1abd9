"""torchvision's networks for larger images, with its ImageNet weights for fine-tuning."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn
from torchvision import models

from trainables.fields import choice, text
from trainables.files.download import DownloadError, download
from trainables.model import Model, Network
from trainables.problems import FieldError, nearest

# No final linear layer, or several outputs in training.
NOT_TAKEN = ("squeezenet", "googlenet", "inception")


def networks() -> list[str]:
    """torchvision's classification networks with a final linear layer."""
    return [name for name in models.list_models(module=models) if not name.startswith(NOT_TAKEN)]


@dataclass(frozen=True)
class Torchvision(Model):
    """Trains the whole network with a new linear layer; grayscale is repeated to three channels.

    Images are normalised by the data set's mean and standard deviation, not ImageNet's: inputs have
    mean 0 and standard deviation 1 per channel, as in pretraining. The remaining shift and scale,
    small for photographs, is left to fine-tuning.
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
            near = nearest(self.network, networks())
            raise FieldError("network", f"there is no '{self.network}'", near)

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        """Raises FieldError: unsupported image shape, or weights that cannot be downloaded."""
        network = models.get_model(self.network, weights=None)
        if self.weights == "default":
            network.load_state_dict(self._published_weights())
        linear = [item for item in network.named_modules() if isinstance(item[1], nn.Linear)]
        path, last = linear[-1]
        network.set_submodule(path, nn.Identity())
        if input_shape[0] == 1:
            network = nn.Sequential(_ThreeChannels(), network)
        self._try(network, input_shape)
        return Network(network, nn.Linear(last.in_features, num_classes))

    def _try(self, features: nn.Module, input_shape: tuple[int, int, int]) -> None:
        try:
            with torch.no_grad():
                features.eval()(torch.zeros(1, *input_shape))
        except Exception as error:  # each network reports unsupported shapes in its own way
            shape = "x".join(map(str, input_shape))
            reason = str(error).partition("\n")[0].rstrip(".!")
            raise FieldError(
                "network",
                f"{self.network} does not support images of {shape}: {reason}",
                "Use another network, or size.",
            ) from None
        features.train()

    def _published_weights(self) -> dict[str, Tensor]:
        """Loaded as data, without code. The file's name ends with the start of its sha256."""
        url = models.get_model_weights(self.network).DEFAULT.url
        file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
        try:
            download([url], file, "sha256", file.stem.rpartition("-")[2])
        except DownloadError as error:
            problem = f"those of {self.network} cannot be downloaded ({error})"
            fix = f"Download the file elsewhere and copy it to {file} on every node."
            raise FieldError("weights", problem, fix) from None
        state = torch.load(file, weights_only=True, map_location="cpu")
        # The published DenseNets still use the names of an older torchvision.
        old = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
        return {old.sub(r"\1\2.", key): state[key] for key in state}


class _ThreeChannels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)
