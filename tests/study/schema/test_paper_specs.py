"""The studies of the papers: all are read by the checker, at the protocol their papers state;
each but the toy and the studies of claims has a short form."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import study
from study.schema.reading import read_spec
from study.schema.spec import StudySpec
from trainables.data.gaussian_clusters import GaussianClusters
from trainables.data.text import Text
from trainables.methods.focal_scheduled import FocalScheduled
from trainables.models.cnn import Cnn
from trainables.models.global_pooling_cnn import GlobalPoolingCnn
from trainables.models.mlp import Mlp
from trainables.models.tree_lstm import TreeLstm
from trainables.models.unet import Unet
from trainables.plugins import name_of

FOLDER = Path(study.__file__).parent / "specs" / "papers"
TABLES = sorted(FOLDER.glob("*.table.yaml"))  # tests/study/reproduction reads them
FILES = sorted({*FOLDER.glob("*.yaml")} - {*TABLES})
TOY = FOLDER / "focal_toy.yaml"  # itself short; tests/data/test_gaussian_clusters.py trains it
CLAIMS = [FOLDER / "claims_fashion.yaml", FOLDER / "claims_newsgroups.yaml"]  # protocols of ours
SST = [FOLDER / "focal_sst.yaml", FOLDER / "focal_sst_short.yaml"]  # of trees: a test of its own
SMALL = [TOY, *CLAIMS, *SST]
FULL = [file for file in FILES if not file.stem.endswith("_short") and file not in SMALL]
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
every_full = pytest.mark.parametrize("file", FULL, ids=lambda file: file.stem)

# Paper, or paper and set: batch, epochs, and the learning rate from each epoch on, counted from 0.
STEPS_OF_350 = {0: 0.1, 149: 0.1, 150: 0.01, 249: 0.01, 250: 0.001, 349: 0.001}
STEPS_OF_100 = {0: 0.1, 39: 0.1, 40: 0.01, 59: 0.01, 60: 0.001, 99: 0.001}
# As the focal paper's code drops it on PyTorch 1.1 and later.
RELEASED_OF_350 = {0: 0.1, 148: 0.1, 149: 0.01, 248: 0.01, 249: 0.001, 349: 0.001}
RELEASED_OF_100 = {0: 0.1, 38: 0.1, 39: 0.01, 58: 0.01, 59: 0.001, 99: 0.001}
OF_TEXTS = ("focal_20newsgroups", "mbls_20newsgroups")
PROTOCOLS: dict[str, tuple[int, int, dict[int, float]]] = {
    **{name: (128, 50, {0: 1e-3, 49: 1e-3}) for name in OF_TEXTS},
    "focal_cifar10": (128, 350, RELEASED_OF_350),
    "focal_cifar100": (128, 350, RELEASED_OF_350),
    "focal_tiny_imagenet": (64, 100, RELEASED_OF_100),
    "mbls_cifar10": (128, 200, {0: 0.1, 149: 0.1, 150: 0.01, 199: 0.01}),
    "mbls_cub200": (32, 200, {0: 0.1, 149: 0.1, 150: 0.01, 199: 0.01}),
    "mbls_tiny_imagenet": (64, 100, STEPS_OF_100),
    "mbls_voc": (8, 200, {0: 0.1, 149: 0.1, 150: 0.01, 199: 0.01}),
    "meta_regularization_cifar10": (128, 350, STEPS_OF_350),
    "meta_regularization_cifar100": (128, 350, STEPS_OF_350),
    "meta_regularization_tiny_imagenet": (64, 100, STEPS_OF_100),
    # Half of a cosine: half the rate at half the training.
    **{
        f"sample_prioritization_cifar10{part}": (64, 200, {0: 0.01, 100: 0.005})
        for part in ("", "_target", "_guided")
    },
    **{
        f"sample_prioritization_cifar100{part}": (64, 200, {0: 0.1, 100: 0.05})
        for part in ("", "_target", "_guided")
    },
}


@cache
def read(name: str) -> StudySpec:
    return read_spec(FOLDER / f"{name}.yaml")


@every_file
def test_it_is_read_and_bears_the_name_of_its_file(file: Path) -> None:
    spec = read(file.stem)
    assert spec.name == file.stem
    assert file.read_text().startswith("# "), "it says which table of which paper it is"


@every_file
def test_nothing_is_searched_a_paper_states_its_settings(file: Path) -> None:
    searched = {variant.label: variant.space.distributions for variant in read(file.stem).variants}
    assert not any(searched.values()), searched


@every_full
def test_it_has_the_protocol_of_its_paper(file: Path) -> None:
    spec, (batch, epochs, rates) = read(file.stem), PROTOCOLS[file.stem]
    assert (spec.batch_size, spec.epochs) == (batch, epochs)
    # The focal paper's code sums its losses over a batch, all but Brier's.
    if file.stem in OF_TEXTS:  # Adam takes the same steps of both
        assert (spec.optimizer.name, spec.optimizer.weight_decay) == ("adam", 0.0)
        assert [spec.optimizer.learning_rate(epoch / epochs) for epoch in rates] == [1e-3, 1e-3]
        return
    samples = batch if file.stem.startswith("focal_") else 1
    for variant in spec.variants:
        optimizer = spec.trial(variant.label).optimizer
        summed = 1 if variant.label == "brier" else samples
        assert (optimizer.name, optimizer.momentum) == ("sgd", 0.9)
        assert optimizer.weight_decay * summed == 5e-4
        assert optimizer.clip is None or optimizer.clip * summed == 2.0
        first = 0.35 if (file.stem, variant.label) == ("focal_tiny_imagenet", "brier") else 1.0
        for epoch, rate in rates.items():
            found = optimizer.learning_rate(epoch / epochs)
            assert found == pytest.approx(rate * summed * first), (variant.label, epoch)
    assert spec.data.augment == "crop_flip" and spec.data.validation == 0.1
    # Of 32 pixels, null is 4 as well.
    assert spec.data.padding == (4 if "tiny_imagenet" in file.stem else None)


@every_full
def test_its_short_form_differs_in_size_and_network_alone(file: Path) -> None:
    full, short = read(file.stem).to_mapping(), read(f"{file.stem}_short").to_mapping()
    for plain in (full, short):
        for key in ("name", "epochs", "trials", "resources", "model"):
            del plain[key]
        for key in ("limit", "size", "length", "vectors"):
            plain["data"].pop(key, None)
    assert _with_short_target(full) == short
    small = read(f"{file.stem}_short")
    assert small.epochs <= 3 and small.data.limit <= 2000
    smallest = {"mbls_voc": Unet()}.get(file.stem, Cnn())
    if file.stem in OF_TEXTS:
        smallest = GlobalPoolingCnn(width=50, channels=32, dropout=read(file.stem).model.dropout)
    assert small.model == smallest, "the papers' networks take minutes a trial without a GPU"


@pytest.mark.parametrize("name", OF_TEXTS)
def test_texts_are_cut_and_vectors_kept_as_in_the_released_code(name: str) -> None:
    spec = read(name)
    assert isinstance(spec.data, Text) and isinstance(spec.model, GlobalPoolingCnn)
    assert (spec.data.vocabulary, spec.data.length, spec.data.keep) == (20_000, 1000, "last")
    assert spec.data.vectors is not None and spec.data.vectors.endswith("data/glove.6B.100d.txt")
    assert not spec.model.train_vectors and (spec.model.width, spec.model.channels) == (100, 128)
    assert spec.model.dropout == (0.3 if name == "focal_20newsgroups" else 0.0)
    assert spec.result == "best_accuracy"


def test_the_toy_is_plain_gradient_descent_on_all_of_its_4000_samples() -> None:
    spec = read("focal_toy")
    clusters = spec.data
    assert isinstance(clusters, GaussianClusters) and spec.model == Mlp(depth=0)
    assert (1 - clusters.validation) * clusters.train == spec.batch_size == 4000
    assert (clusters.test, clusters.flipped, spec.diagnostics) == (1000, 0.1, True)
    optimizer = spec.optimizer
    assert (optimizer.name, optimizer.schedule) == ("sgd", "constant")
    assert optimizer.momentum == optimizer.weight_decay == 0


def test_sst_has_the_protocol_of_the_released_code() -> None:
    """Its weight decay is of a sum over the 37.5 nodes of a sentence: 2 * 19.3 words, less 1."""
    full, short = (read(file.stem) for file in SST)
    assert (full.batch_size, full.epochs, full.result) == (25, 25, "best_accuracy")
    rule = full.optimizer
    assert (rule.name, rule.lr, rule.schedule) == ("adagrad", 0.05, "constant")
    assert rule.weight_decay * 37.5 == pytest.approx(1e-4, rel=0.01) and rule.clip is None
    model = full.model
    assert isinstance(model, TreeLstm) and not model.output_gate and not model.train_vectors
    assert (model.memory, model.width, model.dropout) == (150, 300, 0.5)
    for variant in full.variants:
        if isinstance(variant.method, FocalScheduled):
            assert [step * full.epochs for step in variant.method.steps] == pytest.approx([3, 7])
    methods = ({v.label: v.method for v in spec.variants} for spec in (full, short))
    assert next(methods) == next(methods)
    assert (short.optimizer, short.batch_size, short.result) == (rule, 25, full.result)
    assert short.epochs <= 3 and short.data.limit <= 2000 and short.data.vectors is None


def _with_short_target(plain: Any) -> Any:
    """A short form is guided by a short form."""
    if isinstance(plain, dict):
        return {key: _with_short_target(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_with_short_target(value) for value in plain]
    return plain.replace("_target/", "_target_short/") if isinstance(plain, str) else plain


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
@pytest.mark.parametrize("short", ["", "_short"])
def test_what_guides_is_a_trial_of_the_same_data_that_records(data: str, short: str) -> None:
    guided = read(f"sample_prioritization_{data}_guided{short}")
    target = read(f"sample_prioritization_{data}_target{short}")
    assert target.record == "train_entropy"
    assert name_of(type(target.model)) == ("cnn" if short else "resnet50")
    assert (guided.data, guided.seed) == (target.data, target.seed)
    labels = [variant.label for variant in target.variants]
    for variant in guided.variants:
        assert variant.method.target == f"{target.name}/{labels[0]}/0"
        assert variant.method.warmup * guided.epochs == (10 if not short else 0.05 * guided.epochs)


def test_all_of_them_are_installed_with_the_package() -> None:
    """`pip install` takes along what package-data names."""
    package = Path(study.__file__).parent
    patterns = tomllib.loads((package.parent / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    taken = {file for pattern in patterns["study"] for file in package.glob(pattern)}
    assert {*FILES, *TABLES} <= taken and len(FILES) == 2 * len(PROTOCOLS) + len(SMALL)
