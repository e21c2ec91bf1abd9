"""Measure predictions from anywhere: logits or probabilities, and labels. No study is needed."""

import numpy as np

import calstudy

rng = np.random.default_rng(0)
logits = rng.normal(size=(2000, 10)) * 3
chances = np.exp(logits / 2) / np.exp(logits / 2).sum(1, keepdims=True)  # of a calibrated model
labels = np.array([rng.choice(10, p=row) for row in chances])

found = calstudy.evaluate(labels, logits=logits)  # or probs=...
print(found)
ece = found.metrics["ece"]
print(f"ECE {ece.value:.4f}, at 95% in {ece.interval}")
print(f"temperature {found.temperature:.2f}")  # the logits are twice too large
found.reliability().savefig("reliability.png")

# Two models on the same samples: the first less one whose logits are divided by the temperature.
difference = found.difference(calstudy.evaluate(labels, logits=logits / found.temperature))
print(difference)
print(f"its ECE is {difference.differences['ece'].word}")

# `calstudy evaluate predictions.npz` prints the same of a file; with --all, every metric.
np.savez("predictions.npz", logits=logits, labels=labels)
