"""What is proposed, against Optuna asked by hand; and which trials are handed
out when, without Ray."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import GPSampler, TPESampler

from study.analysis.ranking import Rules
from study.engine.proposing import Proposer
from study.engine.search import LedgerSearch
from study.machines.guarded import Unfit
from study.schema.errors import SpecError, TryAgain
from study.schema.reading import spec_from_mapping
from study.store.ledger import Ledger, open_storage
from study.store.study import StudyFolder, open_directory
from study.store.trials import Listener, TrialRecord
from tests.patience import wait_until
from tests.study.made import Places, made_study
from trainables.seeding import seed_of

LR = {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}}


def spec_of(**keys: Any) -> Any:
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal", "mbls"],
        "search_space": LR,
    }
    return spec_from_mapping({**plain, "trials": 24, **keys}, "small.yaml")


def measured(params: dict[str, Any]) -> dict[str, float]:
    """Smooth functions of the parameters."""
    gamma, lr = params.get("method.gamma", 1.0), params["optimizer.lr"]
    return {"accuracy": 0.9 - abs(lr - 0.1) - 0.01 * gamma, "ece": 0.02 + 0.01 * (gamma - 2) ** 2}


def record(
    number: int, params: dict[str, Any], metrics: dict[str, float] | None = None, **words: Any
) -> TrialRecord:
    state = words.pop("state", "complete")
    return TrialRecord("focal", number, state, params, metrics or measured(params), **words)


def proposed(spec: Any, rules: Rules, count: int, fresh: bool) -> list[TrialRecord]:
    """So many trials of focal, each told before the next one. fresh: by a new process each."""
    found: list[TrialRecord] = []
    proposer = Proposer(spec, rules, [])
    for number in range(count):
        proposer = Proposer(spec, rules, found) if fresh else proposer
        params = proposer.proposal("focal", number)
        assert params is not None
        found.append(record(number, params))
        proposer.see(found[-1])
    return found


def test_defaults_come_first_then_what_optuna_proposes() -> None:
    spec = spec_of()
    space = spec.variant("focal").space
    found = proposed(spec, Rules(spec.objectives), 14, fresh=False)
    assert found == proposed(spec, Rules(spec.objectives), 14, fresh=True)
    defaults = [one.params for one in found[: len(space.defaults)]]
    assert len(defaults) == 3
    assert [
        {path: params[path] for path in of}
        for params, of in zip(defaults, space.defaults, strict=True)
    ] == (space.defaults)
    study = optuna.create_study(directions=["maximize", "minimize"])
    for one in found:
        if one.number >= len(defaults):
            seed = seed_of(0, "sampler", "focal", one.number) % 2**32
            study.sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=4)
            trial = study.ask(space.distributions)
            assert trial.params == one.params
            # It was asked to see what it proposes.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        values = [one.metrics["accuracy"], one.metrics["ece"]]
        study.add_trial(
            optuna.trial.create_trial(
                params=one.params, distributions=space.distributions, values=values
            )
        )
    other = Proposer(spec_of(sampler={"seed": 1}), Rules(spec.objectives), found).proposal(
        "focal", 14
    )
    assert other != Proposer(spec, Rules(spec.objectives), found).proposal("focal", 14)


CONDITIONAL = {
    "optimizer.name": {"choices": ["sgd", "adam"]},
    **LR,
    "optimizer.momentum": {"low": 0.5, "high": 0.99},
    "method.gamma": {"low": 0.0, "high": 5.0, "when": {"optimizer.name": "adam"}},
}


def test_conditional_ranges_are_asked_as_optuna_asks_by_hand() -> None:
    """Define-by-run with its TPE of groups, of which all trials are seen; start-up counts the three
    paths that a trial has."""
    spec = spec_of(search_space=CONDITIONAL)
    found = proposed(spec, Rules(spec.objectives), 30, fresh=True)
    assert found == proposed(spec, Rules(spec.objectives), 30, fresh=False)
    assert found[0].params == {
        "optimizer.lr": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.name": "sgd",
    }
    study = optuna.create_study(directions=["maximize", "minimize"])
    for one in found:
        if one.number:
            seed = seed_of(0, "sampler", "focal", one.number) % 2**32
            with pytest.warns(ExperimentalWarning):
                study.sampler = TPESampler(
                    seed=seed, multivariate=True, group=True, n_startup_trials=6
                )
            trial = study.ask()
            name = trial.suggest_categorical("optimizer.name", ["sgd", "adam"])
            trial.suggest_float("optimizer.lr", 0.01, 0.5, log=True)
            if name == "adam":
                trial.suggest_float("method.gamma", 0.0, 5.0)
            else:
                trial.suggest_float("optimizer.momentum", 0.5, 0.99)
            assert trial.params == one.params
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        ranges = spec.variant("focal").space.distributions
        study.add_trial(
            optuna.trial.create_trial(
                params=one.params,
                distributions={path: ranges[path] for path in one.params},
                values=[one.metrics["accuracy"], one.metrics["ece"]],
            )
        )
    names = {one.params["optimizer.name"] for one in found}
    assert names == {"sgd", "adam"}
    # What a user tries first decides what else is asked.
    own = spec_of(search_space=CONDITIONAL, try_first=[{"optimizer.name": "adam"}])
    first = proposed(own, Rules(own.objectives), 1, fresh=True)[0].params
    assert first["optimizer.name"] == "adam" and "optimizer.momentum" not in first
    assert first["method.gamma"] == 3.0


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_constraints_and_guesses_reach_the_sampler(name: str) -> None:
    """As constraints of Optuna: relative to the best trial now, and of a trial
    that guesses by how much."""
    spec = spec_of(constraints=["accuracy >= best - 0.05"], sampler={"name": name})
    rules, space = (
        Rules(spec.objectives, spec.constraints, majority=0.5, samples=100),
        spec.variant("focal").space,
    )
    assert rules.least_accuracy == 0.59  # the 95th percentile of Binomial(100, 0.5) is 58
    accuracies = [0.80, 0.86, 0.50, 0.84, 0.88, 0.87]
    params = [
        {"method.gamma": 0.5 * number, "optimizer.lr": 0.02 * (1 + number)} for number in range(6)
    ]
    eces = [0.05, 0.04, 0.01, 0.06, 0.03, 0.05]
    found = [
        record(number, params[number], {"accuracy": accuracies[number], "ece": eces[number]})
        for number in range(6)
    ]
    proposer = Proposer(spec, rules, [])
    for one in found:
        proposer.see(one)
        if name == "tpe" or one.number == 3:  # GP takes a second
            proposer.proposal("focal", 3)  # the best so far is not the best later
    proposer.see(record(6, {"method.gamma": 1.0, "optimizer.lr": 0.3}, {}, state="failed"))
    seed = seed_of(0, "sampler", "focal", 7) % 2**32
    by_hand: dict[str, Any] = {"tpe": TPESampler, "gp": GPSampler}
    words = {"multivariate": True} if name == "tpe" else {}
    study = optuna.create_study(
        directions=["maximize", "minimize"],
        sampler=by_hand[name](seed=seed, n_startup_trials=4, **words),
    )
    for one in found:
        constraints = {"a": 0.83 - one.metrics["accuracy"], "g": 0.585 - one.metrics["accuracy"]}
        study.add_trial(
            optuna.trial.create_trial(
                params=one.params,
                distributions=space.distributions,
                values=[one.metrics["accuracy"], one.metrics["ece"]],
                constraints={
                    key: min(by, 0.0) if by <= 1e-9 else by for key, by in constraints.items()
                },
            )
        )
    expected = study.ask(space.distributions).params
    got = waited(lambda: proposer.proposal("focal", 7))
    assert got == pytest.approx(expected, rel=1e-6)


def waited(proposal: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def proposed() -> bool:
        found.append(proposal())
        return found[-1] is not None

    wait_until(proposed, 60, "a proposal")
    return found[-1]


def test_gp_works_in_the_background() -> None:
    spec = spec_of(sampler={"name": "gp"})
    # Defaults and start-up trials are there at once.
    found = proposed(spec, Rules(spec.objectives), 4, fresh=False)
    proposer = Proposer(spec, Rules(spec.objectives), found)
    assert proposer.learns("focal", 4) and proposer.proposal("focal", 4) is None
    first = waited(lambda: proposer.proposal("focal", 4))
    assert set(first) == set(spec.variant("focal").space.distributions)
    again = Proposer(spec, Rules(spec.objectives), found)
    assert waited(lambda: again.proposal("focal", 4)) == first


class Heard(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def said(self, line: str) -> None:
        self.lines.append(line)


class Searched:
    """A search whose trials end when the test says so."""

    def __init__(self, root: Path, slots: int, trials: int = 24, **keys: Any) -> None:
        directory = made_study(root, "small", {"focal": [], "mbls": []}, planned=trials).directory
        recorded = replace(open_directory(directory, "small").recorded, majority=0.1)
        study = StudyFolder.of(directory, spec_of(trials=trials, **keys), recorded)
        self.heard, self.ledger = Heard(), Ledger(open_storage(directory, None), "small", "small")
        for label in study.labels:
            self.ledger.open(label, study.objectives)
        self.study, self.slots, self.ids = study, slots, 0
        self.search = LedgerSearch(study, self.ledger, [self.heard], Places(slots))
        self.live: dict[str, TrialRecord] = {}

    def fill(self, most: int) -> list[str]:
        """Start trials until so many are live, or none is to be had; their names."""
        begun = []
        while len(self.live) < most:
            given = self.search.suggest(f"t{self.ids}")
            if not isinstance(given, dict):
                break
            name = json.loads(given["assignment"])["trial"]
            label, number = name.split("/")
            self.live[f"t{self.ids}"] = self.ledger.record(label, int(number))
            begun.append(name)
            self.ids += 1
        assert self.search.fault is None
        return begun

    def end(self, metrics: dict[str, float] | None = None) -> None:
        """The trial that began first ends."""
        trial_id = next(iter(self.live))
        one = self.live.pop(trial_id)
        outcome = {"state": "complete", "metrics": metrics or measured(one.params)}
        told = {one.name: {"rows": [], "outcome": outcome}}
        self.search.on_trial_complete(trial_id, {"reports": json.dumps(told)})
        assert self.search.fault is None


def test_a_method_waits_for_results_and_others_fill_the_slots(tmp_path: Path) -> None:
    """Of 24 trials a method has at most 4 proposals without a result: defaults and
    start-up trials do not count."""
    searched = Searched(tmp_path, slots=24)
    begun = searched.fill(24)
    counts = {label: sum(name.startswith(label) for name in begun) for label in ("focal", "mbls")}
    # Twice the parameters, gamma and lr; margin, weight and lr.
    assert counts == {"focal": 4 + 4, "mbls": 6 + 4}
    assert searched.heard.lines == [
        "6 of 24 slots are idle: each method waits for the results of 4 proposed trials"
        " (sampler.pending)."
    ]
    while searched.live:
        searched.end()
        searched.fill(24)
        assert all(len(pending) <= 4 for pending in searched.search.queue._pending.values())
    assert {len(searched.ledger.records(label)) for label in searched.study.labels} == {24}
    assert len(searched.heard.lines) == 1


@pytest.mark.parametrize("sampler", [{"pending": 24}, {"name": "random"}])
def test_slots_can_all_be_used(tmp_path: Path, sampler: dict[str, Any]) -> None:
    searched = Searched(tmp_path, slots=24, sampler=sampler)
    assert len(searched.fill(24)) == 24 and not searched.heard.lines


def test_interrupted_trials_go_on_in_the_order_they_were_asked(tmp_path: Path) -> None:
    searched = Searched(tmp_path, slots=6)
    asked = searched.fill(6)
    assert {name.split("/")[0] for name in asked} == {"focal", "mbls"}
    again = LedgerSearch(searched.study, searched.ledger, [searched.heard], Places(6))
    given = [json.loads(again.suggest(f"a{index}")["assignment"]) for index in range(6)]
    assert [one["trial"] for one in given] == asked and {one["attempt"] for one in given} == {2}
    assert not any(again.queue._pending.values())


def test_a_trial_whose_node_is_not_fit_goes_on_elsewhere_and_has_not_died(tmp_path: Path) -> None:
    """As Ray tells the end of its process: with a traceback, in several lines."""
    searched = Searched(tmp_path, slots=2)
    first, second = searched.fill(2)
    because = "does not see /srv/small/run.token (No such file). Mount the storage there."
    places = searched.search._nodes
    assert isinstance(places, Places)
    for trial_id in list(searched.live):
        told = json.dumps({"node": "7d39", "because": because})
        searched.search.attempt_died(
            trial_id,
            f"ray.exceptions.RayTaskError(NodeUnfit): NodeUnfit: {{}}\n  File x, line 1, in step\n"
            f"study.machines.guarded.NodeUnfit: {told}\n",
        )
        del searched.live[trial_id]
    assert searched.search.fault is None and places.unfit == [Unfit("7d39", because)] * 2
    records = [record for record in searched.ledger.trials() if record.state == "running"]
    assert {record.name for record in records} == {first, second}
    assert all(record.deaths == {} for record in records)
    assert searched.fill(2) == [first, second]
    searched.end()


def test_what_no_node_can_do_ends_the_run_as_a_mistake(tmp_path: Path) -> None:
    """Not in ten minutes, with a code that a batch script takes for another try."""
    searched = Searched(tmp_path, slots=1)
    searched.fill(1)
    told = json.dumps({"node": "7d39", "because": "cannot use /x.", "nowhere": True})
    searched.search.attempt_died(next(iter(searched.live)), f"guarded.NodeUnfit: {told}\n")
    fault = searched.search.fault
    assert isinstance(fault, SpecError) and not isinstance(fault, TryAgain)
    assert "no node can train it: it cannot use /x." in str(fault)
    assert searched.search._nodes.unfit == []


def test_a_constraint_that_no_default_meets_is_named_once(tmp_path: Path) -> None:
    searched = Searched(
        tmp_path, slots=4, trials=8, constraints=["ece <= 0.001", "accuracy >= 0.5"]
    )
    while searched.fill(4) or searched.live:
        searched.end({"accuracy": 0.8, "ece": 0.02})
    assert searched.heard.lines == [
        "constraints: no default meets ece <= 0.001; until a trial meets every constraint, there is"
        " no front."
    ]


def test_a_search_waits_for_what_is_worked_out(tmp_path: Path) -> None:
    """With no trial live, and until the last: else the run would end early."""
    searched = Searched(tmp_path, slots=1, trials=6, sampler={"name": "gp"})
    while sum(len(searched.ledger.records(label)) for label in searched.study.labels) < 12:
        given = searched.search.suggest("next")
        assert given != "FINISHED"
        if given is None:
            time.sleep(0.01)
            continue
        label, number = json.loads(given["assignment"])["trial"].split("/")
        searched.live["next"] = searched.ledger.record(label, int(number))
        searched.end()
    assert searched.search.suggest("after") == "FINISHED"
