"""Shared base of networks whose weights others have published, or that are read from a file."""

from abc import abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainables.fields import choice, file_text
from trainables.files.data_files import open_data_file
from trainables.files.digest import known_digest
from trainables.files.regular import NotAFile
from trainables.files.saved import weights_problem
from trainables.model import Model, Network, Origin
from trainables.problems import FieldError

State = dict[str, Tensor]
NAMED = 3  # keys of a state that are named where they do not fit


@dataclass(frozen=True)
class Pretrained(Model):
    """A network with a new linear layer; grayscale is repeated to three channels.

    train: all: images are normalised by the data set's mean and standard deviation, not those of
    the weights: inputs have mean 0 and standard deviation 1 per channel, as in pretraining. The
    remaining shift and scale, small for photographs, is left to fine-tuning. train: head: by those
    of the weights; the network's outputs are computed once, and shared by all trials.
    """

    package: ClassVar[str]

    network: str
    weights: str = file_text(
        "none",
        *("none", "default"),
        doc=(
            "none: random by seed; default: best published ones, downloaded once; or a file, .pth"
            " or .safetensors"
        ),
    )
    train: str = choice(
        "all", "head", doc="head: only the new layer; the rest stays as published, and is run once"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frozen and self.weights == "none":
            fix = "Write weights: default, or a file."
            raise FieldError("train", "head needs trained weights, but weights is none", fix)

    @abstractmethod
    def published(self) -> Path:
        """The file of the published weights on this machine, downloaded if need be. Raises
        FieldError."""

    @abstractmethod
    def statistics(self) -> tuple[Iterable[float], Iterable[float]] | None:
        """mean and std of the images of the published weights, in 0..1; None: none published."""

    @abstractmethod
    def bare(self) -> tuple[nn.Module, tuple[str, ...]]:
        """The network without its last layer, with random weights, and that layer's name or
        names."""

    @abstractmethod
    def renamed(self, state: State, network: nn.Module) -> State:
        """The weights of an older file, under today's names."""

    @property
    def full_name(self) -> str:
        """The name of the weights."""
        return self.network

    @property
    def frozen(self) -> bool:
        return self.train == "head"

    @property
    def stackable(self) -> bool:
        return self.frozen

    def origin(self) -> Origin | None:
        file = self._file()
        if file is None:
            return None
        digest = digest_of(file)
        mean, std = self._in_pixels() if self.frozen else ((), ())
        return Origin(self.full_name, digest, self.package, mean, std)

    def backbone(self, input_shape: tuple[int, int, int]) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            network = self._loaded()
        self._width(network, (3, *input_shape[1:]))  # grayscale is normalised to three channels
        return network.eval().requires_grad_(False)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> Network:
        """Raises FieldError: unsupported image shape, or weights that cannot be had."""
        if self.frozen:
            return Network(nn.Identity(), nn.Linear(prod(input_shape), num_classes))
        network = self._loaded()
        if input_shape[0] == 1:
            network = nn.Sequential(ThreeChannels(), network)
        width = self._width(network, input_shape)
        return Network(network.train(), nn.Linear(width, num_classes))

    def _file(self) -> Path | None:
        if self.weights == "none":
            return None
        return self.published() if self.weights == "default" else Path(self.weights)

    def _in_pixels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        found = self.statistics()
        if found is None:
            problem = f"head normalises images as for published weights, and {self.network} has"
            raise FieldError("train", f"{problem} none", "Use another network, or train: all.")
        mean, std = (tuple(255.0 * value for value in values) for values in found)
        return mean, std

    def _loaded(self) -> nn.Module:
        network, gone = self.bare()
        file = self._file()
        if file is not None:
            found = read_state(file)
            state = without(found, gone)
            if state.keys() != network.state_dict().keys():
                state = without(self.renamed(found, network), gone)
            load_into(network, state, f"{file} does not fit {self.network}")
        return network

    def _width(self, features: nn.Module, shape: Iterable[int]) -> int:
        """The number of features of an image, which is tried."""
        try:
            with torch.no_grad():
                found: Tensor = features.eval()(torch.zeros(1, *shape))
        except Exception as error:  # each network reports unsupported shapes in its own way
            shown = "x".join(map(str, shape))
            reason = str(error).partition("\n")[0].rstrip(".!")
            raise FieldError(
                "network",
                f"{self.network} does not support images of {shown}: {reason}",
                "Use another network, or size.",
            ) from None
        return found.shape[1]


def digest_of(file: Path) -> str:
    """The sha256 of a file of weights. Raises FieldError."""
    try:
        return known_digest(file)
    except NotAFile as error:
        raise FieldError("weights", f"{file} {error.found}") from None
    except OSError as error:
        found = f"{file} cannot be read ({error.strerror})"
        fix = "Write none, default, or the path of a .pth or .safetensors file."
        raise FieldError("weights", found, fix) from None


def read_state(file: Path) -> State:
    """The weights in a file, read as data, without code. Raises FieldError."""
    with open_data_file("weights", file) as opened:
        problem = None if file.suffix == ".safetensors" else weights_problem(opened)
    if problem is not None:
        raise FieldError("weights", f"{file} {problem}", "Save the network's state_dict() anew.")
    try:
        if file.suffix == ".safetensors":
            found = _read_safetensors(file)
        else:
            found = torch.load(file, weights_only=True, map_location="cpu")
    except FieldError:
        raise
    except Exception as error:  # what torch or safetensors make of another file
        reason = " ".join(str(error).split())
        if "Unsupported" in reason:  # as torch calls what only pickle would make
            problem = f"{file} needs pickle, which may run code, and is not read"
            fix = "Save the network's state_dict() alone, or as .safetensors."
            raise FieldError("weights", problem, fix) from None
        problem = f"{file} cannot be read as weights ({reason[:200].rstrip('.')})"
        raise FieldError("weights", problem) from None
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        keys = f" but {_named(found)}" if isinstance(found, dict) else ""
        fix = "Save the network's state_dict() alone."
        raise FieldError("weights", f"{file} has no weights by name{keys}", fix)
    return found


def _read_safetensors(file: Path) -> State:
    try:
        from safetensors.torch import load_file
    except ImportError:
        found = f"{file} needs the package safetensors"
        raise FieldError("weights", found, "pip install 'calstudy[timm]'") from None
    return load_file(file)


def without(state: State, layers: Iterable[str]) -> State:
    """A copy without the weights of these layers; it keeps the versions that torch writes."""
    gone = tuple(f"{name}." for name in layers)
    kept = copy(state)
    for key in state:
        if key.startswith(gone):
            del kept[key]
    return kept


def load_into(network: nn.Module, state: State, problem: str) -> None:
    """Load a state that has each weight of the network, in its shape, and no others."""
    own = network.state_dict()
    shapes = [key for key in own if key in state and own[key].shape != state[key].shape]
    parts = {"of another shape": shapes}
    if not shapes:
        try:
            found = network.load_state_dict(state, strict=False)
        except ValueError as error:  # a layer's, whose versions safetensors does not write
            raise FieldError("weights", f"{problem}: {error}") from None
        parts = {"it lacks": found.missing_keys, "it also has": found.unexpected_keys}
    wrong = [f"{word} {_named(keys)}" for word, keys in parts.items() if keys]
    if wrong:
        raise FieldError("weights", f"{problem}: {'; '.join(wrong)}")


def _named(keys: Iterable[Any]) -> str:
    names = list(map(str, keys))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


class ThreeChannels(nn.Module):
    """Grayscale as three equal channels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.expand(-1, 3, -1, -1)
