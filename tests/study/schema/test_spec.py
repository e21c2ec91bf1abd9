"""The study file: what it means, and every error in it: the field, what was found, the mend."""

import copy
import json
import math
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

import study
from search_spaces import strict_yaml
from study.schema.compatibility import refuse_changes
from study.schema.errors import SpecError
from study.schema.objective import Objective, served_by_default
from study.schema.reading import read_spec, spec_from_mapping
from study.schema.resources import Resources
from study.schema.spec import Sampler, check_objectives
from tests.study.schema.specs import RATE, SHIFT, SMALL, small
from trainables.config import TrialConfig
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import Focal
from trainables.methods.mbls import Mbls
from trainables.methods.sece import Sece
from trainables.optimizer import Optimizer
from trainables.plugins import use_extensions
from trainables.problems import FieldError

DIGITS = Path(study.__file__).parent / "specs" / "digits.yaml"
PINNED = {"optimizer.lr": 0.08, "method.gamma": 2.1, "model.width": 64, "data.augment": "flip"}


@pytest.fixture(autouse=True)
def own_names_only():
    yield
    use_extensions(None)


# What a study means


def test_digits_is_the_study_of_the_design():
    spec = read_spec(DIGITS)
    assert spec.name == "digits"
    assert [variant.label for variant in spec.variants] == [
        "baseline",
        "cross_entropy",
        "focal",
        "label_smoothing",
        "mbls",
        "sece_on_focal",
    ]
    assert spec.optimizer == Optimizer(
        name="sgd", lr=0.1, momentum=0.9, weight_decay=5e-4, schedule="cosine"
    )
    assert (spec.batch_size, spec.epochs, spec.seed, spec.trials) == (64, 20, 0, 24)
    assert spec.objectives == (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    assert [str(constraint) for constraint in spec.constraints] == ["accuracy >= best - 0.03"]
    assert spec.serve == served_by_default(spec.objectives) == "raw"
    assert spec.sampler == Sampler("tpe", 0)
    assert spec.resources == Resources(cpu=1.0, gpu=0.0)
    assert (spec.checkpoint_seconds, spec.keep_models, spec.result) == (30.0, "all", "last")
    assert (spec.storage, spec.tracking, spec.ledger, spec.extensions) == (None, None, None, None)
    rate = FloatDistribution(0.01, 0.5, log=True)
    assert spec.variant("cross_entropy").space.distributions == {"optimizer.lr": rate}
    assert spec.variant("cross_entropy").space.defaults == [{"optimizer.lr": 0.1}]
    assert spec.variant("baseline").space.distributions == {}  # repeated: the noise of training
    assert spec.variant("focal").space.distributions == {
        "method.gamma": FloatDistribution(0.0, 5.0),
        "optimizer.lr": rate,
    }
    assert spec.variant("focal").space.defaults == [
        {"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)
    ]
    on_focal = spec.variant("sece_on_focal")
    assert on_focal.method == Sece(base=Focal(gamma=3.0))
    # The base's gamma is fixed, so it is not searched.
    assert list(on_focal.space.distributions) == [
        "method.bandwidth",
        "method.weight",
        "optimizer.lr",
    ]


def test_what_is_left_out_is_as_in_the_design():
    written = strict_yaml.read(DIGITS)
    required = {
        key: written[key]
        for key in ("name", "data", "model", "methods", "search_space", "constraints", "serve")
    }
    assert spec_from_mapping(required, "study.yaml") == read_spec(DIGITS)


def test_a_method_whose_space_is_empty_has_nothing_to_try_first():
    space = small().variant("cross_entropy").space
    assert (space.distributions, space.defaults) == ({}, [])


def test_a_base_brings_its_own_space():
    space = small().variant("sece_on_focal").space
    assert list(space.distributions) == ["method.bandwidth", "method.base.gamma", "method.weight"]
    assert space.distributions["method.base.gamma"] == FloatDistribution(0.0, 5.0)
    assert space.defaults == [
        {"method.bandwidth": 0.1, "method.base.gamma": 3.0, "method.weight": 0.5}
    ]
    assert space.origins["method.base.gamma"].startswith(
        "search_spaces/focal.yaml: Mukhoti et al. 2020"
    )
    assert space.origins["method.weight"].startswith("search_spaces/sece.yaml: Wang")


def test_bases_nest():
    inner = {"name": "sece", "weight": 2, "base": {"name": "mbls", "margin": 6}}
    variant = small(methods=[{"label": "deep", "name": "sece", "base": inner}]).variant("deep")
    assert variant.method == Sece(base=Sece(weight=2.0, base=Mbls(margin=6.0)))
    assert variant.fixed == ("method.base.base.margin", "method.base.weight")
    assert list(variant.space.distributions) == [
        "method.bandwidth",
        "method.base.bandwidth",
        "method.base.base.weight",
        "method.weight",
    ]


def test_a_path_is_searched_in_the_methods_it_fits():
    spec = small(search_space={"method.gamma": {"low": 1, "high": 4}})
    gamma = FloatDistribution(1.0, 4.0)
    assert spec.variant("focal").space.distributions["method.gamma"] == gamma
    assert spec.variant("focal").space.origins["method.gamma"] == "search_space of the study"
    # `method.gamma` is not `method.base.gamma`.
    assert spec.variant("sece_on_focal").space.distributions[
        "method.base.gamma"
    ] == FloatDistribution(0.0, 5.0)
    assert spec.variant("cross_entropy").space.distributions == {}


def test_a_fixed_value_wins_over_the_search_space():
    methods = ["focal", {"label": "focal_2", "name": "focal", "gamma": 2}]
    spec = small(methods=methods, search_space={"method.gamma": {"low": 1, "high": 4}})
    assert list(spec.variant("focal").space.distributions) == ["method.gamma"]
    assert spec.variant("focal_2").space.distributions == {}
    assert spec.variant("focal_2").method == Focal(gamma=2.0)
    with pytest.raises(
        SpecError, match=r"search_space\.method\.gamma: is fixed to 2\.0 by focal_2. Remove one"
    ):
        small(methods=methods[1:], search_space={"method.gamma": {"low": 1, "high": 4}})


def test_a_plain_value_pins():
    spec = small(
        search_space={"method.margin": 6, "optimizer.momentum": 0.8, "method.base.gamma": 1}
    )
    mbls = spec.variant("mbls")
    assert list(mbls.space.distributions) == ["method.weight"]
    assert mbls.method == Mbls(margin=6.0)
    # Three published settings differ in margin alone: what is left of them is one.
    assert mbls.space.defaults == [{"method.weight": 0.1}]
    plain = {"name": "mbls", "margin": 6.0, "weight": 0.1, "weight_end": None}
    assert spec.trial_mapping("mbls")["method"] == plain
    assert spec.trial_mapping("focal")["optimizer"]["momentum"] == 0.8
    assert spec.variant("sece_on_focal").method == Sece(base=Focal(gamma=1.0))
    assert spec.optimizer.momentum == 0.9


def test_what_is_tried_first_lies_inside_the_space():
    narrowed = {"method.gamma": {"low": 1.5, "high": 5}, "optimizer.lr": {"low": 0.2, "high": 0.5}}
    space = small(search_space=narrowed).variant("focal").space
    # gamma 1 is out of range; the study's own lr 0.1 too, so that lr is sampled.
    assert space.defaults == [{"method.gamma": 3.0}, {"method.gamma": 2.0}]


@pytest.mark.parametrize(
    "label", ["cross_entropy", "focal", "label_smoothing", "mbls", "sece_on_focal"]
)
def test_optuna_takes_what_is_tried_first(label):
    space = read_spec(DIGITS).variant(label).space
    ledger = optuna.create_study(directions=["maximize", "minimize"])
    for setting in space.defaults:
        ledger.enqueue_trial(setting)
        assert ledger.ask(space.distributions).params == setting


def test_settings_of_the_trial_are_searched_too():
    spec = small(
        search_space={
            "batch_size": {"low": 32, "high": 128, "int": True, "log": True},
            "data.augment": {"choices": ["none", "flip"]},
            "model.width": {"low": 64, "high": 256, "int": True},
            "optimizer.name": {"choices": ["sgd", "adamw"]},
        }
    )
    space = spec.variant("cross_entropy").space
    assert space.distributions["batch_size"] == IntDistribution(32, 128, log=True)
    assert space.defaults == [
        {"batch_size": 64, "data.augment": "none", "model.width": 128, "optimizer.name": "sgd"}
    ]
    values = {
        "batch_size": 32,
        "data.augment": "flip",
        "model.width": 65,
        "optimizer.name": "adamw",
    }
    config = TrialConfig.from_mapping(spec.trial_mapping("cross_entropy"), values)
    assert (config.batch_size, config.data.augment, config.optimizer.name) == (32, "flip", "adamw")
    assert config.model.width == 65


def test_a_trial_from_its_mapping_and_values():
    config = TrialConfig.from_mapping(
        read_spec(DIGITS).trial_mapping("sece_on_focal"), {"method.weight": 2.0}
    )
    assert config.method == Sece(weight=2.0, base=Focal(gamma=3.0))
    assert (config.epochs, config.batch_size, config.seed, config.result) == (20, 64, 0, "last")
    assert read_spec(DIGITS).trial("cross_entropy").method == CrossEntropy()


def test_unknown_label():
    with pytest.raises(FieldError, match="no label 'focl'"):
        small().variant("focl")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"search_space": {**RATE, "method.margin": 6, "batch_size": {"choices": [32, 64]}}},
        {
            "methods": [
                {
                    "label": "deep",
                    "name": "sece",
                    "hits": "soft",
                    "base": {"name": "mbls", "margin": 6},
                }
            ]
        },
        {
            "storage": "here",
            "tracking": "http://x:5000",
            "ledger": "/x/ledger.log",
            "keep_models": "front",
        },
        {
            "objectives": [{"metric": "ts_nll", "direction": "minimize"}],
            "resources": {"cpu": 2, "gpu": 0.5},
        },
        {
            "methods": [{"label": "focal_0007", "name": "focal", "values": PINNED}],
            "first_seed": 9,
            "confirms": "other",
        },
        {
            "shift": {
                "far": {"name": "parquet", "path": "/x.parquet", "where": {"a": 1}, "ood": True},
                "own": "digits",
            }
        },
    ],
)
def test_reads_back_as_it_was(keys):
    spec = small(**keys)
    through_yaml = strict_yaml.parse(strict_yaml.dump(spec.to_mapping()))
    assert spec_from_mapping(through_yaml, "other.yaml") == spec
    assert spec_from_mapping(json.loads(json.dumps(spec.to_mapping())), "other.yaml") == spec


def test_every_key_is_written_back():
    first = [
        "name",
        "data",
        "model",
        "methods",
        "optimizer",
        "batch_size",
        "epochs",
        "seed",
        "first_seed",
    ]
    first += ["precision", "deterministic", "compile", "capture", "result", "equal_train"]
    first += ["diagnostics", "record"]
    first += ["objectives", "matters", "constraints", "guard", "serve"]
    second = [
        "search_space",
        "try_first",
        "search_optimizer",
        "shift",
        "sampler",
        "trials",
        "stack",
        "early_stopping",
        "budget",
        "trial_minutes",
        "resources",
        "checkpoint_seconds",
        "keep_models",
    ]
    last = ["storage", "tracking", "ledger", "extensions", "confirms"]
    assert list(small().to_mapping()) == [*first, *second, *last]


def test_a_method_may_take_other_resources_than_the_study():
    methods = ["focal", {"label": "big", "name": "focal", "resources": {"gpu": 1}}]
    spec = small(methods=methods, resources={"cpu": 2, "gpu": 0.25})
    assert spec.resources_of("focal") == Resources(cpu=2, gpu=0.25)
    assert spec.resources_of("big") == Resources(cpu=2, gpu=1)  # what it leaves out is the study's
    again = spec_from_mapping(spec.to_mapping(), "study.yaml")
    assert (
        again == spec
        and spec.meaning() == small(methods=["focal", {"label": "big", "name": "focal"}]).meaning()
    )
    with pytest.raises(
        SpecError, match=r"methods\[0\].resources.gpus: Resources has no 'gpus'. Did you mean 'gpu'"
    ):
        small(methods=[{"name": "focal", "resources": {"gpus": 1}}])


def test_a_method_may_have_values_of_its_own():
    """Set for its label alone, over the search space; its seeds start where the study says."""
    methods = ["focal", {"label": "focal_0007", "name": "focal", "values": PINNED}]
    spec = small(methods=methods, search_space=RATE, first_seed=100)
    trial, space = spec.trial("focal_0007"), spec.variant("focal_0007").space
    assert (space.distributions, space.pins, space.defaults) == ({}, PINNED, [])
    assert (trial.optimizer.lr, trial.method.gamma, trial.model.width, trial.data.augment) == (
        0.08,
        2.1,
        64,
        "flip",
    )
    assert set(spec.variant("focal").space.distributions) == {"method.gamma", "optimizer.lr"}
    assert [spec.seed_number(number) for number in (0, 7)] == [100, 107]
    old = json.loads(json.dumps(spec.meaning()))
    other = [methods[0], {**methods[1], "values": {**PINNED, "method.gamma": 2.2}}]
    with pytest.raises(SpecError, match=r"methods.focal_0007: method.gamma: was 2.1, is 2.2"):
        refuse_changes(
            old,
            small(methods=other, search_space=RATE, first_seed=100),
            "study.yaml",
            "has 3 trials",
        )


def test_overrides(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(strict_yaml.dump({**SMALL, "trials": 7}))
    assert read_spec(file, trials=3, storage="/elsewhere", tracking=None).trials == 3
    assert read_spec(file, trials=None).trials == 7
    with pytest.raises(SpecError, match=r"study\.yaml: trials: must be >= 1, got 0\."):
        read_spec(file, trials=0)


def test_relative_paths_start_from_the_file(tmp_path):
    (tmp_path / "study.yaml").write_text(
        strict_yaml.dump(
            {
                **SMALL,
                "data": {"name": "parquet", "path": "sub/train.parquet"},
                "storage": "runs",
                "shift": SHIFT,
            }
        )
    )
    spec = read_spec(tmp_path / "study.yaml")
    assert spec.shift["far"].data.path == str(tmp_path / "far.parquet")
    assert spec.data.path == str(tmp_path / "sub" / "train.parquet")
    assert spec.storage == "runs"


# What a study may not hold

BAD = [
    # keys
    ({"nme": "x"}, "nme", "there is no key 'nme'. Did you mean 'name'?"),
    # Not 'record'.
    ({"pruner": "asha"}, "pruner", "there is no key 'pruner'. Valid values: name, data, model"),
    ({"name": "My Study"}, "name", "got 'My Study'. Write 'my_study'?"),
    ({"name": "../up"}, "name", "got '../up'"),
    ({"name": "a/b"}, "name", "got 'a/b'. Write 'a_b'?"),
    ({"name": ""}, "name", "a-z, 0-9, _ and -"),
    ({"name": 12}, "name", "must be text, got 12."),
    ({"name": "two\nlines"}, "name", "Write 'two_lines'?"),
    ({"trials": 0}, "trials", "must be >= 1, got 0."),
    ({"trials": -2}, "trials", "must be >= 1, got -2."),
    ({"trials": True}, "trials", "must be a whole number, got True."),
    ({"trials": "many"}, "trials", "must be a whole number, got 'many'."),
    ({"trials": math.nan}, "trials", "must be a whole number, got nan."),
    ({"epochs": 0}, "epochs", "must be >= 1, got 0."),
    ({"epochs": None}, "epochs", "must be a whole number, got None."),
    ({"batch_size": 64.5}, "batch_size", "must be a whole number, got 64.5."),
    ({"seed": -1}, "seed", "must be >= 0, got -1."),
    ({"result": "best"}, "result", "Did you mean 'best_nll'?"),
    ({"checkpoint_seconds": -1}, "checkpoint_seconds", "must be >= 0, got -1."),
    ({"checkpoint_seconds": math.inf}, "checkpoint_seconds", "finite number, got inf."),
    ({"keep_models": "frnt"}, "keep_models", "Did you mean 'front'?"),
    ({"tracking": 5000}, "tracking", "must be text, got 5000."),
    ({"tracking": ""}, "tracking", "Write null"),
    ({"storage": ["a"]}, "storage", "must be text, got ['a']."),
    ({"ledger": False}, "ledger", "must be text, got False."),
    ({"shift": ["far"]}, "shift", "must map names to data sets, got ['far']."),
    ({"shift": {"Far": "digits"}}, "shift", "only a-z, 0-9 and _, got 'Far'."),
    (
        {"shift": {"far": {"name": "parqet"}}},
        "shift.far",
        "there is no dataset 'parqet'. Did you mean 'parquet'?",
    ),
    ({"shift": {"far": {"name": "parquet"}}}, "shift.far.path", "is missing"),
    ({"shift": {"far": {"name": "digits", "wher": 1}}}, "shift.far.wher", "Digits has no 'wher'."),
    ({"first_seed": -1}, "first_seed", "must be >= 0, got -1."),
    (
        {"methods": [{"name": "focal", "values": 3}]},
        "methods[0].values",
        "must map paths to values, got 3.",
    ),
    (
        {"methods": ["mbls", {"name": "focal", "values": {"method.gama": 2}}]},
        "methods[1].values.method.gama",
        "Focal has no 'gama'. Did you mean 'gamma'?",
    ),
    (
        {"methods": [{"name": "focal", "values": {"optimizer.lr": -1}}]},
        "methods[0].values.optimizer.lr",
        "must be > 0, got -1.",
    ),
    (
        {"methods": [{"name": "focal", "values": {"optimizer.lr": {"low": 0.1, "high": 0.2}}}]},
        "methods[0].values.optimizer.lr",
        "must be a plain value. Write ranges under `search_space`.",
    ),
    (
        {"methods": [{"name": "focal", "gamma": 1.0, "values": {"method.gamma": 2}}]},
        "methods[0].values.method.gamma",
        "is fixed to 1.0 by the method. Remove one of the two.",
    ),
    (
        {"methods": [{"name": "focal", "values": {"epochs": 2}}]},
        "methods[0].values.epochs",
        "cannot be searched",
    ),
    ({"extensions": "nowhere"}, "extensions", "no folder at"),
    ({"extensions": 3}, "extensions", "must be text, got 3."),
    ({"extensions": ""}, "extensions", "Write null"),
    # data, model, optimizer, sampler, resources
    (
        {"data": "csv"},
        "data",
        "there is no dataset 'csv'. Valid values: arrays, cifar10, ",
    ),  # not 'svhn'
    ({"data": "digit"}, "data", "there is no dataset 'digit'. Did you mean 'digits'?"),
    ({"data": 7}, "data", "must be a name, or a mapping with `name`, got 7."),
    (
        {"data": {"name": "digits", "validatoin": 0.3}},
        "data.validatoin",
        "Did you mean 'validation'?",
    ),
    (
        {"data": {"name": "digits", "validation": 1}},
        "data.validation",
        "must be > 0 and < 1, got 1.",
    ),
    ({"data": {"name": "digits", "augment": "flop"}}, "data.augment", "Did you mean 'flip'?"),
    ({"data": {"name": "parquet"}}, "data.path", "is missing"),
    ({"model": "mpl"}, "model", "there is no model 'mpl'. Did you mean 'mlp'?"),
    (
        {"model": {"name": "mlp", "widht": 3}},
        "model.widht",
        "Mlp has no 'widht'. Did you mean 'width'?",
    ),
    ({"optimizer": "sgd"}, "optimizer", "must be a mapping of settings, got 'sgd'."),
    ({"optimizer": {"name": "sdg"}}, "optimizer.name", "there is no 'sdg'. Did you mean 'sgd'?"),
    ({"optimizer": {"lr": -0.1}}, "optimizer.lr", "must be > 0, got -0.1."),
    ({"optimizer": {"lr": 0}}, "optimizer.lr", "must be > 0, got 0."),
    ({"optimizer": {"lr": math.nan}}, "optimizer.lr", "must be a finite number, got nan."),
    ({"optimizer": {"lr": "fast"}}, "optimizer.lr", "must be a number, got 'fast'."),
    ({"optimizer": {"lr": True}}, "optimizer.lr", "must be a number, got True."),
    ({"sampler": {"name": "tpee"}}, "sampler.name", "Did you mean 'tpe'?"),
    ({"sampler": {"seed": -1}}, "sampler.seed", "must be >= 0, got -1."),
    ({"resources": {"gpu": -1}}, "resources.gpu", "must be >= 0 and <= 1, got -1."),
    ({"resources": {"gpu": 1.5}}, "resources.gpu", "must be >= 0 and <= 1, got 1.5."),
    ({"resources": {"cpu": 0}}, "resources.cpu", "must be > 0 if gpu is 0"),
    ({"resources": {"gpus": 1}}, "resources.gpus", "Did you mean 'gpu'?"),
    # methods
    ({"methods": []}, "methods", "a list of one or more methods, got []."),
    ({"methods": "focal"}, "methods", "a list of one or more methods, got 'focal'."),
    ({"methods": {"focal": {}}}, "methods", "a list of one or more methods"),
    ({"methods": ["focl"]}, "methods[0]", "there is no method 'focl'. Did you mean 'focal'?"),
    (
        {"methods": ["focal", 3]},
        "methods[1]",
        "a method name, or a mapping with `name` and its fields, got 3.",
    ),
    ({"methods": [{"label": "x"}]}, "methods[0]", "a mapping with `name`"),
    (
        {"methods": ["focal", "focal"]},
        "methods[1].label",
        "methods[0] already has label 'focal'. Give one of them another",
    ),
    (
        {"methods": [{"label": "Focal-3", "name": "focal"}]},
        "methods[0].label",
        "only a-z, 0-9 and _, got 'Focal-3'.",
    ),
    (
        {"methods": [{"label": "", "name": "focal"}]},
        "methods[0].label",
        "only a-z, 0-9 and _, got ''.",
    ),
    (
        {"methods": [{"label": 3, "name": "focal"}]},
        "methods[0].label",
        "only a-z, 0-9 and _, got 3.",
    ),
    (
        {"methods": [{"name": "focal", "gama": 3}]},
        "methods[0].gama",
        "Focal has no 'gama'. Did you mean 'gamma'?",
    ),
    ({"methods": [{"name": "focal", "gamma": -1}]}, "methods[0].gamma", "must be >= 0, got -1."),
    (
        {"methods": [{"name": "focal", "gamma": "3"}]},
        "methods[0].gamma",
        "must be a number, got '3'.",
    ),
    (
        {"methods": [{"name": "cross_entropy", "gamma": 1}]},
        "methods[0].gamma",
        "CrossEntropy has no 'gamma'.",
    ),
    ({"methods": [{"name": "sece", "base": "focl"}]}, "methods[0].base", "Did you mean 'focal'?"),
    (
        {"methods": [{"name": "sece", "base": {"name": "focal", "gama": 3}}]},
        "methods[0].base.gama",
        "no 'gama'.",
    ),
    # objectives
    ({"objectives": []}, "objectives", "a list of one or more objectives, got []."),
    ({"objectives": "accuracy"}, "objectives", "a list of one or more objectives, got 'accuracy'."),
    ({"objectives": ["acuracy"]}, "objectives[0]", "there is no metric 'acuracy'. Did you mean"),
    ({"objectives": [3]}, "objectives[0]", "must be a metric or a mapping such as {metric: acc"),
    (
        {"objectives": [{"metric": "accuracy"}]},
        "objectives[0].direction",
        "is missing. Write maximize or minimize.",
    ),
    ({"objectives": [{"direction": "maximize"}]}, "objectives[0].metric", "is missing"),
    (
        {"objectives": [{"metric": "acc", "direction": "maximize"}]},
        "objectives[0].metric",
        "there is no metric 'acc'.",
    ),
    (
        {"objectives": [{"metric": "ece", "direction": "down"}]},
        "objectives[0].direction",
        "there is no 'down'.",
    ),
    (
        {"objectives": [{"metric": "ece", "direction": "maximize"}]},
        "objectives[0].direction",
        "Write minimize.",
    ),
    (
        {"objectives": [{"metric": "ece", "direction": "minimize"}] * 2},
        "objectives[1].metric",
        "'ece' is listed twice",
    ),
    (
        {"objectives": [{"metric": "ece", "direction": "minimize", "bins": 3}]},
        "objectives[0].bins",
        "has no 'bins'",
    ),
    ({"search_space": [1]}, "search_space", "must map paths to ranges, got [1]."),
]

# {path: entry} of the search space; the error is told at its path.
BAD_SPACES = [
    ("method.gama", {"low": 0, "high": 1}, "Focal has no 'gama'. Did you mean 'gamma'?"),
    ("method.base.gama", 1, "Focal has no 'gama'. Did you mean 'gamma'?"),
    ("gamma", {"low": 0, "high": 1}, "Did you mean 'method.gamma'?"),
    ("optimiser.lr", 0.1, "Did you mean 'optimizer.lr'?"),
    ("optimizer.rl", 0.1, "Optimizer has no 'rl'. Did you mean 'lr'?"),
    ("optimizer", {"lr": 0.1}, "is a group of settings, not a value."),
    ("method.base", "focal", "is a group of settings, not a value."),
    ("trials", 3, "Searchable: method.*, optimizer.*, model.*"),
    ("epochs", {"low": 1, "high": 30, "int": True}, "the same in every trial"),
    ("data.validation", {"low": 0.1, "high": 0.3}, "the same in every trial"),
    ("seed", 3, "for a fair comparison"),
    ("optimizer.lr", {"low": 0.5, "high": 0.1}, "low 0.5 is above high 0.1. Swap them."),
    ("optimizer.lr", {"low": 0, "high": 1, "log": True}, "`log` needs low > 0, got 0"),
    ("optimizer.lr", {"low": 0, "high": 1}, "`low` must be > 0, got 0."),
    ("optimizer.momentum", {"low": 0, "high": 1}, "`high` must be >= 0 and < 1, got 1."),
    ("optimizer.lr", -1, "must be > 0, got -1."),
    ("optimizer.lr", {"choices": [0.1, -1]}, "must be > 0, got -1."),
    ("method.gamma", {"low": -1, "high": 2}, "`low` must be >= 0, got -1."),
    ("method.gamma", {"low": 1, "high": 2, "int": True}, "Write `step: 1`"),
    ("batch_size", {"low": 32, "high": 256}, "must be a whole number. Add `int: true`"),
    ("optimizer.name", {"low": 0, "high": 1}, "{choices: [sgd, adam, adamw, adagrad]}"),
    ("optimizer.name", {"choices": ["sgd", "adm"]}, "Did you mean 'adam'?"),
    ("method.self_weight", {"low": 0, "high": 1}, "{choices: [true, false]}"),
]


@pytest.mark.parametrize(
    ("keys", "path", "said"), BAD, ids=[f"{path}-{n}" for n, (_, path, _) in enumerate(BAD)]
)
def test_refused(tmp_path, keys, path, said):
    refuse(tmp_path, keys, path, said)


@pytest.mark.parametrize(("path", "entry", "said"), BAD_SPACES)
def test_refused_search_space(tmp_path, path, entry, said):
    refuse(tmp_path, {"search_space": {path: entry}}, f"search_space.{path}", said)


def refuse(tmp_path, keys, path, said):
    """The file is refused in one line that starts with the field, and nothing else happens."""
    file = tmp_path / "study.yaml"
    file.write_text(strict_yaml.dump({**SMALL, **keys}))
    with pytest.raises(SpecError) as error:
        read_spec(file)
    line = str(error.value)
    assert line.startswith(f"study.yaml: {path}: ")
    assert said in line
    assert "\n" not in line
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("key", ["name", "data", "model", "methods"])
def test_required(key):
    with pytest.raises(
        SpecError,
        match=f"study.yaml: {key}: is missing. A study needs name, data, model and methods.",
    ):
        spec_from_mapping(
            {other: value for other, value in SMALL.items() if other != key}, "study.yaml"
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "study.yaml: is empty. A study needs name, data, model and methods."),
        (b"# nothing yet\n", "study.yaml: is empty."),
        (b"- name: x\n", "study.yaml: must be a mapping of keys, got list."),
        (b"focal", "study.yaml: must be a mapping of keys, got str."),
        (b"\xff\xfe\x00\x01", "study.yaml: is not UTF-8 text."),
        (b"\x00\x01\x02", "study.yaml: is not YAML: it contains non-printable characters."),
        (b"name: [", "study.yaml: is not YAML: "),
        (b"name: x\n  data: y\n", "(line 2, column 7)"),
        (
            b"trials: 3\nname: x\ntrials: 4\n",
            "study.yaml: trials: is defined twice (lines 1 and 3). Keep one.",
        ),
        (
            b"optimizer:\n  lr: 1\n  lr: 2\n",
            "study.yaml: optimizer.lr: is defined twice (lines 2 and 3). Keep one.",
        ),
        (b"1: 2\n", "study.yaml: the key in line 1 must be text"),
        (b"name: x\n---\nname: y\n", "study.yaml: is not YAML: "),
        (
            b"name: !!python/object/apply:os.getcwd []\n",
            "study.yaml: is not YAML: could not determine a constructor",
        ),
        (b"[" * 500, "study.yaml: is nested more than 100 levels deep."),
        (
            b"trials: 99999999999999999999\n",
            "study.yaml: cannot be read: it contains an integer of more than 63 bits.",
        ),
    ],
)
def test_not_a_study(tmp_path, content, said):
    (tmp_path / "study.yaml").write_bytes(content)
    with pytest.raises(SpecError) as error:
        read_spec(tmp_path / "study.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    (tmp_path / "study.yml").touch()
    with pytest.raises(SpecError, match=r"^study.yaml: there .* Did you mean 'study.yml'\?$"):
        read_spec(tmp_path / "study.yaml")
    with pytest.raises(SpecError, match=r"is a folder\. Give the file"):
        read_spec(tmp_path)


JUNK = [
    None,
    True,
    math.nan,
    math.inf,
    -1,
    0,
    10**18,
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    {"name": None},
    [[]],
    [{}],
]


@pytest.mark.slow
def test_nothing_but_a_spec_error_comes_out():
    written = strict_yaml.read(DIGITS)

    def places(value, path=()):
        yield path
        inside = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value if isinstance(value, list) else ())
        )
        for key, inner in inside:
            yield from places(inner, (*path, key))

    for *outer, last in (path for path in places(written) if path):
        for junk in JUNK:
            spoilt = copy.deepcopy(written)
            inner = spoilt
            for key in outer:
                inner = inner[key]
            inner[last] = junk
            try:
                spec_from_mapping(spoilt, "study.yaml")
            except SpecError as error:
                assert "\n" not in str(error)


def test_objectives_that_the_data_cannot_answer():
    spec = small(objectives=[{"metric": "ts_top5_accuracy", "direction": "maximize"}])
    check_objectives(spec, 6)
    with pytest.raises(
        SpecError, match=r"objectives\[0\]\.metric: ts_top5_accuracy is undefined for 5 classes"
    ):
        check_objectives(spec, 5)
