"""Tests of the experiments themselves: `python -m pytest benchmarks/experiments`.

The project's tests only start each experiment (`tests/benchmarks/test_experiments.py`).
"""
