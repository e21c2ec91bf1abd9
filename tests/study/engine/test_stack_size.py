"""How many trials are trained as one program: decided from numbers, and recorded once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from search_spaces import strict_yaml
from study.answer.confirmation import results_of
from study.engine import probe, run, stack_size
from study.engine.candidates import Asked, confirming_spec
from study.engine.search import LedgerSearch
from study.engine.stack_size import Stacks, stacks_of
from study.schema.errors import SpecError
from study.store.recorded import Stacked
from study.store.study import open_directory, record_facts, write_study_file
from tests.study import command_line
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import Places, made_study
from tests.study.schema.specs import small
from trainables.loading.cache import Prepared, prepare

RATE = FloatDistribution(0.01, 0.5, log=True)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(small().data, 0)


def decided(prepared: Prepared, slots: int = 2, **keys: Any) -> Stacks:
    return stacks_of(small(**keys), "study.yaml", None, prepared, lambda: slots)


# small() has four methods, of which one searches nothing. TPE waits for a sixth of the trials.
@pytest.mark.parametrize(
    ("keys", "slots", "most"),
    [
        ({"trials": 24}, 1, 16),  # 4 of each method wait: on one slot all of them
        ({"trials": 24}, 2, 8),
        ({"trials": 24}, 4, 4),
        ({"trials": 24}, 16, None),  # one for each slot
        ({"trials": 200}, 4, 32),  # 34 of each wait, of which one stack takes 8
        ({"trials": 200, "sampler": {"pending": 8}}, 4, 8),
        (
            {"trials": 200, "sampler": {"name": "random"}, "epochs": 9},
            4,
            200,
        ),  # none waits: a quarter
        ({"trials": 2000, "sampler": {"name": "random"}, "epochs": 9}, 4, 256),  # no stack has more
        ({"trials": 3, "sampler": {"name": "random"}}, 2, None),
        ({"trials": 1}, 1, None),
        ({"trials": 24, "methods": ["focal", "gamma_net"]}, 1, 4),
        ({"trials": 24, "methods": ["focal", "gamma_net"]}, 2, None),
        ({"trials": 24, "methods": ["gamma_net"]}, 2, None),
        ({"trials": 24, "methods": ["cross_entropy"]}, 4, 6),  # is repeated: nobody waits
        ({"trials": 24, "model": "cnn"}, 2, None),
        ({"trials": 24, "early_stopping": {}}, 2, None),
        ({"trials": 24, "resources": {"gpu": 1}}, 2, None),
        ({"trials": 24, "stack": "off"}, 2, None),
        ({"trials": 24, "stack": 30}, 4, 30),
    ],
)
def test_every_slot_has_a_stack_to_train(
    prepared: Prepared, keys: dict[str, Any], slots: int, most: int | None
) -> None:
    found = decided(prepared, slots, **keys)
    asked = keys.get("stack", "auto") != "auto"
    assert found.most == (None if most is None else Stacked(most, "cpu", None if asked else slots))
    assert bool(found.why) == (most is None)
    assert decided(prepared, stack=8, resources={"gpu": 1}).most == Stacked(8, "gpu")


def test_a_long_training_is_not_stacked(prepared: Prepared, approved: Callable[..., None]) -> None:
    """10,000 steps of 32 of the 1,151 samples are 278.02 epochs; an mlp of width 4,096 has 307,210
    weights, which see 5e9 / 307,210 samples in 14.1 epochs."""
    assert prepared.sizes["train"] == 1151
    wide = {"model": {"name": "mlp", "width": 4096}, "trials": 24}
    assert decided(prepared, trials=24, batch_size=32, epochs=278).most
    assert decided(prepared, **wide, epochs=14).most
    found = []
    for keys in ({"trials": 24, "batch_size": 32, "epochs": 279}, {**wide, "epochs": 15}):
        none = decided(prepared, **keys)
        assert none.most is None
        with pytest.raises(SpecError) as error:
            decided(prepared, stack=8, **keys)
        assert error.value.path == "stack"
        found += [none.why, str(error.value)]
    sizes = {"batch_size": {"choices": [16, 32]}}
    assert decided(prepared, trials=24, epochs=200, search_space=sizes).most is None
    approved("\n".join(found))


def test_a_stack_is_short_enough_to_be_trained_again(prepared: Prepared) -> None:
    """9,610 weights that see 20 * 1,151 samples are 2.21e8, of 4e10 in all; 240 epochs in
    batches of 64 are 4,317 steps, of 80,000."""
    random = {"trials": 200, "sampler": {"name": "random"}}
    small_net = {"model": {"name": "mlp", "width": 8}}
    assert decided(prepared, slots=1, epochs=20, **random).most == Stacked(180, "cpu", 1)
    assert decided(prepared, slots=1, epochs=240, **random, **small_net).most == Stacked(
        18, "cpu", 1
    )


def recorded(study: Path) -> tuple[Any, Any]:
    plain = strict_yaml.read(study / "study.yaml")["recorded"]
    return plain.get("stack"), plain["meaning"]["stack"]


def begun(study: Any, ledger: Any, listeners: list[Any], *engine: Any) -> None:
    assert isinstance(LedgerSearch(study, ledger, listeners, Places(1)).suggest("one"), dict)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ({}, {"stack": 16}, "stack: was 8, is 16"),
        ({}, {"stack": "off"}, "stack: was 8, is 'off'"),
        ({"stack": 16}, {}, ""),
        ({"stack": "off"}, {}, ""),
        ({"stack": "off"}, {"stack": 8}, "stack: was 'off', is 8"),
    ],
)
def test_it_is_decided_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Any, then: Any, said: str
) -> None:
    """On another machine the study goes on as it began, and another number is another study:
    one trial that has begun is enough for that."""
    if said:
        monkeypatch.setattr(command_line, "trained_here", begun)
    keys = {"methods": ["focal", "brier"], "epochs": 1, "trials": 2, "sampler": {"pending": 8}}
    monkeypatch.setattr(run, "slots_here", lambda spec, cpus: 1)
    spec = write_spec(tmp_path / "small.yaml", **{**keys, "trials": 4, **first})
    here("run", spec, "--storage", tmp_path, check=None if said else 0)
    was = recorded(tmp_path / "small")
    expected: Any = first.get("stack", 8)
    slots = {} if first else {"slots": 1}
    facts = None if expected == "off" else {"trials": expected, "device": "cpu", **slots}
    assert was == (facts, expected)
    opened = open_directory(tmp_path / "small", "small")
    assert opened.stack == (None if expected == "off" else expected)
    monkeypatch.setattr(run, "slots_here", lambda spec, cpus: 64)
    monkeypatch.setattr(stack_size, "MOST_STEPS", 1)
    spec = write_spec(tmp_path / "small.yaml", **{**keys, "trials": 5, **then})
    shown = here("run", spec, "--storage", tmp_path, check=2 if said else 0)
    assert said in shown
    assert recorded(tmp_path / "small") == was


def planned(tmp_path: Path, check: int = 0, **keys: Any) -> str:
    return here("plan", write_spec(tmp_path / "small.yaml", **keys), *at(tmp_path), check=check)


def at(storage: Path) -> tuple[str, str]:
    return "--storage", str(storage)


AS_ONE = "are trained as one program, with the resources of one trial"
ALONE = "none, each trial is trained alone"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"trials": 24}, f"up to 4 trials {AS_ONE}: 4 of 1 method."),
        (
            {"methods": ["focal", "brier", "gamma_net"], "trials": 24},
            f"up to 4 trials {AS_ONE}: 4 of 1 method; alone are gamma_net (",
        ),
        ({"stack": 2}, f"up to 2 trials {AS_ONE}: 2 of 1 method."),
        ({"model": "cnn"}, f"{ALONE} (cnn has no stacked form)."),
        ({"early_stopping": {}, "epochs": 5}, f"{ALONE} (early_stopping ends trials one by one)."),
        ({"stack": "off"}, f"{ALONE} (stack: off)."),
        (
            {"trials": 2},
            f"{ALONE} (with one for each of 2 slots a stack has 2 of a method, and fewer than 4",
        ),
    ],
)
def test_plan_says_what_stacks_there_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(probe, "slots_here", lambda spec, cpus: 2)
    shown = planned(tmp_path, **keys)
    (line,) = [line for line in shown.splitlines() if line.startswith("stacks: ")]
    assert said in line


def test_plan_says_it_to_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "slots_here", lambda spec, cpus: 2)
    spec = write_spec(tmp_path / "small.yaml", trials=24, methods=["focal", "brier", "gamma_net"])
    found = here_json("plan", spec, *at(tmp_path))["stacks"]
    assert found["most"] == {"trials": 4, "device": "cpu", "slots": 2} and found["why"] == ""
    assert list(found["alone"]) == ["gamma_net"]
    spec = write_spec(tmp_path / "small.yaml", model="cnn")
    found = here_json("plan", spec, *at(tmp_path))["stacks"]
    assert found["most"] is None and found["why"] == "cnn has no stacked form"


def test_plan_refuses_what_takes_too_long(tmp_path: Path) -> None:
    shown = planned(tmp_path, check=2, stack=8, epochs=9000)
    assert shown.startswith("small.yaml: stack: ") and shown.count("\n") == 1
    assert here("run", tmp_path / "small.yaml", *at(tmp_path), check=2) == shown
    assert not (tmp_path / "small").exists()


def test_a_study_made_before_trains_each_trial_alone(tmp_path: Path) -> None:
    """Its file has neither the key nor what came of it."""
    study = made_study(tmp_path, "small", {"focal": [({"accuracy": 0.9, "ece": 0.1}, [])]})
    assert study.stack is None
    record_facts(study.directory, data_digest=prepare(study.spec.data, 0).digest)
    keys = {"methods": ["focal"], "search_space": {}, "epochs": 20, "trials": 24}
    assert f"stacks: {ALONE} (as the study began)." in planned(tmp_path, **keys)
    assert "stack: was 'off', is 8" in planned(tmp_path, check=2, stack=8, **keys)


@pytest.mark.parametrize(
    ("asked", "recorded", "expected"),
    [
        (None, None, "off"),  # as it was searched
        ("auto", None, "off"),
        ("off", None, "off"),
        ("auto", Stacked(6, "cpu"), "auto"),  # as many as its own labels and seeds
        (6, Stacked(6, "cpu"), 6),
    ],
)
def test_what_was_stacked_is_retrained_in_stacks(
    tmp_path: Path, asked: int | str | None, recorded: Stacked | None, expected: int | str
) -> None:
    trials = [({"accuracy": 0.9, "ece": 0.1}, [])] * 2
    study = made_study(tmp_path, "small", {"focal": trials}, {"optimizer.lr": RATE})
    plain = study.plain if asked is None else {**study.plain, "stack": asked}
    facts = replace(study.recorded, stack=recorded)
    write_study_file(replace(study, plain=plain, recorded=facts))
    found = results_of(open_directory(study.directory, "small"))
    assert confirming_spec(found, Asked(trials=("focal/0001",)))[0].stack == expected
