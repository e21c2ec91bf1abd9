"""torchvision's own networks for larger images, with its ImageNet weights for fine-tuning."""

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

# No linear layer at the end, or several outputs while training.
NOT_TAKEN = ("squeezenet", "googlenet", "inception")


def networks() -> list[str]:
    """Torchvision's names of its classification networks that end in a linear layer."""
    return [name for name in models.list_models(module=models) if not name.startswith(NOT_TAKEN)]


@dataclass(frozen=True)
class Torchvision(Model):
    """The whole network is trained; its last linear layer is a new one, and grey images enter as three equal channels.

    Images are normalised by their own data's mean and standard deviation, not by ImageNet's: what enters has mean 0
    and deviation 1 per channel, as it had when the weights were made. The shift and scale that is left, small for
    photographs, is for fine-tuning to take up.
    """

    network: str = text("resnet18", doc="torchvision's name for it, as resnet50, convnext_tiny, vit_b_16")
    weights: str = choice("none", "default", doc="none: drawn by seed; default: its best of ImageNet, downloaded once")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in networks():
            raise FieldError("network", f"there is no '{self.network}'.{nearest(self.network, networks())}")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        """Raises FieldError: images of a shape it does not take, weights that cannot be had."""
        network = models.get_model(self.network, weights=None)
        if self.weights == "default":
            network.load_state_dict(self._published_weights())
        path, last = [item for item in network.named_modules() if isinstance(item[1], nn.Linear)][-1]
        network.set_submodule(path, nn.Identity())
        features = nn.Sequential(_ThreeChannels(), network) if input_shape[0] == 1 else network
        self._try(features, input_shape)
        return Network(features, nn.Linear(last.in_features, num_classes))

    def _try(self, features: nn.Module, input_shape: tuple[int, int, int]) -> None:
        try:
            with torch.no_grad():
                features.eval()(torch.zeros(1, *input_shape))
        except Exception as error:  # each network says in its own way which images it takes
            shape, reason = "x".join(str(side) for side in input_shape), str(error).partition("\n")[0].rstrip(".!")
            problem = f"{self.network} does not take images of {shape}: {reason}. Take another network, or size."
            raise FieldError("network", problem) from None
        features.train()

    def _published_weights(self) -> dict[str, Tensor]:
        """Read as data, no code in it. The file's name ends in the beginning of its sha256."""
        url = models.get_model_weights(self.network).DEFAULT.url
        file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
        try:
            download([url], file, "sha256", file.stem.rpartition("-")[2])
        except DownloadError as error:
            mend = f"Download it where there is internet and put it at {file}, on every node."
            raise FieldError("weights", f"those of {self.network} cannot be downloaded ({error}). {mend}") from None
        state = torch.load(file, weights_only=True, map_location="cpu")
        # The published DenseNets still have the names of an older torchvision.
        return {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): state[key] for key in state}


class _ThreeChannels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)
