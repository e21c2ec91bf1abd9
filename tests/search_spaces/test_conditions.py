"""Conditional ranges, against Optuna's own define-by-run."""

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search_spaces import strict_yaml
from search_spaces.conditions import Whens, in_order, in_words, most_searched, searched_in
from search_spaces.space import Conditional, check_order, parse_entry, to_plain
from trainables.plain import Value
from trainables.problems import FieldError

UNIT = FloatDistribution(0.0, 1.0)
RANGES: dict[str, BaseDistribution] = {
    "rule": CategoricalDistribution(["sgd", "adam", "adagrad"]),
    "momentum": UNIT,
    "kind": CategoricalDistribution([True, None]),
    "beta": UNIT,
    "lr": UNIT,
}
WHENS: Whens = {
    "momentum": {"rule": ("sgd",)},
    "kind": {"rule": ("sgd", "adam")},
    "beta": {"kind": (True,), "rule": ("adam",)},
}


def by_hand(trial: optuna.Trial) -> float:
    """The same space in Optuna's words."""
    rule = trial.suggest_categorical("rule", ["sgd", "adam", "adagrad"])
    if rule == "sgd":
        trial.suggest_float("momentum", 0.0, 1.0)
    kind = None
    if rule in ("sgd", "adam"):
        kind = trial.suggest_categorical("kind", [True, None])
    if rule == "adam" and kind is True:
        trial.suggest_float("beta", 0.0, 1.0)
    return trial.suggest_float("lr", 0.0, 1.0)


def test_a_trial_has_what_define_by_run_gives_it() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(by_hand, 60)
    widths = set()
    for trial in study.trials:
        whole: dict[str, Value] = {"momentum": 0.5, "kind": True, "beta": 0.5, **trial.params}
        if trial.params["rule"] != "adagrad":
            assert searched_in(whole, RANGES, WHENS) == list(trial.params)
        assert searched_in(trial.params, RANGES, WHENS) == list(trial.params)
        widths.add(len(trial.params))
    assert most_searched(RANGES, WHENS) == max(widths) == 4
    assert most_searched(RANGES, {}) == 5 and most_searched({}, {}) == 0


def test_a_path_comes_after_those_of_its_when() -> None:
    assert in_order(["b", "a", "c"], {}) == ["a", "b", "c"]
    order = in_order(RANGES, WHENS)
    assert order.index("beta") > order.index("kind") > order.index("rule")
    with pytest.raises(FieldError, match=r"^search_space.\w.when: goes in a circle: "):
        in_order(["a", "b"], {"a": {"b": (1,)}, "b": {"a": (1,)}})
    assert in_words({"rule": ("sgd", "adam"), "kind": (None,)}) == (
        "rule is sgd or adam and kind is None"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{low: 0.5, high: 0.99, when: {optimizer.name: sgd}}",
        "{low: 1, high: 9, int: true, when: {optimizer.name: [sgd, adam], method.hits: true}}",
        "{choices: [a, b], when: {optimizer.clip: null}}",
    ],
)
def test_grammar(text: str) -> None:
    plain = strict_yaml.parse(text)
    parsed = parse_entry("path", plain)
    assert isinstance(parsed, Conditional)
    assert to_plain(parsed) == plain
    of = {key: value for key, value in plain.items() if key != "when"}
    assert parsed.of == parse_entry("path", of)


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("{low: 0, high: 1, when: sgd}", "p.when", "must map paths to values, got 'sgd'"),
        ("{low: 0, high: 1, when: {}}", "p.when", "must map paths to values, got {}"),
        ("{low: 0, high: 1, when: {a: []}}", "p.when.a", "is empty"),
        ("{low: 0, high: 1, when: {a: {b: 1}}}", "p.when.a", "a value must be a finite number"),
        ("{low: 2, high: 1, when: {a: 1}}", "p", "low 2 is above high 1"),
        ("{when: {a: 1}}", "p", "`low` is missing"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, where: str, found: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_entry("p", strict_yaml.parse(text))
    assert caught.value.path == where and found in caught.value.found


def test_a_when_names_what_is_written_above_it() -> None:
    entries = {
        "a": parse_entry("a", {"low": 0, "high": 1, "when": {"b": 1}}),
        "b": parse_entry("b", {"choices": [1, 2]}),
    }
    with pytest.raises(FieldError, match=r"^space.a.when: b is written below it. Write b above a."):
        check_order(entries, "space")
    check_order(dict(reversed(entries.items())), "space")
    own = {"a": parse_entry("a", {"low": 0, "high": 1, "when": {"a": 1}})}
    with pytest.raises(FieldError, match=r"^space.a.when: is of the path itself"):
        check_order(own, "space")
