"""One trial: a model trained by one calibration method. Knows torch and torchvision; Ray in `trainable.py` only."""
