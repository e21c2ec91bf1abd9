"""Measure predictions from anywhere: logits or probabilities, and labels. No study is needed."""

import numpy as np

from trainables import Predictions, fit_temperature

rng = np.random.default_rng(0)
logits = rng.normal(size=(2000, 10)) * 3
labels = np.array(
    [rng.choice(10, p=row) for row in np.exp(logits / 2) / np.exp(logits / 2).sum(1, keepdims=True)]
)

predictions = Predictions.of(logits=logits, labels=labels)  # or probs=...
found = predictions.evaluate()
for name in ("accuracy", "nll", "ece", "ts_nll", "ts_ece"):
    print(f"{name:10} {found[name]:.4f}")
# The logits are twice too large.
print(f"temperature {fit_temperature(predictions.logits, predictions.labels):.2f}")

# `calstudy evaluate predictions.npz` prints the main metrics of such a file; with --all, every one.
np.savez("predictions.npz", logits=logits, labels=labels)
