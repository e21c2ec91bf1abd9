"""The command line: which faults, how often; rounds one after another; the table."""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.chaos import results
from benchmarks.chaos.grounds.disk import Disk
from benchmarks.chaos.grounds.folder import Folder
from benchmarks.chaos.grounds.full import Full
from benchmarks.chaos.grounds.late import Late
from benchmarks.chaos.grounds.local import Local
from benchmarks.chaos.grounds.memory import Crowded, Memory
from benchmarks.chaos.grounds.nodes import Nodes
from benchmarks.chaos.grounds.offsets import Offsets
from benchmarks.chaos.grounds.ray_itself import RayItself
from benchmarks.chaos.grounds.rungs import Rungs
from benchmarks.chaos.grounds.stacks import Stacks
from benchmarks.chaos.grounds.stops import Stops
from benchmarks.chaos.grounds.tracking import ReadOnly, Tracking
from benchmarks.chaos.grounds.trials import Printing, Trials
from benchmarks.chaos.grounds.volumes import Volumes
from benchmarks.chaos.processes import end_marked, heed_signals
from benchmarks.chaos.stage import Ground, Stage

# How often each kind strikes in a whole campaign.
TIMES: dict[type[Ground], dict[str, int]] = {
    Local: {
        "driver_sigkill": 10,
        "driver_sigterm": 6,
        "actor_sigkill": 10,
        "torn_journal": 5,
        "corrupted_checkpoint": 6,
        "half_written_checkpoint": 5,
        "clock_skew": 5,
    },
    Stacks: dict.fromkeys(Stacks.faults, 4),
    Stops: {"all_signalled": 10, "stdout_closed": 10, "flock_unavailable": 6, "twenty_signals": 5},
    Volumes: {"ledger_unmounted": 10, "disk_swapped": 5, "flock_unavailable": 4},
    Tracking: {
        "mlflow_killed": 4,
        "mlflow_restarted": 5,
        "mlflow_errors": 6,
        "mlflow_lost_answer": 10,
        "experiment_renamed": 5,
    },
    ReadOnly: {"mlflow_read_only": 5, "mlflow_drips": 5},
    Disk: {"disk_full": 5, "disk_full_said": 5},
    Full: {"tmp_full": 5, "inodes_full": 5},
    Folder: {"cwd_canary": 5},
    Offsets: {"sigterm_offset": 5 * 16},
    Trials: dict.fromkeys(Trials.faults, 10),
    Rungs: dict.fromkeys(Rungs.faults, 5),
    Printing: {"trial_prints": 5},
    Memory: {"trial_leaks": 4},
    Crowded: {"memory_taken": 5},
    RayItself: dict.fromkeys(RayItself.faults, 5),
    Nodes: {
        "raylet_sigkill": 5,
        "head_sigkill": 4,
        "head_lost": 5,
        "partition": 3,
        "partition_two_minutes": 2,
        "partition_for_good": 4,
        "node_clock_skew": 4,
    },
    Late: dict.fromkeys(Late.faults, 5),
}


@contextmanager
def staged(
    ground: type[Ground], name: str, keys: dict[str, Any], rng: random.Random
) -> Iterator[Stage]:
    """A study on a ground of its own; of both nothing is left afterwards."""
    mark = secrets.token_hex(8)
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with ground(directory, mark, rng) as there:
            try:
                yield Stage(name, there, keys)
            finally:
                end_marked(mark)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def play(
    ground: type[Ground], kinds: list[str], name: str, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """One round: the faults in this order, then the end; a line for each as it happens."""
    with staged(ground, name, ground.keys(dict(Counter(kinds))), rng) as stage:
        try:
            for kind in kinds:
                yield stage.play(kind)
            yield stage.finish()
        except Exception:
            print(f"{name}: the driver's last words:\n{_tail(stage.output)}", file=sys.stderr)
            raise


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-30:]) if file.exists() else ""


def rounds(
    times: Counter[tuple[str, str]], rng: random.Random
) -> Iterator[tuple[type[Ground], list[str]]]:
    """Every fault that is asked for, shuffled, in studies of a bearable length."""
    for ground in TIMES:
        kinds = [kind for kind in ground.faults for _ in range(times[_name(ground), kind])]
        refusal = ground.refusal() if kinds else None
        if refusal is not None:
            print(f"{_name(ground)}: left out, {refusal}.", file=sys.stderr)
            continue
        rng.shuffle(kinds)
        parts = -(-len(kinds) // ground.most_faults)
        yield from ((ground, kinds[part::parts]) for part in range(parts))


def _name(ground: type[Ground]) -> str:
    return ground.__name__.lower()


def main() -> int:
    """0 where every audit was clean and every proof held."""
    heed_signals()
    # What a round has begun is ended and removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    options = _options()
    if options.table:
        print(results.table(results.read(options.file)))
        return 0
    wanted = (
        options.kinds.split(",")
        if options.kinds
        else [kind for kinds in TIMES.values() for kind in kinds]
    )
    times = Counter(
        {
            (_name(ground), kind): options.times or often
            for ground, kinds in TIMES.items()
            for kind, often in kinds.items()
            if kind in wanted
        }
    )
    seed = options.seed
    if options.resume:
        lines = results.read(options.file)
        seed = lines[-1]["seed"] if lines else seed
        times -= results.counts(lines, seed)
    print(f"seed {seed}; {sum(times.values())} faults", flush=True)
    bad, begun = 0, time.monotonic()
    for number, (ground, kinds) in enumerate(
        rounds(times, random.Random(f"{seed} {sum(times.values())}"))
    ):
        name = f"{_name(ground)}-{int(time.time())}"
        rng = random.Random(f"{seed} {name}")
        try:
            for line in play(ground, kinds, name, rng):
                results.append({**line, "round": number, "seed": seed}, options.file)
                bad += not line["audit"]["clean"] or bool(line["problems"])
                print(_told(line, time.monotonic() - begun), flush=True)
        except Exception:
            bad += 1
            traceback.print_exc()
    print(f"{bad} lines with a problem; {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


def _told(line: dict[str, Any], seconds: float) -> str:
    audit = line["audit"]
    state = "clean" if audit["clean"] else f"NOT CLEAN {audit['off']}"
    again = (
        f"recovered in {line['recovered_seconds']:g} s, {line['repeated']} of {line['promised']}"
        " epochs repeated"
    )
    problems = "".join(f"\n    {problem}" for problem in line["problems"])
    return f"{seconds:6.0f} s  {line['study']}  {line['kind']}: {again}; audit {state}{problems}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description="Studies under fire."
    )
    there_are = dict.fromkeys(kind for ground in TIMES for kind in ground.faults)
    kinds = ", ".join(there_are)
    parser.add_argument("--kinds", metavar="A,B", help=f"only these of {kinds}")
    parser.add_argument(
        "--times", type=int, metavar="N", help="so often each, on every ground that has it"
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10**6), help="of what happens when"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the campaign the file ends with"
    )
    parser.add_argument("--file", type=Path, default=results.FILE, help="where the lines go")
    parser.add_argument(
        "--table", action="store_true", help="print what has been recorded, as Markdown"
    )
    options = parser.parse_args()
    unknown = set((options.kinds or "").split(",")) - {"", *there_are}
    if unknown:
        parser.error(f"--kinds: there is no {', '.join(sorted(unknown))}; there is {kinds}.")
    return options


if __name__ == "__main__":
    sys.exit(main())
