"""Stopping rules and samplers, replayed on recorded trainings: Markdown for
benchmarks/results/search.md, from which stopping.md quotes.

python -m benchmarks.search  # the tables
python -m benchmarks.search record --data DIR --out FILE  # adds to FILE; DIR has the parquet files
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import optuna

from benchmarks.search import collapse, curves, peers, sampling, stopping
from benchmarks.search.curves import Training
from benchmarks.search.stopping import interval

# Whose search is replayed: one, two and two settings besides the rate.
METHODS = ("focal", "mbls", "sece_on_focal")
LEAST = 12  # settings of a method, without which a set is not replayed


def pools(trainings: Sequence[Training]) -> dict[tuple[str, str], list[Training]]:
    """By set and schedule."""
    found = {
        (name, schedule): [one for one in trainings if (one.set, one.schedule) == (name, schedule)]
        for name in curves.SETS
        for schedule in curves.SCHEDULES
    }
    return {key: pool for key, pool in found.items() if pool}


def settings_of(pool: Sequence[Training], method: str) -> int:
    return len({one.setting for one in pool if one.method == method})


def about(trainings: Sequence[Training]) -> Iterator[str]:
    yield "| set | schedule | trainings | settings of a method | diverged | at chance |"
    yield "|---|---|---|---|---|---|"
    for (name, schedule), pool in pools(trainings).items():
        epochs = curves.spec_of(name, schedule).epochs
        counts = sorted(
            settings_of(pool, method) for method in {one.method for one in pool} - {"cross_entropy"}
        )
        whole = [one for one in pool if len(one.rows) == epochs]
        chance = sum(not stopping.Trial("", False, one.rows, epochs).has_result for one in whole)
        range_ = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"
        yield (
            f"| {name} | {schedule} | {len(pool)} | {range_} | {len(pool) - len(whole)} |"
            f" {chance} |"
        )


def ranks(trainings: Sequence[Training]) -> Iterator[str]:
    fractions = (0.2, 0.4, 0.6)
    yield f"| set | schedule | {' | '.join(f'ECE at {at:g} | Brier | NLL' for at in fractions)} |"
    yield "|" + "---|" * (2 + 3 * len(fractions))
    for (name, schedule), pool in pools(trainings).items():
        cells = []
        for at in fractions:
            found = stopping.ranking(pool, at)
            cells += [f"{found[metric]:.2f}" for metric in ("ece", "brier", "nll")]
        yield f"| {name} | {schedule} | {' | '.join(cells)} |"


def stop(trainings: Sequence[Training], repeats: int) -> Iterator[str]:
    rules = {**stopping.rules(), **peers.rules()}
    for (name, schedule), pool in pools(trainings).items():
        yield f"\n{name}, {schedule}:\n"
        yield from stopping.table(stopping.replay(pool, rules, repeats))
    if not peers.INSTALLED:
        yield f"\n{peers.SKIPPED}"


def left(trainings: Sequence[Training], repeats: int) -> Iterator[str]:
    yield "| set | schedule | rule | left | expected at least | at most | their middle |"
    yield "|---|---|---|---|---|---|---|"
    for (name, schedule), pool in pools(trainings).items():
        at, keep = (0.58, 1 / 3) if schedule == "steps" else (0.4, 0.5)
        rule, found = stopping.rung(["brier", "ece"], at, keep), []
        for repeat in range(repeats):
            study = stopping.drawn(pool, np.random.default_rng(repeat))
            spent = {label: rule(trials) for label, trials in study.items()}
            found.append(stopping.epochs_left(study, spent, at, keep))
        real, least, most = np.mean(found, axis=0)
        cells = [f"{share:.3f}" for share in (real, least, most, (least + most) / 2)]
        yield f"| {name} | {schedule} | {keep:.2g} at {at:g} | {' | '.join(cells)} |"


def sample(trainings: Sequence[Training], repeats: int, gp_repeats: int) -> Iterator[str]:
    yield (
        "| set | method | settings | held-out rank of error, ECE | trials | sampler | hypervolume |"
        " over Optuna's |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for key, label, pool in _searched(trainings):
        surrogate = sampling.fit(pool, label)
        error, ece = sampling.held_out(pool, label)
        first = f"{key[0]} | {label} | {settings_of(pool, label)} | {error:.2f}, {ece:.2f}"
        arms: Mapping[str, tuple[sampling.Sample, int]] = {
            "Optuna's default": (sampling.of_optuna(surrogate), repeats),
            "random": (sampling.ours(surrogate, "random"), repeats),
            "ours": (sampling.ours(surrogate), repeats),
            "ours, gp": (sampling.ours(surrogate, "gp"), gp_repeats),
        }
        shares: dict[tuple[str, int], list[float]] = {}
        for name, (of, count) in arms.items():
            for seed in range(count):
                tried = sampling.search(surrogate, of, 40, seed)
                for trials in (24, 40):
                    shares.setdefault((name, trials), []).append(surrogate.share(tried[:trials]))
        for trials in (24, 40):
            for name in arms:
                own, baseline = shares[name, trials], shares["Optuna's default", trials]
                gain = "" if name == "Optuna's default" else _difference(own, baseline)
                yield f"| {first} | {trials} | {name} | {_shown(own)} | {gain} |"
        gain = _difference(shares["ours", 24], shares["Optuna's default", 40])
        yield f"| {first} | 24 | ours, over Optuna's at 40 | | {gain} |"


def slots(trainings: Sequence[Training], repeats: int) -> Iterator[str]:
    yield (
        "| set | method | 4 slots | 24 slots without cap, less 4 | 24 slots with at most 4 pending,"
        " less 4 | target |"
    )
    yield "|---|---|---|---|---|---|"
    for key, label, pool in _searched(trainings):
        surrogate = sampling.fit(pool, label)
        of = sampling.ours(surrogate)
        few, free, capped = (
            [
                surrogate.share(sampling.search(surrogate, of, stopping.TRIALS, seed, count, cap))
                for seed in range(repeats)
            ]
            for count, cap in ((4, None), (24, None), (24, stopping.TRIALS // 6))
        )
        met = (
            "met"
            if interval([a - b for a, b in zip(capped, few, strict=True)])[0] >= -0.01
            else "missed"
        )
        yield (
            f"| {key[0]} | {label} | {_shown(few)} | {_difference(free, few)} |"
            f" {_difference(capped, few)} | {met} |"
        )


def stacks(
    trainings: Sequence[Training], repeats: int, trials: int, numbers: Sequence[int]
) -> Iterator[str]:
    """Stacks of so many trials. On one slot a trial alone is proposed from all results; the others
    have at most a sixth pending."""
    pending = math.ceil(trials / 6)
    alone = {"alone, 1 slot": (1, 1), f"alone, {pending} slots": (1, pending)}
    slots_of = {m: min(2, max(1, pending // m)) for m in numbers}
    stacked = {f"m = {m}, slots: {slots}": (m, slots) for m, slots in slots_of.items()}
    arms = alone | stacked
    less = [(name, base) for base in reversed(alone) for name in stacked]
    columns = ["set", "method", *alone, *(f"{name}, less {base}" for name, base in less)]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for key, label, pool in _searched(trainings):
        surrogate = sampling.fit(pool, label)
        of = sampling.ours(surrogate)
        found = {
            name: [
                surrogate.share(sampling.search(surrogate, of, trials, seed, slots, pending, m))
                for seed in range(repeats)
            ]
            for name, (m, slots) in arms.items()
        }
        cells = [*(_shown(found[name]) for name in alone)]
        cells += [_difference(found[name], found[base]) for name, base in less]
        yield f"| {key[0]} | {label} | {' | '.join(cells)} |"


def _searched(
    trainings: Sequence[Training],
) -> Iterator[tuple[tuple[str, str], str, list[Training]]]:
    """The methods whose search is replayed, by the cosine schedule."""
    for key, pool in pools(trainings).items():
        for label in METHODS if key[1] == "cosine" else ():
            if settings_of(pool, label) >= LEAST:
                yield key, label, pool


def _shown(values: Sequence[float]) -> str:
    mean, low, high = interval(values)
    return f"{mean:.3f} ({low:.3f}, {high:.3f})"


def _difference(values: Sequence[float], baseline: Sequence[float]) -> str:
    """Paired; the longer is cut."""
    mean, low, high = interval([one - other for one, other in zip(values, baseline, strict=False)])
    return f"{mean:+.3f} ({low:+.3f}, {high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--file", type=Path, default=curves.FILE, help="recordings")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--gp-repeats", type=int, default=5, help="of the slow sampler")
    parser.add_argument("--slots-repeats", type=int, default=100, help="of slots and stacks")
    parser.add_argument("--stacked-trials", type=int, default=stopping.TRIALS)
    parser.add_argument("--m", type=int, nargs="+", default=(2, 4), help="trials in a stack")
    parser.add_argument(
        "--only",
        choices=("about", "ranks", "stop", "left", "sample", "slots", "stacks", "collapse"),
        action="append",
    )
    record = parser.add_subparsers(dest="command").add_parser(
        "record", help="train and add to a file"
    )
    record.add_argument("--data", type=Path, required=True)
    record.add_argument("--out", type=Path, default=curves.FILE)
    record.add_argument(
        "--settings",
        type=int,
        nargs=3,
        default=(64, 60, 30),
        help="of digits, Fashion-MNIST, CIFAR-10",
    )
    options = parser.parse_args()
    if options.command == "record":
        curves.record(options.data, options.out, options.settings)
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")
    trainings = curves.read(options.file)
    parts: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
        "about": ("Recorded", lambda: about(trainings)),
        "ranks": ("Spearman's correlation with the final ECE", lambda: ranks(trainings)),
        "stop": ("Stopping", lambda: stop(trainings, options.repeats)),
        "left": ("Epochs that early stopping leaves", lambda: left(trainings, options.repeats)),
        "sample": ("Samplers", lambda: sample(trainings, options.repeats, options.gp_repeats)),
        "slots": ("Slots", lambda: slots(trainings, options.slots_repeats)),
        "stacks": (
            "Stacks",
            lambda: stacks(trainings, options.slots_repeats, options.stacked_trials, options.m),
        ),
        "collapse": ("Collapsed trials", collapse.table),
    }
    for name in options.only or parts:
        title, lines = parts[name]
        print(f"\n{title}:\n")
        for line in lines():
            print(line, flush=True)


if __name__ == "__main__":
    main()
