"""What a stack saves: trials trained as one program, against the same trials alone, in one run.

    python -m benchmarks.stacks trials   # CPU seconds of the processes that train, results included
    python -m benchmarks.stacks runs     # whole runs of the digits study, `stack: off` and `auto`
    python -m benchmarks.stacks former   # a trial alone, today and at a former commit
    python -m benchmarks.stacks equal    # accuracy, NLL and ECE of pairs: alone, and in a stack

Prints Markdown for benchmarks/results/training.md. Arms are processes of one thread that take
turns; a ratio is the median over the rounds, and each of one round.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.training_process import Trials, arm

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "study" / "specs" / "digits.yaml"
FORMER = "ead18fa"
FIVE = ("cross_entropy", "brier", "focal", "label_smoothing", "mbls")
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
DIGITS: dict[str, Any] = {"data": {"name": "digits", "validation": 0.2}, "optimizer": SGD}
COLUMNS, SAMPLES = 512, 31_250  # of which a fifth is test, and of the rest validation


class Case(NamedTuple):
    """A study of which m trials of each label are a stack; few of them are trained alone."""

    name: str
    study: dict[str, Any]
    m: int
    few: int

    def trials(self) -> Trials:
        """By number, then label; with the defaults first, then random settings."""
        from benchmarks.search.curves import settings
        from study.schema.reading import spec_from_mapping
        from study.schema.variant import with_values

        spec = spec_from_mapping({"name": "stacks", **self.study}, "stacks")
        drawn = {one.label: settings(spec, one.label, self.m) for one in spec.variants}
        return [
            {**with_values(spec.trial_mapping(label), drawn[label][number]), "number": number}
            for number in range(self.m)
            for label in drawn
        ]


def cases(folder: Path, word: str) -> list[Case]:
    """Those with the word in their name."""
    from search_spaces import strict_yaml

    rates = {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}}
    focal = {**DIGITS, "methods": ["focal"], "search_space": rates}
    head = {
        "data": {"name": "table", "path": str(folder / "rows.parquet"), "validation": 0.2},
        "model": {"name": "mlp", "depth": 0},
        "methods": list(FIVE),
        "optimizer": {"name": "adam", "lr": 1e-3},
        "batch_size": 128,
        "search_space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    }
    found = [Case("mlp 128, digits, focal", {**focal, "model": "mlp"}, m, 8) for m in (4, 8)]
    found += [Case("the digits study", strict_yaml.read(SPEC), m, 2) for m in (4, 8)]
    found += [Case("linear head, five methods", head, m, 2) for m in (4, 8)]
    cnn = {"name": "cnn", "width": 4}
    found += [Case("cnn of width 4, digits, focal", {**focal, "model": cnn}, 8, 4)]
    found = [case for case in found if word in case.name]
    if any(case.study is head for case in found):
        write_rows(folder / "rows.parquet")
    return found


def write_rows(file: Path) -> None:
    """Ten classes that overlap."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    rows = random.standard_normal((SAMPLES, COLUMNS), dtype=np.float32)
    logits = rows @ random.standard_normal((COLUMNS, 10)) / 8
    labels = np.argmax(logits + random.gumbel(size=logits.shape), 1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), COLUMNS)
    pq.write_table(pa.table({"row": lists, "label": labels}), file)


def medians(found: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.median(found):,.{digits}f}"


def ratio(above: Sequence[float], below: Sequence[float]) -> str:
    """The median, and the extremes."""
    found = sorted(one / other for one, other in zip(above, below, strict=True))
    return f"{statistics.median(found):.3g}x ({found[0]:.3g}, {found[-1]:.3g})"


# ---- the parts -----------------------------------------------------------------------------------


def of_trials(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    from trainables.config import TrialConfig
    from trainables.stacks import why_alone

    yield "| case | K | alone, CPU ms a trial | in the stack | alone over stack (least, most) |"
    yield "|---|---|---|---|---|"
    for case in cases(folder, options.case):
        trials = case.trials()
        few = trials[: len(trials) * case.few // case.m]
        if (why := why_alone(TrialConfig.from_mapping(trials[0]))) is not None:
            yield f"| {case.name} | {len(trials)} | - | {why} | |"
            continue
        with arm(folder) as alone, arm(folder) as stacked:
            alone([{**few[0], "epochs": 1}], False)
            stacked([{**trial, "epochs": 1} for trial in trials], True)
            pairs = [(alone(few, False), stacked(trials, True)) for _ in range(options.rounds or 3)]
        one, other = (
            [1000 * each["seconds"] for each in arms] for arms in zip(*pairs, strict=True)
        )
        cells = [case.name, str(len(trials)), medians(one), medians(other), ratio(one, other)]
        yield f"| {' | '.join(cells)} |"


def of_former(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """Five trials of ten epochs a turn."""
    networks: dict[str, Any] = {"mlp": "mlp", "cnn of width 8": {"name": "cnn", "width": 8}}
    of = [("mlp", method) for method in ("cross_entropy", "focal", "mixup", "gamma_net")]
    former, git = folder / "former", ["git", "-C", str(ROOT), "worktree"]
    add = [*git, "add", "--quiet", "--detach", str(former), options.former]
    subprocess.run(add, check=True)
    yield f"| network | method | {options.former}, CPU ms a trial | today | today over it |"
    yield "|---|---|---|---|---|"
    with ExitStack() as stack:
        stack.callback(subprocess.run, [*git, "remove", "--force", str(former)])
        arms = [stack.enter_context(arm(folder, root)) for root in (former, ROOT)]
        for name, method in [*of, ("cnn of width 8", "focal")]:
            if options.case not in f"{name} {method}":
                continue
            base = {**DIGITS, "model": networks[name], "method": method, "epochs": 10}
            trials = [{**base, "number": number} for number in range(5)]
            found: list[list[float]] = [[], []]
            for train in arms:
                train(trials[:1], False)
            for _ in range(options.rounds or 10):
                for seconds, train in zip(found, arms, strict=True):
                    seconds.append(1000 * train(trials, False)["seconds"])
            cells = [name, method, *map(medians, found), ratio(found[1], found[0])]
            yield f"| {' | '.join(cells)} |"


def of_equal(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """Each method with its defaults, from seeds of its own; stacks of twenty, five epochs.
    An interval is of the mean, in deviations of a method's seeds."""
    yield "| precision | metric | pairs | deviation of seeds | mean difference | 95% interval |"
    yield "|---|---|---|---|---|---|"
    base = {**DIGITS, "model": "mlp", "epochs": 5}
    names = ("accuracy", "nll", "ece")
    with arm(folder) as alone, arm(folder) as stacked:
        for precision in ("float32", "bfloat16"):
            found: list[list[list[float]]] = [[], []]
            for first in range(0, options.pairs // len(FIVE), 20):
                trials = [
                    {**base, "precision": precision, "method": method, "number": number}
                    for number in range(first, first + 20)
                    for method in FIVE
                ]
                for values, each in zip(
                    found, (alone(trials, False), stacked(trials, True)), strict=True
                ):
                    values += [[of[name] for name in names] for of in each["metrics"]]
            one, other = (np.array(values).reshape(-1, len(FIVE), 3) for values in found)
            deviation = np.sqrt(one.var(0, ddof=1).mean(0))
            differences = (other - one).reshape(-1, 3)
            mean, count = differences.mean(0), len(differences)
            half = 1.96 * differences.std(0, ddof=1) / count**0.5
            for name, *values in zip(names, deviation, mean, half, strict=True):
                of_seeds, by, width = values
                interval = f"{(by - width) / of_seeds:+.4f}, {(by + width) / of_seeds:+.4f}"
                cells = f"{count} | {of_seeds:.4f} | {by:+.1e} | {interval}"
                yield f"| {precision} | {name} | {cells} |"


def of_runs(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    yield "| stack | wall s | driver, CPU s | processes that train | others |"
    yield "|---|---|---|---|---|"
    found: dict[str, list[list[float]]] = {"off": [], "auto": []}
    for number in range(options.rounds or 3):
        for how, runs in found.items():
            runs.append(run(folder / f"{how}-{number}", how))
    columns = {how: list(zip(*runs, strict=True)) for how, runs in found.items()}
    for how, each in columns.items():
        yield f"| {how} | {' | '.join(medians(values, 1) for values in each)} |"
    yield f"| off over auto | {' | '.join(map(ratio, columns['off'], columns['auto']))} |"


def run(folder: Path, how: str) -> list[float]:
    """Seconds of the digits study: of the clock, and CPU of driver, actors and others."""
    from benchmarks.chaos.processes import ACTOR, MARK, command_line, marked

    folder.mkdir()
    file, mark = folder / "digits.yaml", secrets.token_hex(8)
    file.write_text(f"{SPEC.read_text()}\nstack: {how}\n")
    words = ["-m", "study.cli", "run", str(file), "--storage", str(folder / "studies")]
    roles: dict[int, str] = {}
    spent: dict[int, float] = {}
    before = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", *words],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        stdout=subprocess.DEVNULL,
    )
    roles[process.pid] = "driver"
    while process.poll() is None:
        for pid in marked(mark):
            with suppress(OSError):
                ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                spent[pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            if ACTOR in command_line(pid):
                roles[pid] = "actor"
        time.sleep(0.2)
    wall = time.monotonic() - before
    if process.returncode:
        raise SystemExit(f"the run ended with exit code {process.returncode}")
    found = dict.fromkeys(("driver", "actor", "other"), 0.0)
    for pid, seconds in spent.items():
        found[roles.get(pid, "other")] += seconds
    return [wall, *found.values()]


PARTS = {
    "trials": of_trials,
    "runs": of_runs,
    "former": of_former,
    "equal": of_equal,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS, default="trials")
    parser.add_argument("--case", default="", help="words of its name")
    parser.add_argument("--rounds", type=int, help="default: 3; of `former` 10")
    parser.add_argument("--pairs", type=int, default=800, help="of `equal`")
    parser.add_argument("--former", default=FORMER, help="a commit of this repository")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stacks-") as folder:
        print(f"load {os.getloadavg()[0]:.1f}\n")
        for line in PARTS[options.part](Path(folder), options):
            print(line, flush=True)
        print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
