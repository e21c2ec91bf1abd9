"""A small network that plays one that others have trained: its weights in a file, its outputs on
the digits worth training on."""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torchvision import models

HAS_TIMM = importlib.util.find_spec("timm") is not None
NETWORK = "resnet18"
WIDTH = 512  # of its outputs
MEAN = (0.485, 0.456, 0.406)  # ImageNet's, as everybody writes them
STD = (0.229, 0.224, 0.225)


def normalised(images: np.ndarray) -> torch.Tensor:
    """uint8 [N, 1 or 3, H, W] as torchvision's weights take them."""
    pixels = torch.from_numpy(np.repeat(images, 3 // images.shape[1], axis=1)).float()
    mean, std = (255 * torch.tensor(values, dtype=torch.float64) for values in (MEAN, STD))
    return (pixels - mean.float().view(3, 1, 1)) / std.float().view(3, 1, 1)


def network(seed: int = 0) -> nn.Module:
    """torchvision's, with random weights, and the digits' averages in its batch norms."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = models.get_model(NETWORK, weights=None)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean over batches
    digits = load_digits().images[:400, None].astype(np.uint8)
    with torch.no_grad():
        made.train()(normalised(digits))
    return made.eval()


def written(folder: Path, seed: int = 0) -> Path:
    """A file of its weights."""
    file = folder / f"weights-{seed}.pth"
    torch.save(network(seed).state_dict(), file)
    return file


def with_head(file: Path, model: Path) -> nn.Module:
    """torchvision's network, its weights those of a file, its last layer that of a model.pt."""
    made = models.get_model(NETWORK, weights=None)
    made.load_state_dict(torch.load(file, weights_only=True))
    state = torch.load(model, weights_only=True)
    made.fc = nn.Linear(WIDTH, 10)
    made.fc.load_state_dict({key: state[f"network.head.{key}"] for key in ("weight", "bias")})
    return made.eval()
