"""Where a range is searched: as the study says, and where a setting has an effect."""

import json
from typing import Any

import pytest

from study.schema.compatibility import recorded_spaces, refuse_changes
from study.schema.errors import SpecError
from study.schema.explain import explain, kept_line, searched_text
from study.schema.reading import parse_mapping
from study.schema.spec import StudySpec
from tests.study.schema.specs import SMALL, small

RULES = {"optimizer.name": {"choices": ["sgd", "adam"]}}
MOMENTUM = {"low": 0.5, "high": 0.99}
SEARCHED = {**RULES, "optimizer.momentum": MOMENTUM}
SGD = {"optimizer.name": ("sgd",)}


def whens(spec: StudySpec, label: str = "cross_entropy") -> dict[str, Any]:
    return dict(spec.variant(label).space.whens)


@pytest.mark.parametrize(
    ("space", "path", "when"),
    [
        (SEARCHED, "optimizer.momentum", SGD),
        (dict(reversed(SEARCHED.items())), "optimizer.momentum", SGD),
        ({**RULES, "optimizer.nesterov": {"choices": [True, False]}}, "optimizer.nesterov", SGD),
        (
            {**RULES, "optimizer.bias_lr_factor": {"low": 1, "high": 64}},
            "optimizer.bias_lr_factor",
            SGD,
        ),
        (
            {
                "optimizer.schedule": {"choices": ["cosine", "steps"]},
                "optimizer.factor": {"low": 0.1, "high": 0.5},
            },
            "optimizer.factor",
            {"optimizer.schedule": ("steps",)},
        ),
        ({**RULES, "optimizer.warmup": {"low": 0, "high": 0.1}}, "optimizer.warmup", None),
        (
            {**RULES, "optimizer.weight_decay": {"low": 0, "high": 0.1}},
            "optimizer.weight_decay",
            None,
        ),
        ({"optimizer.momentum": MOMENTUM}, "optimizer.momentum", None),  # of SGD, as it is fixed
        ({**RULES, "optimizer.momentum": 0.8}, "optimizer.momentum", None),
    ],
)
def test_a_new_study_searches_what_has_an_effect(space: Any, path: str, when: Any) -> None:
    assert whens(small(search_space=space)).get(path) == when


def test_a_method_has_its_own_where_it_is_nested_too() -> None:
    space = {
        "method.base.schedule": {"choices": ["flsd_53", "lambert_w"]},
        "method.base.gamma_max": {"low": 5, "high": 20},
        "method.weight": {"low": 0.1, "high": 1, "when": {"method.base.schedule": "flsd_53"}},
    }
    nested = {"label": "nested", "name": "sece", "base": "focal_sample_dependent"}
    found = small(methods=["mdca", nested], search_space=space)
    assert whens(found, "nested") == {
        "method.base.gamma_max": {"method.base.schedule": ("lambert_w",)},
        "method.weight": {"method.base.schedule": ("flsd_53",)},
    }
    # mdca has no such schedule, so the range is not of it: its own stands.
    assert whens(found, "mdca") == {}
    assert found.variant("mdca").space.distributions["method.weight"].high == 30.0  # type: ignore[attr-defined]


def test_where_the_choice_is_fixed_the_range_is_searched_always_or_never() -> None:
    space = {**RULES, "optimizer.momentum": {**MOMENTUM, "when": {"optimizer.name": "sgd"}}}
    methods = [
        "focal",
        {"label": "by_sgd", "name": "focal", "values": {"optimizer.name": "sgd"}},
        {"label": "by_adam", "name": "focal", "values": {"optimizer.name": "adam"}},
    ]
    for given in (space, SEARCHED):
        spec = small(methods=methods, search_space=given)
        assert whens(spec, "focal") == {"optimizer.momentum": SGD}
        assert [
            (list(spec.variant(label).space.distributions), whens(spec, label))
            for label in ("by_sgd", "by_adam")
        ] == [(["method.gamma", "optimizer.momentum"], {}), (["method.gamma"], {})]


def test_settings_that_are_tried_first_have_what_is_searched_there() -> None:
    space = small(search_space=SEARCHED).variant("focal").space
    assert space.first[0] == {
        "method.gamma": 3.0,
        "optimizer.momentum": 0.9,
        "optimizer.name": "sgd",
    }
    adam = small(search_space=SEARCHED, optimizer={"name": "adam"}).variant("focal").space
    assert adam.first[0] == {"method.gamma": 3.0, "optimizer.name": "adam"}
    tried = [{"optimizer.name": "adam"}, {"optimizer.momentum": 0.6}]
    own = small(search_space=SEARCHED, try_first=tried).variant("cross_entropy").space.own
    assert own == [
        {"optimizer.name": "adam"},
        {"optimizer.momentum": 0.6, "optimizer.name": "sgd"},
    ]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"search_space": {"optimizer.momentum": {**MOMENTUM, "when": {"optimizer.name": "sgd"}}}},
        "search_space.optimizer.momentum.when.optimizer.name",
        "is not searched. Give optimizer.name choices in `search_space`, or remove it here.",
    ),
    (
        {
            "search_space": {
                "optimizer.name": "sgd",
                "optimizer.momentum": {**MOMENTUM, "when": {"optimizer.name": "sgd"}},
            }
        },
        "search_space.optimizer.momentum.when.optimizer.name",
        "is not searched. ",
    ),
    (
        {"search_space": {**RULES, "optimizer.lr": {"low": 0.1, "high": 1, "when": {"epochs": 3}}}},
        "search_space.optimizer.lr.when.epochs",
        "cannot be searched",
    ),
    (
        {
            "search_space": {
                **RULES,
                "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.nme": 3}},
            }
        },
        "search_space.optimizer.lr.when.optimizer.nme",
        "Did you mean 'name'?",
    ),
    (
        {
            "search_space": {
                "optimizer.momentum": {**MOMENTUM, "when": {"optimizer.name": "sgd"}},
                **RULES,
            }
        },
        "search_space.optimizer.momentum.when",
        "optimizer.name is written below it",
    ),
    (
        {
            "search_space": {
                "optimizer.momentum": {"choices": [0.5, 0.9]},
                "optimizer.name": {**RULES["optimizer.name"], "when": {"optimizer.momentum": 0.9}},
            }
        },
        "search_space.optimizer.momentum.when",
        "goes in a circle: optimizer.momentum -> optimizer.name -> optimizer.momentum",
    ),
    (
        {
            "search_space": {
                **RULES,
                "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.name": "sdg"}},
            }
        },
        "search_space.optimizer.lr.when.optimizer.name",
        "Did you mean 'sgd'?",
    ),
    (
        {
            "search_space": {
                **RULES,
                "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.name": "adamw"}},
            }
        },
        "search_space.optimizer.lr.when.optimizer.name",
        "'adamw' is none of its choices",
    ),
    (
        {
            "search_space": {
                "optimizer.clip": {"low": 0.1, "high": 1},
                "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.clip": 0.5}},
            }
        },
        "search_space.optimizer.lr.when.optimizer.clip",
        "is searched over the range {low: 0.1, high: 1.0}",
    ),
    (
        {"search_space": SEARCHED, "sampler": {"name": "gp"}},
        "sampler.name",
        "Write tpe, or fix optimizer.name or optimizer.momentum.",
    ),
    (
        {"search_space": {"optimizer.momentum": MOMENTUM}, "optimizer": {"name": "adam"}},
        "search_space.optimizer.momentum",
        "has no effect in cross_entropy (optimizer.name: adam). Remove it.",
    ),
    (
        {
            "search_space": SEARCHED,
            "try_first": [{"optimizer.name": "adam", "optimizer.momentum": 0.6}],
        },
        "try_first[0].optimizer.momentum",
        "is searched only where optimizer.name is sgd",
    ),
]


@pytest.mark.parametrize(("keys", "where", "found"), REFUSED)
def test_refused(keys: dict[str, Any], where: str, found: str) -> None:
    with pytest.raises(SpecError) as caught:
        small(**keys)
    assert str(caught.value).startswith(f"study.yaml: {where}: ")
    assert found in str(caught.value)


def begun(spec: StudySpec, meaning: dict[str, Any], **keys: Any) -> StudySpec:
    """The study with `keys`, as a run reads it that goes on with what `spec` recorded."""
    plain = json.loads(json.dumps(spec.to_mapping()))
    parsed = parse_mapping({**SMALL, **keys}, "study.yaml")
    return parsed.spec(recorded_spaces(plain, json.loads(json.dumps(meaning))))


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_study_that_began_before_keeps_its_ranges(sampler: str) -> None:
    keys: dict[str, Any] = {"search_space": SEARCHED}
    today = small(**keys)
    meaning = json.loads(json.dumps(today.meaning()))
    for method in meaning["methods"].values():
        del method["space"]["optimizer.momentum"]["when"]  # as the version before wrote it
    found = begun(today, meaning, sampler={"name": sampler}, **keys)
    assert whens(found) == {}
    assert list(found.variant("focal").space.distributions) == [
        "method.gamma",
        "optimizer.momentum",
        "optimizer.name",
    ]
    refuse_changes(
        meaning | {"sampler": found.meaning()["sampler"]}, found, "study.yaml", "has 3 trials"
    )
    line = kept_line(found)
    assert line is not None and "focal: optimizer.momentum" in line
    fixed = {"optimizer": {"name": "adam"}, "search_space": {"optimizer.momentum": MOMENTUM}}
    before = small(search_space={"optimizer.momentum": MOMENTUM})
    kept = begun(before, before.meaning(), **fixed)
    assert list(kept.variant("cross_entropy").space.distributions) == ["optimizer.momentum"]


def test_a_study_keeps_the_when_that_it_recorded() -> None:
    own = {**SEARCHED, "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.name": "sgd"}}}
    spec = small(search_space=own)
    meaning = json.loads(json.dumps(spec.meaning()))
    momentum = {**MOMENTUM, "when": {"optimizer.name": "sgd"}}
    assert meaning["methods"]["focal"]["space"]["optimizer.momentum"] == momentum
    again = begun(spec, meaning, search_space=own)
    refuse_changes(meaning, again, "study.yaml", "has 3 trials")
    assert again == spec and kept_line(again) is None
    for changed in (
        {**own, "optimizer.lr": {"low": 0.1, "high": 1}},
        {**own, "optimizer.lr": {"low": 0.1, "high": 1, "when": {"optimizer.name": "adam"}}},
    ):
        with pytest.raises(SpecError, match="changes what a trial means"):
            refuse_changes(meaning, begun(spec, meaning, search_space=changed), "s.yaml", "has 3")


def test_plan_says_it() -> None:
    spec = small(search_space=SEARCHED)
    assert searched_text(spec.variant("focal").space) == (
        "method.gamma, optimizer.momentum (where optimizer.name is sgd), optimizer.name"
    )
    rows = {row.key: row.value for row in explain(spec)}
    assert rows["methods.focal: optimizer.momentum"] == (
        "{low: 0.5, high: 0.99, when: {optimizer.name: sgd}}"
    )
