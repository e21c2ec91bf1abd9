"""torchvision's networks for larger images, with its ImageNet weights or those of a file."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn
from torchvision import models

from trainables.fields import setting
from trainables.models.shared.pretrained import Pretrained, State
from trainables.models.shared.torchvision_weights import published_file
from trainables.problems import FieldError, nearest

# No final linear layer, or several outputs in training.
NOT_TAKEN = ("squeezenet", "googlenet", "inception")


def networks() -> list[str]:
    """torchvision's classification networks with a final linear layer."""
    return [name for name in models.list_models(module=models) if not name.startswith(NOT_TAKEN)]


@dataclass(frozen=True)
class Torchvision(Pretrained):
    """A classifier of torchvision."""

    package: ClassVar[str] = "torchvision"

    network: str = setting(
        "resnet18", doc="torchvision's name, e.g. resnet50, convnext_tiny, vit_b_16"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in networks():
            near = nearest(self.network, networks())
            raise FieldError("network", f"there is no '{self.network}'", near)

    def bare(self) -> tuple[nn.Module, tuple[str, ...]]:
        network = models.get_model(self.network, weights=None)
        linear = [name for name, each in network.named_modules() if isinstance(each, nn.Linear)]
        network.set_submodule(linear[-1], nn.Identity())
        return network, (linear[-1],)

    def renamed(self, state: State, network: nn.Module) -> State:
        # The published DenseNets still use the names of an older torchvision.
        old = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
        return {old.sub(r"\1\2.", key): value for key, value in state.items()}

    def statistics(self) -> tuple[Iterable[float], Iterable[float]] | None:
        published = self._published()
        if published is None:
            return None
        found = published.transforms()
        return found.mean, found.std

    def published(self) -> Path:
        published = self._published()
        if published is None:
            problem = f"{self.network} has no published weights"
            raise FieldError("weights", problem, "Write weights: none, or a file.")
        return published_file(published.url, self.network)

    def _published(self) -> Any:
        """torchvision's best weights of the network; None if it has none."""
        return getattr(models.get_model_weights(self.network), "DEFAULT", None)
