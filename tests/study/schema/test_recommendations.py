"""What search_spaces/ recommends, who tried it, and what a study that has begun keeps of it."""

import copy
import json
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from study.engine.candidates import _entry
from study.schema.compatibility import completed_meaning, recorded_spaces, refuse_changes
from study.schema.errors import SpecError
from study.schema.explain import explain, kept_line
from study.schema.reading import parse_mapping, spec_from_mapping
from study.schema.recommendations import inert_paths, standing, standing_text
from study.schema.spec import StudySpec
from tests.study.schema.specs import RATE, SMALL, small
from trainables.method import Method
from trainables.methods.brier import Brier
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.dece import Dece
from trainables.methods.focal import Focal
from trainables.methods.focal_sample_dependent import FocalSampleDependent
from trainables.methods.gamma_net import GammaNet
from trainables.methods.mbls import Mbls
from trainables.methods.mixup import Mixup
from trainables.methods.mmce import Mmce
from trainables.methods.sece import Sece

DECE = {"label": "by_dece", "name": "gamma_net", "outer": "dece"}
WEIGHT = {"low": 0.02, "high": 2.0, "log": True}  # not what search_spaces/mbls.yaml has


# Whose settings


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (Focal(gamma=3.0), "published default (Mukhoti et al. 2020)"),
        (Focal(gamma=2.5), "the study's own settings"),
        (CrossEntropy(), "the study's own settings"),
        (Brier(), "published default (Mukhoti et al. 2020)"),
        (Dece(weight=0.5), "transferred default (Bohdal et al. 2023)"),  # of their outer loss
        (Sece(bandwidth=0.1, weight=0.5), "our default"),  # the paper states neither
        # Those who publish 2.0 divide the means twice.
        (
            Mmce(weight=2.0, normalization="released_code"),
            "published default (Mukhoti et al. 2020)",
        ),
        (Mmce(weight=2.0, normalization="paper"), "our default"),
        (Mmce(weight=4.0, normalization="paper"), "the study's own settings"),
        # Published with another value beside it, or with another base: transferred.
        (
            Mmce(weight=2.0, normalization="released_code", kernel_width=0.2),
            "transferred default (Mukhoti et al. 2020)",
        ),
        (Mbls(margin=10.0, weight=0.1), "published default (Liu et al. 2022)"),
        (Mixup(alpha=0.3), "published default (Tata et al. 2022)"),
        (
            Mixup(alpha=0.3, base=Focal(gamma=3.0)),
            "transferred default (Tata et al. 2022; Mukhoti et al. 2020)",
        ),
        (Mixup(alpha=0.3, base=Focal(gamma=2.5)), "the study's own settings"),
        (Sece(bandwidth=0.1, weight=0.5, base=Focal(gamma=3.0)), "our default"),
        # Its bandwidth has no effect.
        (GammaNet(outer="dece", tau=0.01, bandwidth=0.2), "our default"),
    ],
)
def test_whose_settings_they_are(method: Method, text: str) -> None:
    assert standing_text(standing(method)) == text


def test_explain_says_whose_settings_are_tried_first() -> None:
    spec = small(methods=["focal", {"name": "mbls", "margin": 3.0}], search_space=RATE)
    rows = [row for row in explain(spec) if row.key.endswith("tried first")]
    mukhoti = "published default (Mukhoti et al. 2020); the rest as in the study"
    assert [row.note for row in rows] == [mukhoti, mukhoti, mukhoti, "the study's own settings"]
    # A value that is drawn is nobody's.
    spec = small(methods=["mbls"], search_space={"method.weight": {"low": 0.2, "high": 0.3}})
    assert {row.note for row in explain(spec) if row.key.endswith("tried first")} <= {
        "the study's own settings"
    }


# Ranges without effect


def test_a_range_without_effect_leaves_the_space() -> None:
    spec = small(methods=["gamma_net", DECE, {"label": "l2", "name": "meta_l2", "outer": "dece"}])
    searched = {variant.label: list(variant.space.distributions) for variant in spec.variants}
    assert searched == {
        "gamma_net": ["method.bandwidth", "method.meta_lr", "method.tau"],
        "by_dece": ["method.meta_lr", "method.tau"],
        "l2": ["method.meta_lr"],
    }
    assert spec.variant("l2").space.defaults == [{"method.meta_lr": 0.001}]
    assert spec_from_mapping(spec.to_mapping(), "study.yaml") == spec


def test_it_stays_where_the_setting_that_decides_is_searched() -> None:
    spec = small(
        methods=["gamma_net"], search_space={"method.outer": {"choices": ["sece", "dece"]}}
    )
    assert "method.bandwidth" in spec.variant("gamma_net").space.distributions
    inert = dict.fromkeys(["method.bandwidth", "method.kernel"], "outer: dece")
    assert inert_paths(GammaNet(outer="dece"), {}) == inert
    nested = Mixup(base=FocalSampleDependent(schedule="flsd_53"))
    assert inert_paths(nested, {}) == {"method.base.gamma_max": "schedule: flsd_53"}


def test_a_range_of_the_study_must_have_an_effect_in_one_method() -> None:
    width = {"method.bandwidth": {"low": 0.05, "high": 0.2}}
    spec = small(methods=[DECE, "sece"], search_space=width)
    assert spec.variant("sece").space.distributions["method.bandwidth"] == FloatDistribution(
        0.05, 0.2
    )
    assert "method.bandwidth" not in spec.variant("by_dece").space.distributions
    with pytest.raises(SpecError) as refused:
        small(methods=[DECE], search_space=width)
    assert (
        str(refused.value)
        == "study.yaml: search_space.method.bandwidth: has no effect in by_dece (outer: dece)."
        " Remove it."
    )
    small(methods=[DECE], search_space={"method.bandwidth": 0.1})  # a plain value does no harm


# The optimizer's space


def test_the_optimizer_is_searched_in_every_method_from_its_own_settings() -> None:
    spec = small(
        methods=["cross_entropy", "focal"],
        search_optimizer=True,
        optimizer={"lr": 0.05, "weight_decay": 1e-4},
    )
    own = {"optimizer.lr": 0.05, "optimizer.weight_decay": 1e-4}
    assert spec.variant("cross_entropy").space.distributions == {
        "optimizer.lr": FloatDistribution(0.01, 0.5, log=True),
        "optimizer.weight_decay": FloatDistribution(1e-5, 0.01, log=True),
    }
    assert spec.variant("cross_entropy").space.defaults == [own]
    assert spec.variant("focal").space.defaults[0] == {"method.gamma": 3.0, **own}
    decay = next(row for row in explain(spec) if row.key == "methods.focal: optimizer.weight_decay")
    assert (
        decay.note.startswith("search_spaces/optimizer.yaml: ")
        and "Mukhoti et al. 2020" in decay.note
    )
    assert spec_from_mapping(spec.to_mapping(), "study.yaml") == spec
    # The study's own range or value wins; so does a label's.
    wide = {"low": 0.001, "high": 1.0, "log": True}
    adam = {
        "label": "adam",
        "name": "focal",
        "values": {"optimizer.name": "adam", "optimizer.lr": 0.001},
    }
    spec = small(
        methods=["focal", adam], search_optimizer=True, search_space={"optimizer.lr": wide}
    )
    assert spec.variant("focal").space.distributions["optimizer.lr"] == FloatDistribution(
        0.001, 1.0, log=True
    )
    assert list(spec.variant("adam").space.distributions) == [
        "method.gamma",
        "optimizer.weight_decay",
    ]


def test_its_search_starts_inside_its_range() -> None:
    with pytest.raises(SpecError) as refused:
        small(methods=["focal"], search_optimizer=True, optimizer={"name": "adam", "lr": 0.001})
    assert (
        str(refused.value)
        == "study.yaml: search_optimizer: optimizer.lr of focal is 0.001, outside {low: 0.01, high:"
        " 0.5, log: true} of search_spaces/optimizer.yaml. Write a range for it under"
        " `search_space`."
    )


# What a study keeps


def older(space: dict[str, dict[str, Any]], **keys: Any) -> tuple[dict[str, Any], Any]:
    """The meaning of a study made when the labels of `space` had these ranges; and what it
    keeps."""
    spec = small(**keys)
    meaning = json.loads(json.dumps(spec.meaning()))
    for label, ranges in space.items():
        parts = meaning["methods"][label]
        left = [path for path in parts["space"] if path not in ranges]
        method = spec.variant(label).method
        parts["fixed"] |= {path: getattr(method, path.removeprefix("method.")) for path in left}
        parts["space"] = ranges
    return meaning, recorded_spaces(spec.to_mapping(), meaning)


def again(recorded: Any, **keys: Any) -> StudySpec:
    return parse_mapping({**SMALL, **keys}, "study.yaml").spec(recorded)


def test_a_study_keeps_its_ranges_where_ours_have_changed() -> None:
    ranges = {"mbls": {"method.weight": WEIGHT}}  # and margin came into the space later
    meaning, recorded = older(ranges, methods=["focal", "mbls"])
    with pytest.raises(SpecError, match="changes what a trial means"):
        refuse_changes(meaning, small(methods=["focal", "mbls"]), "study.yaml", "has 3 trials")
    spec = again(recorded, methods=["focal", "mbls"], trials=99)
    refuse_changes(meaning, spec, "study.yaml", "has 3 trials")
    assert spec.variant("mbls").space.distributions == {
        "method.weight": FloatDistribution(0.02, 2.0, log=True)
    }
    assert spec.trial("mbls").method == Mbls(margin=10.0)
    assert spec.meaning()["methods"] == meaning["methods"]  # recorded again as it was
    assert (
        kept_line(spec)
        == "small keeps what it recorded when it began, where calstudy has changed since"
        " (mbls: method.margin, method.weight)."
    )
    weight = next(row for row in explain(spec) if row.key == "methods.mbls: method.weight")
    assert (
        weight.note
        == "recorded with the study; search_spaces/ now has {low: 0.01, high: 1.0, log: true}"
    )
    assert kept_line(small()) is None and kept_line(again(older({})[1])) is None


def test_what_its_file_names_is_refused_as_ever() -> None:
    named = {"method.margin": {"low": 1, "high": 9}}
    meaning, recorded = older({}, methods=["focal", "mbls"], search_space=named)

    def refused(**keys: Any) -> str:
        with pytest.raises(SpecError) as error:
            refuse_changes(
                meaning,
                again(recorded, methods=["focal", "mbls"], **keys),
                "study.yaml",
                "has 3 trials",
            )
        return str(error.value).partition("\n")[2].strip()

    assert (
        refused(search_space={**named, "method.gamma": {"low": 0, "high": 4}})
        == "methods.focal: method.gamma: was {low: 0.0, high: 5.0}, is {low: 0.0, high: 4.0}"
    )
    margin = "methods.mbls: method.margin: was {low: 1.0, high: 9.0}, is "
    assert refused() == margin + "{low: 0.0, high: 20.0}"  # a line that was taken out
    assert refused(search_space={"method.margin": 6}) == margin + "6.0"
    assert "mbls: optimizer.weight_decay: was absent, is {low" in refused(
        search_space=named, search_optimizer=True
    )
    meaning, recorded = older(
        {}, methods=["focal", "mbls"], search_space=named, search_optimizer=True
    )
    assert "focal: optimizer.lr: was {low: 0.01, high: 0.5, log: true}, is absent" in refused(
        search_space=named
    )


def test_a_line_that_fixed_the_methods_own_value_may_be_taken_out_again() -> None:
    """Once it was written, the file without it was refused for a range that came into
    search_spaces/ later."""
    weight = {"mmce": {"method.weight": {"low": 0.1, "high": 13.0, "log": True}}}
    meaning, recorded = older(weight, methods=[{"name": "mmce", "normalization": "paper"}])
    spec = again(recorded, methods=["mmce"])
    refuse_changes(meaning, spec, "study.yaml", "has 3 trials")
    assert list(spec.variant("mmce").space.distributions) == ["method.weight"]
    meaning, recorded = older(weight, methods=[{"name": "mmce", "normalization": "released_code"}])
    with pytest.raises(SpecError, match=r"method\.normalization: was released_code, is paper"):
        refuse_changes(meaning, again(recorded, methods=["mmce"]), "study.yaml", "has 3 trials")


def test_a_recorded_range_without_effect_stays() -> None:
    width = {"low": 0.01, "high": 0.3, "log": True}
    tau = {"low": 0.001, "high": 1.0, "log": True}
    ranges = {"by_dece": {"method.bandwidth": width, "method.tau": tau}}
    meaning, recorded = older(ranges, methods=[DECE])
    spec = again(recorded, methods=[DECE])
    assert list(spec.variant("by_dece").space.distributions) == ["method.bandwidth", "method.tau"]
    refuse_changes(meaning, spec, "study.yaml", "has 3 trials")
    # Even if its file names it, as it then could.
    written = {"methods": [DECE], "search_space": {"method.bandwidth": width}}
    recorded = recorded_spaces(
        {**small(methods=[DECE]).to_mapping(), **written, "methods": [DECE]}, meaning
    )
    refuse_changes(meaning, again(recorded, **written), "study.yaml", "has 3 trials")


def test_a_study_keeps_the_defaults_it_recorded() -> None:
    meaning, _ = older({}, methods=["focal"])
    meaning["methods"]["focal"]["defaults"] = [{"method.gamma": 4.0}]
    spec = again(recorded_spaces(small(methods=["focal"]).to_mapping(), meaning), methods=["focal"])
    assert spec.variant("focal").space.defaults == [{"method.gamma": 4.0}]
    assert str(kept_line(spec)).endswith("(focal: tried first).")


def of_an_older_gamma_net() -> tuple[dict[str, Any], dict[str, Any]]:
    """A meaning from before gamma-net had `length` and `meta_batch`, and its file's one line."""
    written = {"label": "gamma_net", "name": "gamma_net", "k": 5}
    meaning = json.loads(json.dumps(small(methods=[written]).meaning()))
    fixed = meaning["methods"]["gamma_net"]["fixed"]
    for late in ("length", "meta_batch", "kernel"):
        del fixed[f"method.{late}"]
    fixed["method.gamma_max"] = 20.0  # the default then
    return meaning, written


def test_a_study_keeps_the_values_that_were_its_methods_defaults() -> None:
    meaning, written = of_an_older_gamma_net()
    recorded = recorded_spaces({"methods": [written]}, meaning)
    spec = again(recorded, methods=[written])
    method = spec.variant("gamma_net").method
    assert method == GammaNet(k=5, gamma_max=20.0, length="free", meta_batch="batch_size")
    whole = completed_meaning(meaning, spec.meaning())
    refuse_changes(whole, spec, "study.yaml", "has 3 trials")
    assert str(kept_line(spec)).endswith(
        "(gamma_net: method.length, method.meta_batch, method.gamma_max)."
    )
    # What the file says, now or then, is no default.
    for line, problem in (
        ({**written, "length": "constant"}, "method.length: was free, is constant"),
        ({**written, "gamma_max": 10.0}, "method.gamma_max: was 20.0, is 10.0"),
        ({"label": "gamma_net", "name": "gamma_net"}, "method.k: was 5, is 10"),
    ):
        with pytest.raises(SpecError, match=problem):
            refuse_changes(whole, again(recorded, methods=[line]), "study.yaml", "has 3 trials")


def test_a_confirmation_trains_with_the_values_that_its_study_keeps() -> None:
    meaning, written = of_an_older_gamma_net()
    variant = again(recorded_spaces({"methods": [written]}, meaning), methods=[written]).variant(
        "gamma_net"
    )
    entry = _entry(variant, "gamma_net_0003", {"method.tau": 0.02})
    assert entry["values"] == {
        "method.gamma_max": 20.0,
        "method.length": "free",
        "method.meta_batch": "batch_size",
        "method.tau": 0.02,
    }
    confirming = small(methods=[entry], confirms="small")
    trained = confirming.trial("gamma_net_0003").method
    assert trained == GammaNet(
        k=5, tau=0.02, gamma_max=20.0, length="free", meta_batch="batch_size"
    )


def test_another_method_of_the_same_label_keeps_nothing() -> None:
    recorded = older({}, methods=[{"label": "a", "name": "focal"}])[1]
    other = [{"label": "a", "name": "mbls"}]
    assert (
        again(recorded, methods=other).variant("a").space == small(methods=other).variant("a").space
    )


def test_a_confirmation_searches_nothing() -> None:
    spec = small(methods=[{"name": "mbls", "values": {"method.weight": 0.2}}], confirms="x")
    assert spec.variant("mbls").space.distributions == {}
    old = copy.deepcopy(small(methods=["brier"]).meaning())
    with pytest.raises(SpecError, match="confirms: was null, is x"):
        refuse_changes(old, small(methods=["brier"], confirms="x"), "study.yaml", "has 3 trials")
