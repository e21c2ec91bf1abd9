"""Structured vector and matrix scaling: softmax(W log q + b), with a ridge towards the identity.

Berta, Holzmüller, Jordan & Bach 2026; the calibrators that CalArena (2026) ranks first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from trainables.problems import FieldError

# Above it a matrix is not fitted: its parameters, K (K + 1), outgrow what a split can tell.
MOST_CLASSES = 256
NAMES = ("temperature", "samples", "weight", "bias")  # of the tensors
VECTOR, MATRIX = FORMS = ("structured_vector", "structured_matrix")


class Structured(nn.Module):
    """log q times `weight`, plus `bias`; q = (n p + 1/K) / (n + 1), p = softmax(logits / T).

    weight: [K], the diagonal of a matrix, or [K, K]; bias: [K]; samples: n, of the fit. All of them
    are float64 buffers, which a registered program carries.
    """

    temperature: Tensor
    weight: Tensor
    bias: Tensor
    samples: Tensor

    def __init__(
        self, temperature: float, samples: int, weight: np.ndarray, bias: np.ndarray
    ) -> None:
        super().__init__()
        for name, value in (("temperature", temperature), ("samples", samples)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.register_buffer("weight", torch.from_numpy(weight))
        self.register_buffer("bias", torch.from_numpy(bias))

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits [N, K] float64, of logits [N, K]."""
        mixed = mixed_logs(logits, self.temperature, self.samples)
        scaled = mixed * self.weight if self.weight.ndim == 1 else mixed @ self.weight.T
        return scaled + self.bias

    def digest(self) -> str:
        """sha256 of the tensors, by name, as little-endian float64."""
        return tensors_digest(dict(self.named_buffers()))

    @property
    def num_parameters(self) -> int:
        """Of weight and bias, and the temperature."""
        return self.weight.numel() + self.bias.numel() + 1


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """The digest of a calibrator with these tensors, wherever they are."""
    found = hashlib.sha256()
    for name in NAMES:
        found.update(np.ascontiguousarray(tensors[name].cpu().numpy(), dtype="<f8").tobytes())
    return found.hexdigest()


def mixed_logs(logits: Tensor, temperature: float | Tensor, samples: int | Tensor) -> Tensor:
    """log q [N, K] float64: no probability is 0 after a share of 1 / (n + 1) of a uniform one."""
    probs = (logits.double() / temperature).softmax(dim=-1)
    return ((samples * probs + 1 / logits.shape[-1]) / (samples + 1)).log()


def fit_structured(logits: Tensor, labels: Tensor, temperature: float, form: str) -> Structured:
    """The W and b of least mean NLL plus ridge times squares, of logits [N, K] and labels [N].

    The ridge is K/n on b and on the diagonal of W less 1, K (K - 1)/n off the diagonal, where a
    vector has none. Strictly convex: L-BFGS from the identity. temperature: of least NLL. form: of
    FORMS. Raises FieldError for NaN, and for a matrix of more than MOST_CLASSES classes.
    """
    from scipy.optimize import minimize

    classes = logits.shape[1]
    is_matrix = form == MATRIX
    if is_matrix and classes > MOST_CLASSES:
        found = f"{classes:,} classes make a matrix of {classes**2:,} numbers"
        mend = f"Take {VECTOR}; a matrix has at most {MOST_CLASSES} classes."
        raise FieldError(form, found, mend)
    if bool(logits.isnan().any()):
        raise FieldError(form, "a logit is NaN", "Give numbers.")
    logs = mixed_logs(logits, temperature, len(labels)).cpu().numpy()
    truth = (np.arange(len(logs)), labels.cpu().numpy())
    identity = np.eye(classes) if is_matrix else np.ones(classes)
    ridge = np.full_like(identity, classes * (classes - 1) / len(logs))
    ridge[identity == 1] = classes / len(logs)
    ridge = np.append(ridge, np.full(classes, classes / len(logs)))
    centre = np.append(identity, np.zeros(classes))

    def parts(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return parameters[:-classes].reshape(identity.shape), parameters[-classes:]

    def summed(of: np.ndarray, by: np.ndarray) -> np.ndarray:
        """The sum over samples of what a weight's derivative is, [K] or [K, K], and a bias's."""
        weight = of.T @ by if is_matrix else np.einsum("nk,nk->k", of, by)
        return np.append(weight, of.sum(axis=0))

    # In units of each parameter's curvature at the start, a third of the steps are enough.
    probs = np.exp(logs)
    spread = probs * (1 - probs) / len(logs)
    curvature = summed(spread, logs**2)
    unit = 1 / np.sqrt(curvature + 2 * ridge)
    off = np.empty_like(logs)  # filled at each step

    def loss_and_slope(steps: np.ndarray) -> tuple[float, np.ndarray]:
        away = unit * steps
        weight, bias = parts(centre + away)
        if is_matrix:
            np.matmul(logs, weight.T, out=off)
        else:
            np.multiply(logs, weight, out=off)
        np.add(off, bias, out=off)
        np.subtract(off, off.max(axis=1, keepdims=True), out=off)
        own = off[truth]
        total = np.exp(off, out=off).sum(axis=1)
        np.multiply(off, (1 / (total * len(logs)))[:, None], out=off)
        off[truth] -= 1 / len(logs)
        loss = float((np.log(total) - own).mean() + ridge @ away**2)
        return loss, unit * (summed(off, logs) + 2 * ridge * away)

    options = {"maxiter": 5000, "maxfun": 10_000, "maxcor": 20, "ftol": 0, "gtol": 1e-9}
    found = minimize(
        loss_and_slope, np.zeros_like(centre), jac=True, method="L-BFGS-B", options=options
    )
    made = Structured(temperature, len(logs), *parts(centre + unit * found.x))
    return made.to(logits.device)
