"""What a trial costs the control plane, from 100 to 10,000 trials and from 1 to 32 nodes.

    python benchmarks/scale.py  # an hour or less; prints tables for results/scale.md
    python benchmarks/scale.py --trials 1000 --nodes 1 4 --node-trials 200 --asks 100 1000

The whole of `calstudy run` is at work: ledger (a journal), MLflow (embedded), Tune, the live
view (on a pipe). Only the trainable is another: `sleeping.Sleeping` sleeps 10 ms and reports
a whole trial, so that what the driver does is control plane. The sampler is not part of it:
the ledger's `ask` is timed by itself (random in the runs; a table of its own has TPE). Nodes
are raylets of their own on this machine: their number is real, their network is not.

CPU seconds are what to read: on a shared machine wall seconds are anyone's. Even they are longer
where others work beside us, so the same piece of Python is timed every 100 trials: `pace` is its
milliseconds, and ratios are of costs divided by it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

SPEC = {
    "name": "scale",
    "data": "digits",
    "model": "mlp",
    "methods": ["focal"],  # one label: what grows with its trials grows fastest
    "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
    "epochs": 5,
    "sampler": {"name": "random"},
}
WINDOW = 100  # trials between two marks; of a span of windows the median is told
SPANS = ((100, 1000), (1000, 3000), (3000, 6000), (6000, 9000), (9000, 10_000))
COMMANDS = (["status", "scale"], ["pareto", "scale"], ["run", "scale.yaml"])
GP_TRIALS = 200
TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Marks what has been used each time WINDOW more trials are told; the
    ledger's `ask` is set apart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.marks: list[dict[str, float]] = []
        self._told = 0
        self._ask_cpu = self._ask_wall = self._own_cpu = self._own_wall = 0.0

    def timed(self, proposer: type) -> type:
        """The proposer's class, with its `proposal` timed."""
        meter = self

        class Timed(proposer):  # type: ignore[misc, valid-type]
            def proposal(self, *arguments: Any) -> Any:
                cpu, wall = time.thread_time(), time.perf_counter()
                try:
                    return super().proposal(*arguments)
                finally:
                    meter._ask_cpu += time.thread_time() - cpu
                    meter._ask_wall += time.perf_counter() - wall

        return Timed

    def metered(self, ledger: type) -> type:
        """The ledger's class, with its `tell` counted."""
        meter = self

        class Metered(ledger):  # type: ignore[misc, valid-type]
            def tell(self, *arguments: Any) -> Any:
                record = super().tell(*arguments)
                meter._told += 1
                if meter._told == 1 or meter._told % WINDOW == 0:
                    meter.mark()
                return record

        return Metered

    def mark(self) -> None:
        """What has been used until now: seconds, bytes. What marking takes is taken out."""
        cpu, wall = time.thread_time(), time.perf_counter()
        servers = list(_children("gcs_server"))
        self.marks.append(
            {
                "trials": self._told,
                "wall": wall - self._own_wall - self._ask_wall,
                "cpu": time.process_time() - self._own_cpu - self._ask_cpu,
                "ask": self._ask_cpu,
                "rss": _rss(os.getpid()),
                "gcs_rss": sum(map(_rss, servers)),
                "gcs_cpu": sum(map(_cpu, servers)),
                "raylet_cpu": sum(map(_cpu, _children("raylet"))),
                "ledger": (self.directory / "scale" / "ledger.log").stat().st_size,
                "mlflow": sum(file.stat().st_size for file in self.directory.glob("mlflow.db*")),
                "pace": _pace(),
            }
        )
        self._own_cpu += time.thread_time() - cpu
        self._own_wall += time.perf_counter() - wall


def _pace() -> float:
    """CPU seconds of some Python as a control plane runs it: JSON in and out, small objects."""
    began = time.thread_time()
    for _ in range(100):
        json.loads(json.dumps([{"name": str(number), "value": number} for number in range(100)]))
    return time.thread_time() - began


def _children(name: str) -> Iterator[int]:
    """The processes of that name that this one has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if head.partition("(")[2] == name and int(rest.split()[1]) == os.getpid():
            yield int(stat.parent.name)


def _rss(pid: int) -> int:
    """Bytes of memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def _cpu(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@contextmanager
def cluster(nodes: int, slots: int) -> Iterator[str]:
    """The address of a head and workers, each with its own raylet and its own slots."""
    # A folder of its own: else this cluster would become what `address="auto"` means on
    # the machine.
    os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="scale-")
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": slots, "include_dashboard": False}
    )
    try:
        for _ in range(nodes - 1):
            made.add_node(wait=False, num_cpus=slots)
        made.wait_for_nodes()
        yield made.address
    finally:
        made.shutdown()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


# ---- the parts, each in a process of its own; each returns what goes into result.json ------------


def run(trials: int, nodes: int, slots: int, reports: int, directory: Path) -> dict[str, Any]:
    """One study of sleeping trials; the marks of its driver."""
    os.environ["SCALE_REPORTS"] = str(reports)
    from study.machines.ray_session import set_environment

    set_environment()
    import mlflow  # noqa: F401 - what is imported once is not a trial's
    from rich.console import Console
    from sleeping import Sleeping

    from study.engine import queue
    from study.engine import run as engine
    from study.schema.reading import spec_from_mapping
    from study.schema.uris import embedded_tracking
    from study.store import ledger
    from study.terminal.display import ConsoleDisplay
    from study.tracking.client import open_client
    from trainables.training import trainable

    uri, console = embedded_tracking(directory), Console(file=io.StringIO())
    open_client(uri)
    meter = Meter(directory)
    ledger.Ledger, queue.Proposer = (
        meter.metered(ledger.Ledger),
        meter.timed(queue.Proposer),
    )
    trainable.CalibrationTrainable = Sleeping
    spec = spec_from_mapping({**SPEC, "trials": trials}, "scale.yaml")
    with cluster(nodes, slots) as address:
        shown = ConsoleDisplay(console)
        outcome = engine.run_study(spec, "scale.yaml", directory, uri, address, shown)
        ended = time.perf_counter()
    assert outcome.untracked == 0 and len(outcome.records.of("focal")) == trials, (
        outcome.tracking_trouble
    )
    assert all(record.state == "complete" for record in outcome.records.of("focal"))
    return {
        "marks": meter.marks,
        "after": ended - meter._own_wall - meter._ask_wall - meter.marks[-1]["wall"],
    }


def ask(counts: list[int], directory: Path) -> dict[str, Any]:
    """CPU milliseconds to propose and record a trial of a label with so many complete ones:
    {sampler: {trials: ms}}.

    Of gp, with a constraint that every other trial violates, up to GP_TRIALS trials: its
    cost grows with their cube.
    """
    import random

    from study.analysis.ranking import Rules
    from study.engine.proposing import Proposer
    from study.schema.reading import spec_from_mapping
    from study.schema.spec import Sampler
    from study.store.ledger import Ledger, open_storage
    from trainables.outputs.outcome import Outcome

    widths = {
        f"optimizer.{name}": {"low": 0.01, "high": 0.5}
        for name in ("lr", "momentum", "weight_decay")
    }
    space = {**widths, "model.width": {"low": 32, "high": 256, "int": True}}
    found: dict[str, dict[str, float]] = {}
    for name in ("random", "tpe", "tpe, constrained", "gp, constrained"):
        sampler, _, constrained = name.partition(",")
        own = {"search_space": space, "sampler": {"name": sampler}, "trials": 10**6}
        constraints = {"constraints": ["accuracy >= best - 0.5"]} if constrained else {}
        spec = spec_from_mapping({**SPEC, **own, **constraints}, "scale.yaml")
        ledger = Ledger(open_storage(directory, str(directory / f"{name}.log")), "scale", "scale")
        ledger.open("focal", spec.objectives)
        ranges, draw = spec.variant("focal").space.distributions, random.Random(0).random
        proposer = Proposer(spec, Rules(spec.objectives, spec.constraints), [])
        filling = Proposer(replace(spec, sampler=Sampler("random")), Rules(spec.objectives), [])
        for count in counts:
            if sampler == "gp" and count > GP_TRIALS:
                continue
            for number in range(len(ledger.records("focal")), count):
                record = ledger.add("focal", filling.proposal("focal", number) or {}, ranges)
                metrics = {"accuracy": draw(), "ece": draw()}
                outcome = Outcome(state="complete", metrics=metrics)
                proposer.see(ledger.tell("focal", record.number, outcome, spec.objectives))
            milliseconds = []
            for turn in range(5):
                began, params = time.process_time(), None
                while params is None:
                    params = proposer.proposal("focal", count + turn)
                    time.sleep(0.001 if params is None else 0)
                ledger.add("focal", params, ranges)
                milliseconds.append(1000 * (time.process_time() - began))
            found.setdefault(name, {})[str(count)] = statistics.median(milliseconds)
    return found


def commands(directory: Path) -> dict[str, float]:
    """Seconds of a whole command on a study that is there, the quickest of
    five: {command: seconds}."""
    import yaml

    trials = sum(1 for _ in (directory / "scale" / "trials" / "focal").iterdir())
    (directory / "scale.yaml").write_text(yaml.safe_dump({**SPEC, "trials": trials}))
    found = {}
    for command in COMMANDS:
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            whole = [sys.executable, "-m", "study.cli", *command, "--storage", str(directory)]
            subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, cwd=directory)
            seconds.append(time.perf_counter() - began)
        found[command[0]] = min(seconds)
    return found


def apart(directory: Path, *arguments: str) -> dict[str, Any]:
    """A part in a fresh process."""
    command = [sys.executable, __file__, *arguments, "--directory", str(directory)]
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    found: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return found


# ---- tables --------------------------------------------------------------------------------------


def span(marks: list[dict[str, float]], first: int, last: int) -> dict[str, float]:
    """Per trial, of the windows between two counts of trials: CPU and wall ms, bytes; and
    the memory at its end."""
    there = [mark for mark in marks if first <= mark["trials"] <= last]
    windows = list(pairwise(there))

    def each(name: str, scale: float = 1.0) -> float:
        return scale * statistics.median(
            (b[name] - a[name]) / (b["trials"] - a["trials"]) for a, b in windows
        )

    return {
        **{name: each(name, 1000) for name in ("cpu", "ask", "wall", "gcs_cpu", "raylet_cpu")},
        **{name: each(name) for name in ("ledger", "mlflow")},
        **{name: there[-1][name] / 2**20 for name in ("rss", "gcs_rss")},
        # Of memory not the median: an allocator takes it in steps.
        "grown": (there[-1]["rss"] - there[0]["rss"]) / (there[-1]["trials"] - there[0]["trials"]),
        "pace": 1000 * statistics.median(mark["pace"] for mark in there),
    }


HEADER = (
    "| {} | driver CPU ms | pace ms | ratio | ask (random) CPU ms | GCS CPU ms | raylets CPU ms |"
    " wall ms | driver MiB | KB a trial | GCS MiB | ledger B | mlflow.db B |"
)


def table(first_column: str, rows: dict[str, dict[str, float]]) -> str:
    """A row a span or a number of nodes; `ratio` is of driver CPU over pace, to the first row."""
    lines = [HEADER.format(first_column), "|" + "---|" * 13]
    base = next(iter(rows.values()))
    for name, row in rows.items():
        ratio = row["cpu"] / row["pace"] / (base["cpu"] / base["pace"])
        lines.append(
            f"| {name} | {row['cpu']:.1f} | {row['pace']:.1f} | {ratio:.2f} | {row['ask']:.1f} |"
            f" {row['gcs_cpu']:.1f} | {row['raylet_cpu']:.1f} | {row['wall']:.0f} |"
            f" {row['rss']:.0f} | {row['grown'] / 1000:.0f} | {row['gcs_rss']:.0f} |"
            f" {row['ledger']:.0f} | {row['mlflow']:.0f} |"
        )
    return "\n".join(lines)


def report(options: argparse.Namespace, directory: Path) -> None:
    """Every part in turn, and its table."""
    growth = directory / "growth"
    growth.mkdir()
    found = apart(
        growth, "--part", "run", "--trials", str(options.trials), "--slots", str(options.slots)
    )
    last = int(found["marks"][-1]["trials"])
    spans = {f"{a:,}-{b:,}": span(found["marks"], a, b) for a, b in SPANS if b <= last}
    print(
        table("trials", spans),
        f"\nfrom the last trial told to the end: {found['after']:.1f} s\n",
        flush=True,
    )
    took = apart(growth, "--part", "commands")
    print(
        "\n".join(
            f"calstudy {name} of {last:,} trials: {seconds:.2f} s" for name, seconds in took.items()
        ),
        "\n",
    )
    rows = {}
    for nodes in options.nodes:
        there = directory / f"nodes-{nodes}"
        there.mkdir()
        arguments = (
            "--trials",
            str(options.node_trials),
            "--slots",
            str(options.slots),
            "--nodes",
            str(nodes),
        )
        rows[str(nodes)] = span(
            apart(there, "--part", "run", *arguments)["marks"], WINDOW, options.node_trials
        )
    print(table("nodes", rows), "\n", flush=True)
    there = directory / "reports"
    there.mkdir()
    arguments = (
        "--trials",
        str(options.node_trials),
        "--slots",
        str(options.slots),
        "--reports",
        "5",
    )
    five = span(apart(there, "--part", "run", *arguments)["marks"], WINDOW, options.node_trials)
    one = rows[str(options.nodes[0])]
    each = (five["cpu"] - one["cpu"] * five["pace"] / one["pace"]) / 4
    print(
        f"a report more: {each:.2f} ms of the driver's CPU (trials in 5 reports against trials in"
        " 1)\n",
        flush=True,
    )
    there = directory / "ask"
    there.mkdir()
    costs = apart(there, "--part", "ask", "--asks", *map(str, options.asks))
    print("| trials |" + "".join(f" {count:,} |" for count in options.asks))
    print("|" + "---|" * (len(options.asks) + 1))
    for sampler, cost in costs.items():
        print(
            f"| {sampler}: ask, CPU ms |"
            + "".join(f" {cost[str(count)]:.1f} |" for count in options.asks if str(count) in cost)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="What a trial costs the control plane.")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument(
        "--node-trials", type=int, default=1000, help="trials of each run on several nodes"
    )
    parser.add_argument("--slots", type=int, default=1, help="of each node")
    parser.add_argument("--reports", type=int, choices=(1, 5), default=1, help=argparse.SUPPRESS)
    parser.add_argument("--asks", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000])
    parser.add_argument("--part", choices=("run", "ask", "commands"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is None:
        with tempfile.TemporaryDirectory(prefix="scale-", ignore_cleanup_errors=True) as directory:
            report(options, Path(directory))
        return
    parts = {
        "run": lambda: run(
            options.trials, options.nodes[0], options.slots, options.reports, options.directory
        ),
        "ask": lambda: ask(options.asks, options.directory),
        "commands": lambda: commands(options.directory),
    }
    (options.directory / "result.json").write_text(json.dumps(parts[options.part]()))


if __name__ == "__main__":
    main()
