"""`try_first:`: what each method then tries, written out by hand, and what is refused."""

from typing import Any

import pytest

from study.schema.errors import SpecError
from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec

LR = {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}}
# focal's published settings are gamma 3, 2, 1; the study's own learning rate is .1.
PUBLISHED = [{"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)]


def spec_of(**keys: Any) -> StudySpec:
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["cross_entropy", "focal"],
        "search_space": LR,
    }
    return spec_from_mapping({**plain, **keys}, "small.yaml")


def first_of(label: str, **keys: Any) -> list[Any]:
    return spec_of(**keys).variant(label).space.first


def test_own_settings_come_before_the_published_ones() -> None:
    tries = [{"method.gamma": 2.5, "optimizer.lr": 0.05}]
    assert first_of("focal", try_first=tries) == [*tries, *PUBLISHED]
    # cross-entropy has no gamma.
    assert first_of("cross_entropy", try_first=tries) == [{"optimizer.lr": 0.1}]
    assert first_of("focal", try_first=tries[0]) == [*tries, *PUBLISHED]  # a lone one
    assert first_of("focal") == PUBLISHED


def test_a_methods_own_come_before_the_studys() -> None:
    own = {"method.gamma": 4.0, "optimizer.lr": 0.2}
    shared = {"method.gamma": 2.5, "optimizer.lr": 0.05}
    methods = ["cross_entropy", {"name": "focal", "try_first": [own]}]
    found = first_of("focal", methods=methods, try_first=[shared])
    assert found == [own, shared, *PUBLISHED]


def test_what_a_setting_leaves_out_is_the_first_published_defaults() -> None:
    """gamma 3 of the file, and the study's own learning rate; it fits every method."""
    found = [{"method.gamma": 3.0, "optimizer.lr": 0.3}, *PUBLISHED]
    assert first_of("focal", try_first=[{"optimizer.lr": 0.3}]) == found
    ce = [{"optimizer.lr": 0.3}, {"optimizer.lr": 0.1}]
    assert first_of("cross_entropy", try_first=[{"optimizer.lr": 0.3}]) == ce
    # Where that lies outside the ranges, the sampler's.
    high = {"optimizer.lr": {"low": 0.2, "high": 0.5}, "method.gamma": {"low": 4.0, "high": 5.0}}
    found = first_of("focal", try_first=[{"method.gamma": 4.5}], search_space=high)
    assert found == [{"method.gamma": 4.5}]


def test_each_is_tried_once() -> None:
    """gamma 2 is a published setting too."""
    tries = [{"method.gamma": 2}, {"method.gamma": 2.0, "optimizer.lr": 0.1}]
    assert first_of("focal", try_first=tries) == [PUBLISHED[1], PUBLISHED[0], PUBLISHED[2]]


def test_it_is_written_back_and_changes_no_meaning() -> None:
    methods = ["cross_entropy", {"name": "focal", "try_first": [{"method.gamma": 4.0}]}]
    tries = [{"optimizer.lr": 0.3}, {"method.gamma": 2.5}]
    spec = spec_of(methods=methods, try_first=tries)
    assert spec.to_mapping()["try_first"] == tries
    assert spec_from_mapping(spec.to_mapping(), "study.yaml") == spec
    meaning = spec.meaning()["methods"]
    assert isinstance(meaning, dict)
    assert meaning["focal"]["published"] == PUBLISHED
    plain = spec_of().meaning()["methods"]
    assert isinstance(plain, dict) and "own" not in plain["focal"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"try_first": [{"method.gama": 2}]}, "try_first[0].method.gama: Focal has no 'gama'. Did"),
        (
            {"try_first": [{"method.gamma": 2}, {"method.gamma": 7}]},
            "try_first[1].method.gamma: 7 is outside {low: 0.0, high: 5.0} of focal. Write a value",
        ),
        (
            {"try_first": [{"optimizer.momentum": 0.5}]},
            "try_first[0].optimizer.momentum: is not searched in cross_entropy, where it is 0.9.",
        ),
        (
            {"methods": [{"name": "focal", "try_first": [{"optimizer.momentum": 0.5}]}]},
            "methods[0].try_first[0].optimizer.momentum: is not searched in focal, where it is 0.9",
        ),
        (
            {"methods": [{"name": "focal", "gamma": 2.0, "try_first": [{"method.gamma": 3}]}]},
            "methods[0].try_first[0].method.gamma: is not searched in focal, where it is 2.0.",
        ),
        ({"try_first": [{"method.gamma": "two"}]}, "try_first[0].method.gamma: must be a number"),
        (
            {"try_first": [{"method.gamma": {"low": 1, "high": 2}}]},
            "try_first[0].method.gamma: must be a plain value. Write ranges under `search_space`.",
        ),
        ({"try_first": "focal"}, "try_first: must be a list of settings, got 'focal'. Write [{"),
        ({"try_first": [{}]}, "try_first[0]: must map paths to values, got {}. Write [{"),
        (
            {"try_first": [{"method.gamma": 2}, {"from": "other"}]},
            "try_first[1].from: the front of another study is not taken, got 'other'. Write its"
            " settings: the `params` that `calstudy pareto STUDY --json` prints.",
        ),
    ],
)
def test_what_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(**keys)
    assert str(refused.value).startswith(f"small.yaml: {said}")
