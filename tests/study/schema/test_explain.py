"""`plan --explain`: every key and every searched path, with where it comes from."""

from study.schema.explain import explain
from tests.study.schema.specs import RATE, small


def test_explain_shows_every_key_and_every_searched_path():
    spec = small(search_space={**RATE, "method.margin": 6})
    rows = {row.key: row for row in explain(spec)}
    assert rows["epochs"][1:3] == ("20", "20")
    assert rows["name"][1:3] == ("small", "required")
    assert rows["data.augment"][1:3] == ("none", "none")
    assert rows["optimizer.lr"][1:] == (
        "0.1",
        "0.1",
        "> 0",
        "learning rate, the schedule's maximum",
    )
    assert rows["result"].note.endswith("best_*: chosen on validation, so its values look too good")
    assert rows["objectives"].value == "maximize accuracy, minimize ece"
    gamma = rows["methods.focal: method.gamma"]
    assert gamma[1:3] == ("{low: 0.0, high: 5.0}", "3.0")
    assert gamma.note.startswith("search_spaces/focal.yaml: Mukhoti et al. 2020")
    assert rows["methods.focal: optimizer.lr"][1:] == (
        "{low: 0.01, high: 0.5, log: true}",
        "",
        "",
        "search_space of the study",
    )
    assert rows["methods.mbls: method.margin"][1:3] == ("6.0", "10.0")
    assert rows["methods.sece_on_focal: method.base"][1:3] == ("focal", "cross_entropy")
    tried = [row.value for row in explain(spec) if row.key == "methods.focal: tried first"]
    assert tried == [
        f"{{method.gamma: {gamma}, optimizer.lr: 0.1}}" for gamma in ("3.0", "2.0", "1.0")
    ]
    for key in spec.to_mapping():
        assert any(row.key.startswith(key) for row in explain(spec)), key


def test_explain_lists_what_a_key_may_be():
    allowed = {
        row.key: row.allowed
        for row in explain(small(methods=["focal", {"name": "sece", "base": "focal"}]))
    }
    assert allowed["sampler.name"] == "tpe | gp | random"
    assert allowed["record"] == "train_entropy | null"
    assert allowed["trial_minutes"] == "> 0 | null"
    assert allowed["equal_train"] == "true | false"
    assert allowed["optimizer.steps"] == "a list of numbers > 0 and < 1"
    assert allowed["methods.focal: method.gamma"] == ">= 0"
    assert allowed["name"] == allowed["storage"] == ""  # any text
    assert "mlp" in allowed["model.name"].split(" | ") and "digits" in allowed["data.name"].split(
        " | "
    )
    assert {"focal", "sece"} <= set(allowed["methods.sece: method.base"].split(" | "))
    assert allowed["methods.sece: method.base"] == allowed["methods.focal"]
