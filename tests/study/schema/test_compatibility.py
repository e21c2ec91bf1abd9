"""What a study may change once it has trials, and what is another study."""

import json

import pytest

from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import SpecError
from tests.study.schema.specs import SHIFT, SMALL, small


@pytest.mark.parametrize(
    "keys",
    [
        {"trials": 99},
        {"shift": SHIFT},
        {"methods": [*SMALL["methods"], "label_smoothing"]},
        {"methods": SMALL["methods"][::-1]},
        {
            "resources": {"cpu": 2},
            "tracking": "http://x",
            "storage": "x",
            "ledger": "x",
            "keep_models": "front",
        },
        {"checkpoint_seconds": 1},
        {"optimizer": {"lr": 0.1}},  # written out, and the same
        {"precision": "auto"},  # without a GPU
    ],
)
def test_goes_on(keys):
    old = json.loads(json.dumps(small().meaning()))
    refuse_changes(old, small(**keys), "study.yaml", "has 3 trials")


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ({"epochs": 30}, ["epochs: was 20, is 30"]),
        ({"seed": 1}, ["seed: was 0, is 1"]),
        ({"first_seed": 7}, ["first_seed: was 0, is 7"]),
        ({"result": "best_nll"}, ["result: was last, is best_nll"]),
        ({"precision": "auto", "resources": {"gpu": 1}}, ["precision: was float32, is bfloat16"]),
        (
            {"batch_size": 32, "sampler": {"seed": 4}},
            ["batch_size: was 64, is 32", "sampler.seed: was 0, is 4"],
        ),
        ({"data": {"name": "digits", "validation": 0.3}}, ["data.validation: was 0.2, is 0.3"]),
        ({"optimizer": {"lr": 0.2}}, ["optimizer.lr: was 0.1, is 0.2"]),
        ({"model": {"name": "mlp", "width": 64}}, ["model.width: was 128, is 64"]),
        (
            {"objectives": [{"metric": "nll", "direction": "minimize"}]},
            [
                "objectives: was [{metric: accuracy, direction: maximize}, {metric: ece, direction:"
                " minimize}], is [{metric: nll, direction: minimize}]"
            ],
        ),
        (
            {"search_space": {"method.gamma": {"low": 1, "high": 4}}},
            ["methods.focal: method.gamma: was {low: 0.0, high: 5.0}, is {low: 1.0, high: 4.0}"],
        ),
        (
            {"search_space": {"method.margin": 6}},
            ["methods.mbls: method.margin: was {low: 0.0, high: 20.0}, is 6.0"],
        ),
        (
            {"methods": [*SMALL["methods"][:3], {"label": "sece_on_focal", "name": "sece"}]},
            [
                "methods.sece_on_focal: method.base.name: was focal, is cross_entropy",
                "methods.sece_on_focal: method.base.gamma: was {low: 0.0, high: 5.0}, is absent",
            ],
        ),
        ({"methods": SMALL["methods"][1:]}, ["methods.cross_entropy: was present, is missing"]),
    ],
)
def test_a_change_of_meaning_is_refused(keys, lines):
    old = json.loads(json.dumps(small().meaning()))
    with pytest.raises(SpecError) as error:
        refuse_changes(old, small(**keys), "study.yaml", "has 3 trials")
    first, *rest = str(error.value).splitlines()
    assert first.startswith("study.yaml: name: 'small' has 3 trials")
    assert "give the study a new name" in first
    assert rest == [f"  {line}" for line in lines]


def test_keys_that_came_later_stand_for_their_defaults():
    """A study of an older version goes on; but a value that is new and no default, or
    searched anew, is a change."""
    old = json.loads(json.dumps(small().meaning()))
    del (
        old["data"]["meta"],
        old["data"]["padding"],
        old["equal_train"],
        old["first_seed"],
        old["confirms"],
        old["methods"]["mbls"]["fixed"],
    )
    whole = completed_meaning(old, small().meaning())
    refuse_changes(whole, small(), "study.yaml", "has 3 trials")
    with pytest.raises(SpecError, match=r"data\.padding: was null, is 4"):
        refuse_changes(
            whole, small(data={"name": "digits", "padding": 4}), "study.yaml", "has 3 trials"
        )
    with pytest.raises(SpecError, match="equal_train: was false, is true"):
        refuse_changes(whole, small(equal_train=True), "study.yaml", "has 3 trials")
    del old["methods"]["mbls"]["space"]["method.margin"]
    with pytest.raises(SpecError, match=r"methods\.mbls: method\.margin: was absent"):
        refuse_changes(
            completed_meaning(old, small().meaning()), small(), "study.yaml", "has 3 trials"
        )
