"""What a stack saves: trials trained as one program, against the same trials alone, in one run.

    python -m benchmarks.stacks trials   # CPU seconds of the processes that train, results included
    python -m benchmarks.stacks runs     # whole runs of the digits study, `stack: off` and `auto`
    python -m benchmarks.stacks memory   # of a process, above one that trains one trial
    python -m benchmarks.stacks former   # a trial alone, today and at a former commit
    python -m benchmarks.stacks equal    # accuracy, NLL and ECE of pairs: alone, and in a stack

Prints Markdown for RESULTS.md. Arms are processes of one thread that take turns; a ratio is of two
arms of the same round, and the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FORMER = "ead18fa"
FIVE = ("cross_entropy", "brier", "focal", "label_smoothing", "mbls")
DIGITS = {"data": {"name": "digits", "validation": 0.2}, "batch_size": 64, "epochs": 20}
SGD = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}}
RATES = {"search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}}}
MIB = 2**20
Trials = list[dict[str, Any]]  # mappings for `TrialConfig.from_mapping`
Arm = Callable[[Trials, bool], dict[str, float]]


@dataclass(frozen=True)
class Case:
    """A study of which m numbers of each label are a stack; `alone` of them are trained alone."""

    name: str
    study: dict[str, Any]
    numbers: int
    alone: int

    @property
    def trials(self) -> Trials:
        """By number, then label: settings as `python -m benchmarks.search record` draws them."""
        import optuna

        from benchmarks.search.curves import settings
        from study.schema.reading import spec_from_mapping
        from study.schema.variant import with_values

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        spec = spec_from_mapping({"name": "stacks", **self.study}, "stacks")
        drawn = {one.label: settings(spec, one.label, self.numbers) for one in spec.variants}
        return [
            {**with_values(spec.trial_mapping(label), drawn[label][number]), "number": number}
            for number in range(self.numbers)
            for label in drawn
        ]


def cases(folder: Path, word: str) -> Iterator[Case]:
    """Those with the word in their name."""
    return (case for case in all_cases(folder) if word in case.name)


def all_cases(folder: Path) -> Iterator[Case]:
    from search_spaces import strict_yaml

    mlp = {**DIGITS, **SGD, **RATES, "model": "mlp", "methods": ["focal"]}
    for k in (8, 64):
        yield Case("mlp 128, digits, focal", mlp, k, 8)
    study = strict_yaml.read(ROOT / "study" / "specs" / "digits.yaml")
    for m in (2, 4):
        yield Case("the digits study", study, m, 2)
    for m in (4, 17):
        yield Case("linear head, five methods", head_study(folder), m, 2)
    yield Case("cnn 4, digits, focal", {**mlp, "model": {"name": "cnn", "width": 4}}, 8, 4)


def head_study(folder: Path) -> dict[str, Any]:
    """Logistic regression on 20,000 rows of 512 numbers, of ten classes that overlap."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, samples, columns = (
        folder / "rows.parquet",
        31_250,
        512,
    )  # a fifth is test, then validation
    if not file.exists():
        random = np.random.default_rng(0)
        rows = random.standard_normal((samples, columns), dtype=np.float32)
        logits = rows @ random.standard_normal((columns, 10)) / 8
        labels = np.argmax(logits + random.gumbel(size=logits.shape), 1)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), columns)
        pq.write_table(pa.table({"row": lists, "label": labels}), file)
    data = {"name": "table", "path": str(file), "validation": 0.2}
    return {
        **{"data": data, "model": {"name": "mlp", "depth": 0}, "methods": list(FIVE)},
        **{"optimizer": {"name": "adam", "lr": 1e-3}, "batch_size": 128, "epochs": 20},
        "search_space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    }


# ---- processes that train ------------------------------------------------------------------------


def work() -> None:
    """Train what each line of JSON says, and answer with one; by whichever commit is imported."""
    import torch

    from trainables.machine import keep_freed_memory

    # An editable install would find here what a former commit does not have.
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
    torch.set_num_threads(1)
    keep_freed_memory()
    for line in sys.stdin:
        asked, before = json.loads(line), time.process_time()
        with tempfile.TemporaryDirectory(prefix="stacks-") as folder:
            (train_stacked if asked["stacked"] else train_alone)(asked["trials"], Path(folder))
        seconds = (time.process_time() - before) / len(asked["trials"])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "memory": memory}), flush=True)


def read(trials: Trials) -> tuple[list[Any], Any, Any]:
    """Their configs, data and device."""
    import torch

    from trainables.config import TrialConfig
    from trainables.loading.trial_data import trial_data

    configs = [TrialConfig.from_mapping(trial) for trial in trials]
    cpu = torch.device("cpu")
    return configs, trial_data(configs[0], cpu), cpu


def train_alone(trials: Trials, folder: Path) -> list[dict[str, float]]:
    from trainables.training.learner import Diverged, Learner

    configs, data, device = read(trials)
    found = []
    for config in configs:
        learner = Learner(config, data, device)
        with suppress(Diverged):
            while not learner.finished:
                learner.train_epoch()
            found.append(result(learner, folder))
    return found


def train_stacked(trials: Trials, folder: Path) -> list[dict[str, float]]:
    from trainables.training.stack import Stack

    stack = Stack(*read(trials))
    while not stack.finished:
        stack.advance()
    return [result(row, folder) for row in stack.rows if row in stack.training]


def result(learner: Any, folder: Path) -> dict[str, float]:
    """What a trial leaves, written as in a study; its metrics."""
    learner.take_result()
    predictions = learner.predictions()
    (folder / "history.json").write_text(json.dumps(learner.history))
    predictions.save(folder / "predictions.npz")
    learner.classifier().save(folder / "model.pt")
    found: dict[str, float] = predictions.evaluate()
    return found


@contextmanager
def arm(folder: Path, root: Path = ROOT) -> Iterator[Arm]:
    """A process that trains by the code of `root`: a function of trials, alone or stacked."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    environment["CALSTUDY_CACHE"] = str(folder / f"cache-{root.name}")
    command, pipe = [sys.executable, "-W", "ignore", __file__, "--work"], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def trained(trials: Trials, stacked: bool) -> dict[str, float]:
            assert process.stdin is not None and process.stdout is not None
            print(
                json.dumps({"trials": trials, "stacked": stacked}), file=process.stdin, flush=True
            )
            answer: dict[str, float] = json.loads(process.stdout.readline())
            return answer

        yield trained
        process.stdin.close()


def ratios(above: Sequence[float], below: Sequence[float]) -> str:
    """The median, and the extremes."""
    found = sorted(one / other for one, other in zip(above, below, strict=True))
    return f"{statistics.median(found):.3g}x ({found[0]:.3g}, {found[-1]:.3g})"


# ---- the parts -----------------------------------------------------------------------------------


def of_trials(folder: Path, rounds: int, word: str) -> Iterator[str]:
    from trainables.stacks import why_alone

    yield "| case | K | alone, CPU ms a trial | in the stack | alone over stack (least, most) |"
    yield "|---|---|---|---|---|"
    for case in cases(folder, word):
        trials = case.trials
        few = trials[: len(trials) * case.alone // case.numbers]
        if (why := why_alone(read(trials)[0][0])) is not None:
            yield f"| {case.name} | {len(trials)} | alone: {why} | | |"
            continue
        with arm(folder) as alone, arm(folder) as stacked:
            warm = [{**trial, "epochs": 1} for trial in trials]
            alone(warm[:1], False), stacked(warm, True)
            pairs = [(alone(few, False), stacked(trials, True)) for _ in range(rounds)]
        one, other = ([each["seconds"] for each in found] for found in zip(*pairs, strict=True))
        cells = [f"{1000 * statistics.median(each):.0f}" for each in (one, other)]
        yield f"| {case.name} | {len(trials)} | {' | '.join(cells)} | {ratios(one, other)} |"


def of_memory(folder: Path, word: str) -> Iterator[str]:
    """A process each: the most that it took."""
    from trainables.loading.trial_data import prepared_for
    from trainables.stacks import row_bytes, why_alone

    yield "| case | K | one trial, MiB | the stack above it | data once more + K times a row |"
    yield "|---|---|---|---|---|"
    for case in cases(folder, word):
        trials = case.trials
        (config, *_), _, device = read(trials[-1:])
        if why_alone(config) is not None:
            continue
        found = []
        for some in (trials[-1:], trials):
            with arm(folder) as fresh:
                found.append(fresh([{**one, "epochs": 2} for one in some], len(some) > 1)["memory"])
        prepared = prepared_for(config, device)
        size = sum(each.stat().st_size for each in prepared.directory.glob("*.npy"))
        most = size + len(trials) * row_bytes(config, prepared)
        cells = (found[0], found[1] - found[0], most)
        cells = " | ".join(f"{each / MIB:.0f}" for each in cells)
        yield f"| {case.name} | {len(trials)} | {cells} |"


def of_former(folder: Path, rounds: int, commit: str) -> Iterator[str]:
    """Five trials a turn."""
    base = {**DIGITS, **SGD, "epochs": 10}
    networks: list[tuple[str, Any, str]] = [
        *(("mlp", "mlp", method) for method in ("focal", "mixup", "gamma_net")),
        ("cnn of width 8", {"name": "cnn", "width": 8}, "focal"),
    ]
    git = ["git", "-C", str(ROOT), "worktree"]
    former = folder / "former"
    subprocess.run([*git, "add", "--quiet", "--detach", str(former), commit], check=True)
    yield f"| network | method | {commit}, CPU ms a trial | today | today over {commit} |"
    yield "|---|---|---|---|---|"
    with ExitStack() as stack:
        stack.callback(subprocess.run, [*git, "remove", "--force", str(former)])
        arms = [stack.enter_context(arm(folder, root)) for root in (former, ROOT)]
        for name, model, method in networks:
            trials = [{**base, "model": model, "method": method, "number": n} for n in range(5)]
            [train([{**trials[0], "epochs": 1}], False) for train in arms]
            pairs = [[train(trials, False)["seconds"] for train in arms] for _ in range(rounds)]
            before, now = (list(each) for each in zip(*pairs, strict=True))
            cells = [f"{1000 * statistics.median(each):.0f}" for each in (before, now)]
            yield f"| {name} | {method} | {' | '.join(cells)} | {ratios(now, before)} |"


def of_equal(folder: Path, pairs: int) -> Iterator[str]:
    """Each method by its defaults, from seeds of its own; stacks of twenty numbers."""
    columns = ("precision", "metric", "pairs", "deviation of seeds", "mean difference")
    yield f"| {' | '.join(columns)} | its 95% interval, in deviations |"
    yield "|---|---|---|---|---|---|"
    base = {**DIGITS, **SGD, "model": "mlp", "epochs": 5}
    for precision in ("float32", "bfloat16"):
        alone, stacked = defaultdict(list), defaultdict(list)
        for first in range(0, pairs // len(FIVE), 20):
            trials = [
                {**base, "precision": precision, "method": method, "number": number}
                for number in range(first, first + 20)
                for method in FIVE
            ]
            for found, train in ((alone, train_alone), (stacked, train_stacked)):
                for place, metrics in enumerate(train(trials, folder)):
                    found[place % len(FIVE)].append(metrics)
        for metric in ("accuracy", "nll", "ece"):
            one, other = (
                np.array([[each[metric] for each in found[place]] for place in sorted(found)])
                for found in (alone, stacked)
            )
            deviation = float(np.sqrt(one.var(1, ddof=1).mean()))
            differences = (other - one).ravel()
            mean = float(differences.mean())
            half = 1.96 * float(differences.std(ddof=1)) / len(differences) ** 0.5
            low, high = (mean - half) / deviation, (mean + half) / deviation
            yield (
                f"| {precision} | {metric} | {len(differences)} | {deviation:.4f} | {mean:+.6f} |"
                f" {low:+.3f}, {high:+.3f} |"
            )


def of_runs(folder: Path, rounds: int) -> Iterator[str]:
    yield "| stack | wall s | driver CPU s | workers CPU s | other processes' |"
    yield "|---|---|---|---|---|"
    found: dict[str, list[list[float]]] = {"off": [], "auto": []}
    for number in range(rounds):
        for how, runs in found.items():
            runs.append(run(folder / f"{how}-{number}", how))
    for how, runs in found.items():
        columns = [statistics.median(each) for each in zip(*runs, strict=True)]
        yield f"| {how} | {' | '.join(f'{each:.1f}' for each in columns)} |"
    over = [ratios(*each) for each in zip(*map(np.transpose, found.values()), strict=True)]
    yield f"| off over auto | {' | '.join(over)} |"


def run(folder: Path, how: str) -> list[float]:
    """Seconds of a run of the digits study: of the clock, and CPU of driver, workers and others."""
    from benchmarks.chaos.processes import ACTOR, MARK, command_line, marked

    folder.mkdir()
    spec = (ROOT / "study" / "specs" / "digits.yaml").read_text() + f"\nstack: {how}\n"
    (folder / "digits.yaml").write_text(spec)
    words = ["run", str(folder / "digits.yaml"), "--storage", str(folder / "studies")]
    mark, cpu, before = secrets.token_hex(8), dict[int, tuple[str, float]](), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "study.cli", *words],
        **{"cwd": ROOT, "env": {**os.environ, MARK: mark}, "stdout": subprocess.DEVNULL},
    )
    while process.poll() is None:
        for pid in marked(mark):
            with suppress(OSError):
                used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                role = "driver" if pid == process.pid else "other"
                role = "worker" if ACTOR in command_line(pid) else role
                role = cpu.get(pid, ("other", 0.0))[0] if role == "other" else role
                cpu[pid] = role, sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
        time.sleep(0.2)
    wall = time.monotonic() - before
    assert process.returncode == 0
    roles = ("driver", "worker", "other")
    return [wall, *(sum(spent for was, spent in cpu.values() if was == role) for role in roles)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("trials", "runs", "memory", "former", "equal")
    parser.add_argument("part", nargs="?", choices=names, default="trials")
    parser.add_argument("--rounds", type=int, help="3; of `former` 10")
    parser.add_argument("--case", default="", help="of `trials` and `memory`: a word of its name")
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--former", default=FORMER, help="a commit of this repository")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    rounds = options.rounds or (10 if options.part == "former" else 3)
    parts: dict[str, Callable[[Path], Iterator[str]]] = {
        "trials": partial(of_trials, rounds=rounds, word=options.case),
        "runs": partial(of_runs, rounds=rounds),
        "memory": partial(of_memory, word=options.case),
        "former": partial(of_former, rounds=rounds, commit=options.former),
        "equal": partial(of_equal, pairs=options.pairs),
    }
    with tempfile.TemporaryDirectory(prefix="stacks-") as folder:
        print(f"load {os.getloadavg()[0]:.1f}\n")
        for line in parts[options.part](Path(folder)):
            print(line, flush=True)
        print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
