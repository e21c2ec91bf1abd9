"""Probe a study before it runs: train a little of each method, where its trials would train.
Nothing of it is kept."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from study.analysis.prediction import Probes
from study.machines.admission import usable_gpus_here
from study.machines.cpus import own_cpus
from study.machines.ray_compat import label_selector
from study.machines.ray_session import Offer, check_fits, ray_nodes
from study.machines.stopping import temporary_folder
from study.schema import own_code
from study.schema.errors import SpecError, located
from study.schema.resources import Resources, fitting, most_slots, sharing
from study.schema.spec import StudySpec
from study.schema.variant import Space, with_values
from study.store.targets import Targets
from trainables.plain import Plain, Value
from trainables.training.probe_cost import Cost

Say = Callable[[str], None]
# The arguments of `probing.answer`: configs, digest, resources, also.
Job = tuple[list[dict[str, Plain]], str, dict[str, float], list[str]]
Answer = dict[str, Any]  # of `probing.answer`, or a part of it
# As many processes as trials train at once, at most this many: beside others a trial takes more of
# a CPU's time.
MOST_COPIES = 8
CHILD = "from study.engine.probe_worker import main; main()"


@dataclass(frozen=True)
class ProbedStudy:
    """probes: by label. memory_free, device_size: bytes of the machine, or of the one that has
    least; None: unknown."""

    probes: dict[str, Probes]
    memory_free: int | None
    device_size: int | None


# ---- what is probed ------------------------------------------------------------------------------


def settings_of(space: Space) -> list[tuple[float, dict[str, Value]]]:
    """The settings of a method to probe, weighted: the first default, else each range's middle.

    What plainly changes the cost (the batch size, the network's size) is probed at its lowest and
    its highest.
    """
    first = {path: _middle(entry) for path, entry in space.distributions.items()}
    if space.defaults:
        first |= space.defaults[0]
    sizes = [
        path for path in space.distributions if path == "batch_size" or path.startswith("model.")
    ]
    found = []
    for chosen in product(*(_ends(path, space.distributions[path]) for path in sizes)):
        weight = math.prod(weight for weight, _ in chosen)
        ends = dict(zip(sizes, (end for _, end in chosen), strict=True))
        found.append((weight, {**first, **ends}))
    return found


def _middle(entry: BaseDistribution) -> Value:
    if isinstance(entry, CategoricalDistribution):
        return entry.choices[len(entry.choices) // 2]
    assert isinstance(entry, FloatDistribution | IntDistribution)
    middle = math.sqrt(entry.low * entry.high) if entry.log else (entry.low + entry.high) / 2
    return round(middle) if isinstance(entry, IntDistribution) else middle


def _ends(path: str, entry: BaseDistribution) -> list[tuple[float, Value]]:
    """The lowest and the highest value, weighted so that the cost has its mean.

    The cost is linear in a value; in a batch size, linear in the number of steps. Choices that are
    no numbers are probed each.
    """
    by_steps = path == "batch_size"
    if isinstance(entry, CategoricalDistribution):
        numbers = [value for value in entry.choices if isinstance(value, int | float)]
        if len(numbers) < len(entry.choices):
            return [(1 / len(entry.choices), value) for value in entry.choices]
        low, high = min(numbers), max(numbers)
    else:
        assert isinstance(entry, FloatDistribution | IntDistribution)
        low, high = entry.low, entry.high
    if low == high:
        return [(1.0, low)]
    at_low, at_high = (1 / low, 1 / high) if by_steps else (low, high)
    if isinstance(entry, CategoricalDistribution):
        mean = statistics.fmean([1 / value for value in numbers] if by_steps else numbers)
    elif entry.log:
        mean = abs(at_high - at_low) / math.log(high / low)
    elif by_steps:
        mean = math.log(high / low) / (high - low)
    else:
        mean = (low + high) / 2
    weight = (mean - at_high) / (at_low - at_high)
    return [(weight, low), (1 - weight, high)]


def _job(
    spec: StudySpec, file_name: str, label: str, digest: str, targets: Targets
) -> tuple[list[float], Job]:
    """The weights of what is probed for a label, and the job. Raises SpecError for a target that is
    not there."""
    with located(file_name, f"methods.{label}"):
        base = targets.named_in(spec.trial_mapping(label))
    resources = spec.resources_of(label)
    weights = []
    configs = []
    for weight, setting in settings_of(spec.variant(label).space):
        weights.append(weight)
        configs.append(with_values(base, setting))
    needs = {"cpu": resources.cpu, "gpu": resources.gpu}
    also = [objective.metric for objective in spec.objectives]
    return weights, (configs, digest, needs, also)


# ---- where ---------------------------------------------------------------------------------------


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


def probe_here(
    spec: StudySpec,
    file_name: str,
    digest: str,
    labels: Iterable[str],
    say: Say,
    targets: Targets,
    cpus: int | None = None,
) -> ProbedStudy:
    """Probe the methods one after another, each in as many processes of its own as trials train
    beside each other. Raises SpecError naming one that fails."""
    jobs = {label: _job(spec, file_name, label, digest, targets) for label in labels}
    slots_here(spec, cpus)  # refuses what does not fit
    ours = own_cpus(cpus).count
    copies = {label: _copies(spec.resources_of(label), ours) for label in jobs}
    threads = max(1, *(int(spec.resources_of(label).cpu) for label in jobs))
    with (
        temporary_folder("calstudy-probe-") as folder,
        _children(max(copies.values()), threads, Path(folder) / "stderr") as children,
    ):
        answers = {}
        for place, (label, (_, job)) in enumerate(jobs.items(), start=1):
            say(f"probing {label} ({place} of {len(jobs)})")
            asked = children[: copies[label]]
            for number, child in enumerate(asked):
                own = Path(folder) / str(number) / str(place)
                own.mkdir(parents=True)
                _ask(child, own, job)
            found = [_read(child, Path(folder) / "stderr") for child in asked]
            for each in found:
                _check(each, file_name, label)
            answers[label] = _mean_answer(found)
    return _gathered(jobs, answers)


def _copies(needs: Resources, cpus: int) -> int:
    """How many processes probe a trial at once: as many as train beside each other, on one GPU if
    they need any."""
    if needs.gpu:
        return sharing({"CPU": cpus, "GPU": 1.0}, needs)
    return min(MOST_COPIES, fitting({"CPU": cpus}, needs))


@contextmanager
def _children(count: int, threads: int, complaints: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that probe. complaints: the file of their standard error."""
    command = [sys.executable, "-P", "-c", CHILD]
    environment = {**own_code.environment(), "OMP_NUM_THREADS": str(threads)}
    children: list[subprocess.Popen[str]] = []
    with complaints.open("wb") as file:
        try:
            for _ in range(count):
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    env=environment,
                )
                children.append(child)
            yield children
        finally:
            for child in children:
                child.kill()
                child.wait()
                for pipe in (child.stdin, child.stdout):
                    if pipe is not None:
                        with suppress(BrokenPipeError):
                            pipe.close()


def _ask(child: subprocess.Popen[str], folder: Path, job: Job) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # reading its answer tells why
        child.stdin.write(json.dumps({"folder": str(folder), "job": job}) + "\n")
        child.stdin.flush()


def _read(child: subprocess.Popen[str], complaints: Path) -> Answer:
    """Its next answer; a `problem` if it has ended without one."""
    assert child.stdout is not None
    if line := child.stdout.readline():
        found: Answer = json.loads(line)
        return found
    lines = complaints.read_text(errors="replace").strip().splitlines()
    return {
        "problem": (
            f"its process ended with {child.wait()}{f' ({lines[-1][:300]})' if lines else ''}."
        )
    }


def _mean_answer(found: Sequence[Answer]) -> Answer:
    """What several processes measured at once, as one answer."""
    costs = [_mean(same) for same in zip(*(each["costs"] for each in found), strict=True)]
    return {**found[0], "costs": costs}


def _mean(costs: Sequence[Answer]) -> Answer:
    """Of the costs that several processes measured at once; sizes are equal, apart from the
    processes' memory."""
    means = {
        name: statistics.fmean(one[name] for one in costs)
        for name, value in costs[0].items()
        if isinstance(value, int | float)
    }
    return {**costs[0], **means}


def probe_on_cluster(
    spec: StudySpec,
    file_name: str,
    digest: str,
    labels: Iterable[str],
    say: Say,
    targets: Targets,
    off: Collection[str] = (),
) -> ProbedStudy:
    """Probe each method in Ray tasks with the resources of its trials, on the joined cluster: in as
    many as share a GPU. off: the ids of nodes not to use. Raises SpecError."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from study.engine.probe_worker import answer

    jobs = {label: _job(spec, file_name, label, digest, targets) for label in labels}
    nodes = [
        node["Resources"] for node in ray_nodes() if node["Alive"] and node["NodeID"] not in off
    ]
    found: dict[str, list[Answer]] = {label: [] for label in jobs}
    groups = {}
    copies = {}
    pending = {}
    try:
        for label, (_, job) in jobs.items():
            needs = spec.resources_of(label)
            copies[label] = max(1, *(sharing(offered, needs) for offered in nodes))
            # One bundle lies on one node, and a part of a GPU on one GPU.
            groups[label] = placement_group([needs.together(copies[label])], **label_selector(off))
            task = ray.remote(num_cpus=needs.cpu, num_gpus=needs.gpu, max_retries=0)(answer)
            there = PlacementGroupSchedulingStrategy(groups[label], 0)
            for _ in range(copies[label]):
                pending[task.options(scheduling_strategy=there).remote(*job)] = label
        while pending:
            say(f"probing {', '.join(dict.fromkeys(pending.values()))}")
            (ready, *_), _ = ray.wait(list(pending))
            label = pending.pop(ready)
            try:
                found[label].append(ray.get(ready))
            except ray.exceptions.RayError as error:
                found[label].append({"problem": " ".join(str(error).split())[-300:]})
            _check(found[label][-1], file_name, label)
            if len(found[label]) == copies[label]:  # another label may need its place
                remove_placement_group(groups.pop(label))
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        for group in groups.values():
            remove_placement_group(group)
    return _gathered(jobs, {label: _mean_answer(found[label]) for label in jobs})


def _check(found: Mapping[str, Any], file_name: str, label: str) -> None:
    if "problem" in found:
        raise SpecError(file_name, found.get("path", f"methods.{label}"), found["problem"])


def _gathered(
    jobs: Mapping[str, tuple[list[float], Any]], answers: Mapping[str, Mapping[str, Any]]
) -> ProbedStudy:
    probes: dict[str, Probes] = {
        label: [
            (weight, Cost(**cost))
            for weight, cost in zip(weights, answers[label]["costs"], strict=True)
        ]
        for label, (weights, _) in jobs.items()
    }
    return ProbedStudy(probes, _least(answers, "memory_free"), _least(answers, "device_size"))


def _least(answers: Mapping[str, Mapping[str, Any]], name: str) -> int | None:
    values: Iterator[int | None] = (found[name] for found in answers.values())
    return min((value for value in values if value is not None), default=None)
