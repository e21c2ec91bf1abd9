"""Kernel calibration errors: blocks, estimators without bias, and the square of MMCE."""

import torch
from pytest import MonkeyPatch, approx

from tests.cases import logits_of, random_case
from trainables.metrics import kernel


def test_two_samples_by_hand() -> None:
    """(.8, .2) right and (.6, .4) wrong: residuals (.2, -.2) and (-.6, .6), .2 sqrt 2 apart."""
    logits, labels = logits_of([0.8, 0.2], [0.6, 0.4]), torch.tensor([0, 1])
    cross = -2 * 0.2 * 0.6 * torch.tensor(-(0.2 * 2**0.5) / 0.5).exp().item()
    assert kernel.kernel_calibration_error_unbiased(logits, labels).item() == approx(cross)
    assert kernel.kernel_calibration_error_linear(logits, labels).item() == approx(cross)
    assert kernel.kernel_calibration_error(logits, labels).item() == approx(
        (2 * cross + 2 * 0.04 + 2 * 0.36) / 4
    )


def test_pairs_are_summed_in_blocks(monkeypatch: MonkeyPatch) -> None:
    logits, labels = random_case((100, 5, 2.0))
    expected = kernel.kernel_calibration_error(logits, labels).item()
    for block in (1, 7, 50, 99):
        monkeypatch.setattr(kernel, "BLOCK", block)
        assert kernel.kernel_calibration_error(logits, labels).item() == approx(expected, rel=1e-9)


def test_unbiased_estimates_are_zero_on_average_for_a_calibrated_model() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    forms = [
        name + form
        for name in ("kernel_calibration_error", "top_label_kernel_error")
        for form in ("", "_unbiased")
    ]
    means = dict.fromkeys(forms, 0.0)
    for _ in range(300):
        labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
        for name in means:
            means[name] += getattr(kernel, name)(logits, labels).item() / 300
    for name, mean in means.items():
        if name.endswith("error"):
            assert mean > 0.004, name  # the bias: mean |r|^2 / N
        else:
            assert abs(mean) < 0.001, name


def test_squared_mmce_is_the_biased_top_label_estimate() -> None:
    logits, labels = random_case((40, 10, 5.0))
    square = kernel.maximum_mean_calibration_error(logits, labels).item() ** 2
    assert square == approx(kernel.top_label_kernel_error(logits, labels).item(), rel=1e-12)
