"""Probe a study before it runs: train a little of each method, where its trials would train.
Nothing of it is kept."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from itertools import product
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeAlias, cast

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from study.analysis.prediction import Costs
from study.machines.admission import usable_gpus_here
from study.machines.cpus import own_cpus
from study.machines.held import LOOK_SECONDS, Held
from study.machines.ray_compat import label_selector
from study.machines.ray_session import Offer, check_fits, ray_nodes
from study.machines.stopping import temporary_folder
from study.schema import own_code
from study.schema.errors import SpecError, located
from study.schema.resources import Resources, fitting, most_slots, sharing
from study.schema.spec import StudySpec
from study.schema.variant import Space, with_values
from study.store.targets import Targets
from trainables.plain import Value
from trainables.trial_probe import Answer, Job, answer

Say = Callable[[str], None]
Jobs: TypeAlias = Mapping[str, Job]  # by label
Answers: TypeAlias = Generator[tuple[str, Answer]]  # with the label, from each process that probes
# As many processes as trials train at once, at most this many: beside others a trial takes more of
# a CPU's time.
MOST_COPIES = 8
CHILD = "from trainables.trial_probe import main; main()"


def settings_of(space: Space) -> list[tuple[float, dict[str, Value]]]:
    """The settings of a method to probe, weighted: the first default, else each range's middle.

    What plainly changes the cost (the batch size, the network's size) is probed at its lowest and
    its highest.
    """
    first: dict[str, Value] = {}
    sizes = {}
    for path, entry in space.distributions.items():
        values = _drawn(entry, 1)
        middle = values[len(values) // 2]
        first[path] = round(middle) if isinstance(entry, IntDistribution) else middle
        if path == "batch_size" or path.startswith("model."):
            sizes[path] = _ends(path, entry)
    if space.defaults:
        first |= space.defaults[0]
    found = []
    for chosen in product(*sizes.values()):
        weight = math.prod(weight for weight, _ in chosen)
        ends = dict(zip(sizes, (end for _, end in chosen), strict=True))
        found.append((weight, space.held({**first, **ends})))
    return found


def _drawn(entry: BaseDistribution, count: int) -> list[Any]:
    """All choices, or as many values of a range, spread as they are drawn."""
    if isinstance(entry, CategoricalDistribution):
        return list(entry.choices)
    assert isinstance(entry, FloatDistribution | IntDistribution)
    places = [(place + 0.5) / count for place in range(count)]
    if entry.log:
        return [entry.low * (entry.high / entry.low) ** place for place in places]
    return [entry.low + (entry.high - entry.low) * place for place in places]


def _ends(path: str, entry: BaseDistribution) -> list[tuple[float, Value]]:
    """The lowest and the highest value, weighted so that the cost has its mean.

    The cost is linear in a value; in a batch size, linear in the number of steps. Choices that are
    no numbers are probed each.
    """
    values = _drawn(entry, 10_000)
    if not all(isinstance(value, int | float) for value in values):
        return [(1 / len(values), value) for value in values]
    low, high = getattr(entry, "low", min(values)), getattr(entry, "high", max(values))
    if low == high:
        return [(1.0, low)]
    *sizes, at_low, at_high = (
        1 / each if path == "batch_size" else each for each in (*values, low, high)
    )
    weight = (statistics.fmean(sizes) - at_high) / (at_low - at_high)
    return [(weight, low), (1 - weight, high)]


def slots_here(spec: StudySpec, cpus: int | None = None) -> int:
    """How many trials fit on this machine at once. Raises ClusterError if those of a method do
    not, or torch cannot use its GPUs."""
    ours = own_cpus(cpus)
    needs = spec.needs
    gpus = usable_gpus_here(spec.trained_in) if any(each.gpu for each in needs.values()) else 0
    offered = {"CPU": ours.count, "GPU": gpus}
    node: Offer = {"Alive": True, "Resources": offered}
    check_fits([node], needs, ours)
    return most_slots([node], needs.values())


def probe(
    spec: StudySpec,
    file_name: str,
    digest: str,
    labels: Iterable[str],
    say: Say,
    targets: Targets,
    where: Callable[[Jobs, Say], Answers],
) -> Costs:
    """What trials of these methods cost. digest: of the data. where: `here` or `on_nodes`.

    Raises SpecError naming a method that fails, or a target that is not there.
    """
    jobs = {}
    objectives = [objective.metric for objective in spec.objectives]
    for label in labels:
        with located(file_name, f"methods.{label}"):
            base = targets.named_in(spec.trial_mapping(label))
        settings = settings_of(spec.variant(label).space)
        trials = [(weight, with_values(base, setting)) for weight, setting in settings]
        jobs[label] = Job(trials, digest, asdict(spec.resources_of(label)), objectives)
    answers: dict[str, list[Answer]] = {label: [] for label in jobs}
    with closing(where(jobs, say)) as found:
        for label, each in found:
            if each.problem is not None:
                raise SpecError(file_name, each.path or f"methods.{label}", each.problem)
            answers[label].append(each)
    return {
        label: [(weight / len(found), cost) for each in found for weight, cost in each.costs]
        for label, found in answers.items()
    }


# ---- where ---------------------------------------------------------------------------------------


def here(jobs: Jobs, say: Say, cpus: int | None = None) -> Answers:
    """Ask about one method after another, each in as many processes of its own as trials train
    beside each other: on one GPU, if they need any."""
    ours = own_cpus(cpus).count
    needs = {label: Resources(**job.resources) for label, job in jobs.items()}
    copies = {}
    for label, each in needs.items():
        copies[label] = min(MOST_COPIES, max(1, fitting({"CPU": ours}, each)))
        if each.gpu:
            copies[label] = sharing({"CPU": ours, "GPU": 1.0}, each)
    threads = max(1, *(int(each.cpu) for each in needs.values()))
    with temporary_folder("calstudy-probe-") as folder, ExitStack() as stack:
        children = []
        for _ in range(max(copies.values())):
            children.append(stack.enter_context(closing(_Child(folder, threads))))
        for place, (label, job) in enumerate(jobs.items(), start=1):
            say(f"probing {label} ({place} of {len(jobs)})")
            asked = children[: copies[label]]
            for child in asked:
                child.ask(job)
            for child in asked:
                yield label, child.answer()


class _Child:
    """A process of ours that answers jobs. folder: for its files."""

    def __init__(self, folder: str, threads: int) -> None:
        self._pipe, theirs = Pipe()
        self._complaints = Path(folder, "complaints")
        given = {"OMP_NUM_THREADS": str(threads), "TMPDIR": folder}
        with theirs, self._complaints.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", CHILD, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env=own_code.environment() | given,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, job: Job) -> None:
        with suppress(ConnectionError):  # its answer tells why
            self._pipe.send(job)

    def answer(self) -> Answer:
        """To the job; a problem if it has ended without one."""
        try:
            return cast(Answer, self._pipe.recv())
        except (EOFError, ConnectionError):
            lines = self._complaints.read_text(errors="replace").strip().splitlines()
            why = f" ({lines[-1][:300]})" if lines else ""
            return Answer(problem=f"its process ended with {self._process.wait()}{why}.")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def on_nodes(jobs: Jobs, say: Say, off: Collection[str] = (), wait: str | None = None) -> Answers:
    """Ask in Ray tasks with the resources of trials, on the joined cluster: in as many as share a
    GPU. off: the ids of nodes not to use. wait: --wait, for as long as nothing is free."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    nodes = [node for node in ray_nodes() if node["Alive"] and node["NodeID"] not in off]
    groups = {}
    pending: dict[Any, str] = {}
    probing = ""
    needed = {label: Resources(**job.resources) for label, job in jobs.items()}
    held = Held(needed, lambda: off, lambda line: say(line or probing), wait)
    try:
        for label, job in jobs.items():
            needs = needed[label]
            copies = max(1, *(sharing(node["Resources"], needs) for node in nodes))
            # One bundle lies on one node, and a part of a GPU on one GPU.
            groups[label] = placement_group([needs.together(copies)], **label_selector(off))
            task = ray.remote(num_cpus=needs.cpu, num_gpus=needs.gpu, max_retries=0)(answer)
            there = PlacementGroupSchedulingStrategy(groups[label], 0)
            for _ in range(copies):
                pending[task.options(scheduling_strategy=there).remote(job)] = label
        while pending:
            say(probing := f"probing {', '.join(dict.fromkeys(pending.values()))}")
            while not (found_now := ray.wait(list(pending), timeout=LOOK_SECONDS)[0]):
                held.look(waits=True)
            ready = found_now[0]
            label = pending.pop(ready)
            try:
                found = ray.get(ready)
            except ray.exceptions.RayError as error:
                found = Answer(problem=" ".join(str(error).split())[-300:])
            if label not in pending.values():  # another label may need its place
                remove_placement_group(groups.pop(label))
            yield label, found
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        for group in groups.values():
            remove_placement_group(group)
