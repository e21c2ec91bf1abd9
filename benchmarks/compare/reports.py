"""Public bug reports about metrics of predictions, each on an input whose exact answer is known:
who computes it, who refuses the input, and who gives another number without a word.

    make compare                                    # in its environment, after the comparisons
    python -m benchmarks.compare.reports --found    # in any that has the packages

The exact answers are fractions, or logarithms of some. `right`: within 1e-4 of the answer;
`refused`: an error, and ours must name the mend; `warned`: another number, or none (NaN), with a
warning; `silent`: without one; `-`: the tool has no such function. Exit code 1 unless ours is
right, or refuses and names the mend, in every kind.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction as F
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import torch

TOLERANCE = 1e-4
BINS = 15
TOOLS = ("calstudy", "torchmetrics", "netcal", "scikit-learn")
FUTURE = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)  # not about a number
Ask = Callable[[], float]


class Kind(NamedTuple):
    """What was reported, where, and what each tool is asked that has a function for it.

    exact: the answer; NaN: no number is. log_loss: the answer of scikit-learn, without an ECE.
    """

    name: str
    where: str
    exact: F | float
    calstudy: Ask
    torchmetrics: Ask | None = None
    netcal: Ask | None = None
    sklearn: Ask | None = None
    log_loss: float | None = None


class Outcome(NamedTuple):
    """The word for the table, and the number or the error."""

    word: str
    found: str = ""


# ---- what the tools are asked --------------------------------------------------------------------


def asked(function: Callable[..., float]) -> Callable[..., Ask]:
    """Put off the call, and the import of the package, until the table is made."""
    return lambda *given, **options: partial(function, *given, **options)


@asked
def calstudy(labels: Any, metric: str = "ece", **given: Any) -> float:
    import calstudy

    return calstudy.evaluate(labels, metrics=[metric], intervals=False, **given).metrics[metric][0]


@asked
def command(table: pandas.DataFrame, *options: str) -> float:
    """The ECE that `calstudy evaluate` prints of a csv file."""
    from study.cli import calstudy as command_line

    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        file = Path(folder) / "predictions.csv"
        table.to_csv(file, index=False)
        words = ["evaluate", str(file), "--no-intervals", "--json", *options]
        command_line.main(words, standalone_mode=False)
    return json.loads(said.getvalue())["metrics"]["ece"]


@asked
def torchmetrics(labels: Any, scores: Any, **options: Any) -> float:
    from torchmetrics.functional import classification

    preds, target = torch.as_tensor(scores), torch.as_tensor(labels)
    if preds.ndim == 1:
        return float(classification.binary_calibration_error(preds, target, BINS))
    ece = classification.multiclass_calibration_error
    return float(ece(preds, target, preds.shape[1], BINS, **options))


@asked
def netcal(labels: Any, scores: Any, **options: Any) -> float:
    from netcal.metrics import ECE

    if not isinstance(scores, pandas.DataFrame):
        scores, labels = np.asarray(scores), np.asarray(labels)
    return float(ECE(BINS, **options).measure(scores, labels))


@asked
def log_loss(labels: Any, scores: Any, /, **options: Any) -> float:
    from sklearn import metrics

    return float(metrics.log_loss(labels, scores, **options))


@asked
def quantile_curve(labels: Any, scores: Any) -> float:
    """How far scikit-learn's calibration curve is from the diagonal; one point, if all tie."""
    from sklearn.calibration import calibration_curve

    true, predicted = calibration_curve(labels, scores, n_bins=BINS, strategy="quantile")
    return float(np.abs(true - predicted).mean())


# ---- the kinds -----------------------------------------------------------------------------------

SURE = F(7, 10)  # the confidence in most kinds
ALL_RIGHT = -math.log(SURE)  # the log loss where labels have this probability
BOTH = np.array([[0.7, 0.3], [0.3, 0.7]])  # the first class, then the second
THREE = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
SMALL = [[math.log(F(7, 3)), 0.0]] * 4  # logits; their softmax is .7, .3
LARGE = [[math.log(7) + 1, math.log(3) + 1]] * 4  # of these too
ABOVE = np.array([[np.nextafter(np.float32(1), np.float32(2)), 0], [0.95, 0.05]], np.float32)
PETS = ["dog", "cat"]
ONE = [[0.95, 0.05], [1.0, 0.0]]
SHORT = [[0.2, 0.3], [0.2, 0.3]]
# Eleven classes, each predicted once, rightly, with .7.
ELEVEN = pandas.DataFrame(np.eye(11) * 0.67 + 0.03, columns=[f"p_{each}" for each in range(11)])
TEXTS = [str(each) for each in range(11)]
MASKED = pandas.DataFrame({"y": [0, 1, -1], "p_0": [0.7, 0.3, 0.7], "p_1": [0.3, 0.7, 0.3]})
HALF = torch.tensor([[0.75, 0.25]] * 5000).half()
OF_HALF = np.array([0] * 3000 + [1] * 2000)  # 3 of 5 right
TIES = BOTH[[1] * 30]
OF_TIES = np.array([1] * 15 + [0] * 15)
INDEXED = pandas.DataFrame(BOTH[[1, 1, 0]], index=["a", "b", "c"])
BY_INDEX = pandas.Series([0, 1, 1], index=["c", "b", "a"])

KINDS = (
    Kind("logits that all lie in [0, 1]", "Lightning-AI/torchmetrics#3269, #2195, #1604",
         F(3, 4) - SURE, calstudy([0, 0, 0, 1], logits=SMALL), torchmetrics([0, 0, 0, 1], SMALL)),
    Kind("logits where probabilities are wanted",
         "Lightning-AI/torchmetrics#974, EFS-OpenSource/calibration-framework#63",
         F(3, 4) - SURE, calstudy([0, 0, 0, 1], probs=LARGE), torchmetrics([0, 0, 0, 1], LARGE),
         netcal([0, 0, 0, 1], LARGE), log_loss([0, 0, 0, 1], LARGE),
         -(3 * math.log(SURE) + math.log(1 - SURE)) / 4),
    # .95 and 1 share the last bin, and the second is wrong.
    Kind("a probability that rounding lifts above 1", "facebookresearch/fastText#718",
         F(39, 40) - F(1, 2), calstudy([0, 1], probs=ABOVE), torchmetrics([0, 1], ABOVE),
         netcal([0, 1], ABOVE), log_loss([0, 1], ABOVE), -math.log(F(1, 20)) / 2),
    Kind("a confidence of exactly 1", "Lightning-AI/torchmetrics#3510", F(39, 40) - F(1, 2),
         calstudy([0, 1], probs=ONE), torchmetrics([0, 1], ONE), netcal([0, 1], ONE)),
    # Predicted with 3/4 each, and 3 of 4 are right.
    Kind("one column of scores for two classes",
         "Lightning-AI/torchmetrics#1105, #2519, EFS-OpenSource/calibration-framework#17, #25",
         F(0), calstudy([0, 0, 0, 1], probs=[0.25, 0.75] * 2),
         torchmetrics([0, 0, 0, 1], [0.25, 0.75] * 2), netcal([0, 0, 0, 1], [0.25, 0.75] * 2)),
    Kind("probability 0 of what happened", "scikit-learn/scikit-learn#17399, #24315",
         math.inf, calstudy([0, 1], "nll", probs=ONE), sklearn=log_loss([0, 1], ONE)),
    Kind("rows that do not sum to 1",
         "scikit-learn/scikit-learn#24515, Lightning-AI/torchmetrics#264", math.nan,
         calstudy([1, 0], probs=SHORT), torchmetrics([1, 0], SHORT), netcal([1, 0], SHORT),
         log_loss([1, 0], SHORT)),
    Kind("words as labels, columns not in their order", "scikit-learn/scikit-learn#30910",
         1 - SURE, calstudy(PETS, probs=BOTH, classes=PETS), None, netcal(PETS, BOTH),
         log_loss(PETS, BOTH, labels=PETS), ALL_RIGHT),
    Kind("class 10 before class 2", "openml/automlbenchmark#212, mljar/mljar-supervised#245",
         1 - SURE, calstudy(range(11), probs=ELEVEN[sorted(ELEVEN)]),
         sklearn=log_loss(TEXTS, ELEVEN.to_numpy(), labels=TEXTS), log_loss=ALL_RIGHT),
    Kind("labels from 1 to K", "open-edge-platform/geti#2736", 1 - SURE,
         calstudy([1, 2, 3], probs=THREE), torchmetrics([1, 2, 3], THREE),
         netcal([1, 2, 3], THREE), log_loss([1, 2, 3], THREE), ALL_RIGHT),
    Kind("samples to ignore, labelled -1", "Lightning-AI/torchmetrics#1393", 1 - SURE,
         command(MASKED, "--label", "y", "--probs", "p_*", "--ignore", "-1"),
         torchmetrics([0, 1, -1], BOTH[[0, 1, 0]], ignore_index=-1),
         netcal([0, 1, -1], BOTH[[0, 1, 0]]), log_loss([0, 1, -1], BOTH[[0, 1, 0]]), ALL_RIGHT),
    Kind("one class alone among the labels", "scikit-learn/scikit-learn#6703, #18523", 1 - SURE,
         calstudy([1, 1], probs=BOTH[[1, 1]]), torchmetrics([1, 1], BOTH[[1, 1]]),
         netcal([1, 1], BOTH[[1, 1]]), log_loss([1, 1], BOTH[[1, 1]]), ALL_RIGHT),
    Kind("float16, 5,000 rows", "Lightning-AI/pytorch-lightning#4840, datamol-io/graphium#429",
         F(3, 4) - F(3, 5), calstudy(OF_HALF, probs=HALF), torchmetrics(OF_HALF, HALF),
         netcal(OF_HALF, HALF.numpy()), log_loss(OF_HALF, HALF.numpy()),
         -(3 * math.log(F(3, 4)) + 2 * math.log(F(1, 4))) / 5),
    Kind("pandas objects, rows in another order", "scikit-learn/scikit-learn#25419", 1 - SURE,
         calstudy(BY_INDEX, probs=INDEXED), None, netcal(BY_INDEX, INDEXED),
         log_loss(BY_INDEX, INDEXED), ALL_RIGHT),
    Kind("equal counts in bins, where all confidences tie",
         "Khanz9664/TrustLens#144, lorenzofamiglini/CalFram#4", SURE - F(1, 2),
         calstudy(OF_TIES, "adaptive_ece", probs=TIES), None,
         netcal(OF_TIES, TIES, equal_intervals=False), quantile_curve(OF_TIES, TIES[:, 1])),
)  # fmt: skip


# ---- the table -----------------------------------------------------------------------------------


def outcome(tool: str, ask: Ask | None, exact: float) -> Outcome:
    """What became of the question."""
    if ask is None:
        return Outcome("-")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            value = ask()
        except Exception as error:  # whatever a package makes of it
            meant = tool != TOOLS[0] or bool(getattr(error, "mend", ""))
            return Outcome("refused" if meant else "no mend", f"{type(error).__name__}: {error}")
    if value == exact or abs(value - exact) <= TOLERANCE:
        return Outcome("right", f"{value:.6g}")
    said = any(not issubclass(each.category, FUTURE) for each in heard)
    answer = "an error" if math.isnan(exact) else f"{exact:.6g}"
    return Outcome("warned" if said else "silent", f"{value:.6g}, not {answer}")


def outcomes(kind: Kind) -> dict[str, Outcome]:
    """By tool."""
    exact = float(kind.exact)
    of_sklearn = exact if kind.log_loss is None else kind.log_loss
    asks = (kind.calstudy, kind.torchmetrics, kind.netcal, kind.sklearn)
    answers = (exact, exact, exact, of_sklearn)
    return {tool: outcome(tool, *each) for tool, *each in zip(TOOLS, asks, answers, strict=True)}


def main() -> int:
    options = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    options.add_argument("--found", action="store_true", help="also print the numbers and errors")
    given = options.parse_args()
    packages = (*TOOLS[1:], "torch", "numpy", "pandas")
    print(", ".join(f"{name} {version(name)}" for name in packages))
    print(f"\n| reported | {' | '.join(TOOLS)} | where |\n|{'---|' * (len(TOOLS) + 2)}")
    totals = {tool: Counter[str]() for tool in TOOLS}
    for kind in KINDS:
        found = outcomes(kind)
        cells = (kind.name, *(each.word for each in found.values()), kind.where)
        print(f"| {' | '.join(cells)} |")
        for tool, each in found.items():
            totals[tool][each.word] += 1
            if given.found and each.found:
                print(f"    {tool}: {each.found}")
    for tool, counted in totals.items():
        print(f"\n{tool}: {', '.join(f'{count} {word}' for word, count in counted.most_common())}")
    return 0 if set(totals[TOOLS[0]]) <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main())
