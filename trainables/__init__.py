"""One trial: a model trained by one calibration method. Uses torch and torchvision; Ray only in `trainable.py`."""
