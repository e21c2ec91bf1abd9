"""Probe a study before it runs: train a little of each method, where its trials would train.
Nothing of it is kept."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.analysis.prediction import Probes
from study.machines.cpus import own_cpus
from study.machines.node_facts import gpus
from study.machines.ray_session import Offer, check_fits
from study.machines.stopping import temporary_folder
from study.schema import own_code
from study.schema.errors import SpecError
from study.schema.probe_settings import settings_of
from study.schema.resources import slots
from study.schema.spec import StudySpec
from trainables.config import with_value
from trainables.training.probe_cost import Cost

Say = Callable[[str], None]
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


def _job(spec: StudySpec, label: str, digest: str) -> tuple[list[float], dict[str, Any]]:
    """The weights of what is probed for a label, and what `probe_worker.answer` is given."""
    base = spec.trial_mapping(label)
    resources = spec.resources_of(label)
    weights = []
    configs = []
    for weight, setting in settings_of(spec.variant(label).space):
        config = base
        for path, value in setting.items():
            config = with_value(config, path, value)
        weights.append(weight)
        configs.append(config)
    needs = {"cpu": resources.cpu, "gpu": resources.gpu}
    also = [objective.metric for objective in spec.objectives]
    return weights, {"configs": configs, "digest": digest, "resources": needs, "also": also}


# ---- where ---------------------------------------------------------------------------------------


def slots_here(spec: StudySpec, cpus: int | None = None) -> int:
    """How many trials fit on this machine at once. Raises ClusterError if those of a method do
    not."""
    ours = own_cpus(cpus)
    needs = {variant.label: spec.resources_of(variant.label) for variant in spec.variants}
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
    uses_gpu = any(job["resources"]["gpu"] for _, job in jobs.values())
    copies = 1 if uses_gpu else min(MOST_COPIES, slots_here(spec, cpus))
    threads = max(1, *(int(job["resources"]["cpu"]) for _, job in jobs.values()))
    environment = {**own_code.environment(), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-P", "-c", CHILD]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": environment,
    }
    with (
        temporary_folder("calstudy-probe-") as folder,
        (Path(folder) / "stderr").open("wb") as complaints,
    ):
        children = [subprocess.Popen(command, stderr=complaints, **pipes) for _ in range(copies)]
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
                    _mean(list(same))
                    for same in zip(*(each["costs"] for each in found), strict=True)
                ]
                answers[label] = {**found[0], "costs": costs}
        finally:
            for child in children:
                child.kill()
                child.wait()
                if child.stdout is not None:
                    child.stdout.close()
    return _gathered(jobs, answers)


def _read(child: subprocess.Popen[str], complaints: Path) -> dict[str, Any]:
    """Its next answer; a `problem` if it has ended without one."""
    assert child.stdout is not None
    if line := child.stdout.readline():
        found: dict[str, Any] = json.loads(line)
        return found
    lines = complaints.read_text(errors="replace").strip().splitlines()
    return {
        "problem": (
            f"its process ended with {child.wait()}{f' ({lines[-1][:300]})' if lines else ''}."
        )
    }


def _mean(costs: list[dict[str, Any]]) -> dict[str, Any]:
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
        pending[task.remote(job)] = label
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
