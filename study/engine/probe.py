"""Probe a study before it runs: train a little of each method, where its trials would train.
Nothing of it is kept."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from study.machines.cpus import own_cpus
from study.machines.node_facts import gpus
from study.machines.ray_session import Offer, check_fits
from study.machines.stopping import temporary_folder
from study.schema import own_code
from study.schema.errors import SpecError
from study.schema.resources import slots
from study.schema.spec import StudySpec
from study.schema.variant import Space, with_values
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


def _job(spec: StudySpec, label: str, digest: str) -> tuple[list[float], Job]:
    """The weights of what is probed for a label, and the job."""
    base = spec.trial_mapping(label)
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
    not."""
    ours = own_cpus(cpus)
    needs = spec.needs
    count = gpus()["gpus"] if any(each.gpu for each in needs.values()) else 0
    offered = {"CPU": ours.count, "GPU": count if isinstance(count, int) else 0}
    node: Offer = {"Alive": True, "Resources": offered}
    check_fits([node], needs, ours)
    return max(slots([node], each) for each in needs.values())


def probe_here(
    spec: StudySpec,
    file_name: str,
    digest: str,
    labels: Iterable[str],
    say: Say,
    cpus: int | None = None,
) -> ProbedStudy:
    """Probe the methods one after another, in processes of their own. Raises SpecError naming one
    that fails."""
    jobs = {label: _job(spec, label, digest) for label in labels}
    needs = [spec.resources_of(label) for label in jobs]
    uses_gpu = any(each.gpu for each in needs)
    copies = 1 if uses_gpu else min(MOST_COPIES, slots_here(spec, cpus))
    threads = max(1, *(int(each.cpu) for each in needs))
    environment = {**own_code.environment(), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-P", "-c", CHILD]
    with (
        temporary_folder("calstudy-probe-") as folder,
        (Path(folder) / "stderr").open("wb") as complaints,
    ):
        children = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=environment,
            )
            for _ in range(copies)
        ]
        try:
            for place, child in enumerate(children):
                own = Path(folder) / str(place)
                own.mkdir()
                assert child.stdin is not None
                with suppress(BrokenPipeError), child.stdin:
                    child.stdin.write(
                        json.dumps({"folder": str(own), "jobs": [job for _, job in jobs.values()]})
                    )
            answers = {}
            for place, label in enumerate(jobs, start=1):
                say(f"probing {label} ({place} of {len(jobs)})")
                found = [_read(child, Path(folder) / "stderr") for child in children]
                for each in found:
                    _check(each, file_name, label)
                costs = [
                    _mean(same) for same in zip(*(each["costs"] for each in found), strict=True)
                ]
                answers[label] = {**found[0], "costs": costs}
        finally:
            for child in children:
                child.kill()
                child.wait()
                if child.stdout is not None:
                    child.stdout.close()
    return _gathered(jobs, answers)


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
    spec: StudySpec, file_name: str, digest: str, labels: Iterable[str], say: Say
) -> ProbedStudy:
    """Probe each method in a Ray task with the resources of its trials, on the joined cluster.
    Raises SpecError."""
    import ray

    from study.engine.probe_worker import answer

    jobs = {label: _job(spec, label, digest) for label in labels}
    pending = {}
    for label, (_, job) in jobs.items():
        needs = spec.resources_of(label)
        task = ray.remote(num_cpus=needs.cpu, num_gpus=needs.gpu, max_retries=0)(answer)
        pending[task.remote(*job)] = label
    answers = {}
    try:
        while pending:
            say(f"probing {', '.join(pending.values())}")
            (ready, *_), _ = ray.wait(list(pending))
            label = pending.pop(ready)
            try:
                answers[label] = ray.get(ready)
            except ray.exceptions.RayError as error:
                answers[label] = {"problem": " ".join(str(error).split())[-300:]}
            _check(answers[label], file_name, label)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
    return _gathered(jobs, {label: answers[label] for label in jobs})


def _check(found: Mapping[str, Any], file_name: str, label: str) -> None:
    if "problem" in found:
        raise SpecError(file_name, f"methods.{label}", found["problem"])


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
