"""The fast recipe is read by the checker, and every method of it trains on the network it names."""

from pathlib import Path

import study
from study.schema.reading import read_spec
from trainables.config import TrialConfig
from trainables.models.airbench import Airbench

FILE = Path(study.__file__).parent / "specs" / "cifar10_fast.yaml"


def test_it_is_airbenchs_but_for_what_is_studied() -> None:
    spec = read_spec(FILE)
    assert spec.name == FILE.stem and spec.model == Airbench()
    optimizer = spec.optimizer
    assert (optimizer.name, optimizer.nesterov, optimizer.momentum, optimizer.bias_lr_factor) == (
        "sgd",
        True,
        0.85,
        64,
    )
    assert optimizer.schedule == "triangular" and optimizer.warmup == 0
    assert (spec.data.augment, spec.data.padding) == ("crop_alternating_flip", 2)


def test_its_own_rate_is_in_the_range_it_searches_and_is_its_baseline() -> None:
    spec = read_spec(FILE)
    for variant in spec.variants:
        trial = TrialConfig.from_mapping(spec.trial_mapping(variant.label))
        assert trial.optimizer == spec.optimizer
        searched = {path for path in variant.space.distributions if path.startswith("optimizer.")}
        assert searched == (
            set() if variant.label == "baseline" else {"optimizer.lr", "optimizer.weight_decay"}
        )
        for path in searched:
            range_ = variant.space.distributions[path]
            assert range_.low < getattr(spec.optimizer, path.partition(".")[2]) < range_.high
