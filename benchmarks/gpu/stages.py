"""The stages, each a function of the options that returns what it found, in plain values."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import throughput
from benchmarks.gpu.cases import case
from search_spaces import strict_yaml
from trainables import methods, models
from trainables.config import TrialConfig
from trainables.loading.cache import load_split
from trainables.loading.trial_data import trial_data
from trainables.model import Model, Network
from trainables.outputs.classifier import Classifier
from trainables.outputs.predictions import Predictions
from trainables.training import program
from trainables.training.choices import Choices, ChoiceTable
from trainables.training.learner import Learner

Found = dict[str, Any]
Options = argparse.Namespace

FLIPPED = {"augment": "crop_flip"}


def learner(
    options: Options, device: str | None = None, data: Mapping[str, Any] = FLIPPED, **settings: Any
) -> Learner:
    """Of the images given; data: what else a spec says of them."""
    os.environ.setdefault("CALSTUDY_CACHE", str(options.state / "cache"))
    source = (
        {"name": "digits"}
        if options.data == "digits"
        else {"name": "parquet", "path": os.path.abspath(options.data)}
    )
    plain = {
        "data": {**source, "validation": 0.1, **data},
        "model": "cnn",
        "method": "cross_entropy",
        "capture": "on",
    }
    config = TrialConfig.from_mapping(
        {**plain, "batch_size": 64 if options.small else 512, **settings}
    )
    on = torch.device(device or options.device)
    return Learner(config, trial_data(config, on), on)


def first_batches(made: Learner, count: int) -> Choices:
    """The first of an epoch."""
    generator = torch.Generator().manual_seed(1)
    decided = made._decided(torch.randperm(len(made.train), generator=generator), generator)[0]
    rest = [{name: values[:count] for name, values in part.items()} for part in decided[2:]]
    return Choices(decided.progress[:count], decided.learning_rate[:count], *rest)


def steps(made: Learner, choices: Choices) -> None:
    with made._training(choices.steps):
        made._program.run(choices, lambda now: made._step(now, torch.Generator()))


def synchronize(options: Options) -> None:
    if options.device == "cuda":
        torch.cuda.synchronize()


def timed(options: Options, call: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds, the median of some calls after one that is not counted."""
    call()
    found = []
    for _ in range(rounds):
        synchronize(options)
        started = time.perf_counter()
        call()
        synchronize(options)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def _context() -> int:
    """Bytes that this process takes of the GPU beside PyTorch's own, its libraries loaded: what
    `trainables.training.device.CONTEXT` assumes. Right where no other process uses it."""
    matrix = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    _ = matrix @ matrix
    image = torch.randn(8, 8, 32, 32, device="cuda", dtype=torch.bfloat16)
    nn.functional.conv2d(image, torch.randn(8, 8, 3, 3, device="cuda", dtype=torch.bfloat16))
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def _driver() -> str:
    """The version of NVIDIA's driver."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({type(error).__name__})"


def inventory(options: Options) -> Found:
    """The machine, and how fast it multiplies and copies."""
    found: Found = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }
    if options.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "GiB": round(properties.total_memory / 2**30, 1)}
        found["architecture"] = f"sm_{properties.major}{properties.minor}"
        found["architectures of torch"] = torch.cuda.get_arch_list()
        found["driver"] = _driver()
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()
        found["bfloat16"] = torch.cuda.is_bf16_supported(False)
        found["context MiB"] = _context() / 2**20
        found["mps"] = os.path.exists("/tmp/nvidia-mps") or "CUDA_MPS_PIPE_DIRECTORY" in os.environ
    size, device = 256 if options.small else 8192, options.device
    for name, kind in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        one, other = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
        found[f"{name} TFLOP/s"] = (
            2 * size**3 / timed(options, lambda one=one, other=other: one @ other) / 1e12
        )
    source = torch.randn(size * size * 4, device=device)
    target = torch.empty_like(source)
    found["copy TB/s"] = 8 * source.numel() / timed(options, lambda: target.copy_(source)) / 1e12
    return found


def equal(options: Options) -> Found:
    """Every method's weights after six steps of deterministic algorithms: captured ones against
    eager ones, bit for bit. After the first of them eager ones against the CPU's: the largest
    relative difference. (Six steps magnify what a maximum decides the other way.)
    """
    torch.backends.cudnn.allow_tf32 = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as a trial sets it

    def trained(name: str, device: str, count: int, capture: str) -> tuple[Tensor, str | None]:
        """The weights, and why the steps were not captured."""
        settings = {"method": name, "capture": capture, "deterministic": True}
        made = learner(options, device, batch_size=64, **settings)
        steps(made, first_batches(made, count))
        return made.weights.vector.cpu(), made.eager_because

    def differences(name: str) -> Found:
        captured, because = trained(name, options.device, 6, "on")
        eager, again, first = (
            trained(name, options.device, count, "off")[0] for count in (6, 6, 1)
        )
        on_cpu, _ = trained(name, "cpu", 1, "off")
        return {
            "because": because,
            "captured": float((captured - eager).norm() / eager.norm()),
            "again": float((again - eager).norm() / eager.norm()),
            "cpu": float((first - on_cpu).norm() / on_cpu.norm()),
        }

    found = {
        name: case(options, "equal", name, lambda name=name: differences(name))
        for name in methods.names()
    }
    by_method = {name: each["cpu"] for name, each in found.items()}
    return {
        "ran eagerly": {name: each["because"] for name, each in found.items() if each["because"]},
        "captured unlike eager": {
            name: each["captured"] for name, each in found.items() if each["captured"]
        },
        "eager unlike eager": [name for name, each in found.items() if each["again"]],
        "from the CPU": max(by_method.values()),
        "by method": by_method,
    }


def repeated(options: Options) -> Found:
    """How far a step differs when it is taken again from the same state, without deterministic
    algorithms: the median and the largest relative difference of the weights. What
    `program.TOLERANCE` must exceed, which tells a broken capture."""

    def differences(**settings: Any) -> list[float]:
        made = learner(options, capture="off", **settings)
        choices = first_batches(made, 4 if options.small else 40)
        table = ChoiceTable(choices, made.device)
        table.fill(choices)
        written = [*made._program._written, *table.written]
        found = []
        with made._training(2 * choices.steps):
            for _ in range(choices.steps):
                before = [each.clone() for each in written]
                drawn = program._random_state(made.device)
                ended = []
                for again in (False, True):
                    if again:
                        program._fill(written, before)
                        program._set_random_state(made.device, drawn)
                    made._program.advance(table, lambda now: made._step(now, torch.Generator()))
                    ended.append(made.weights.vector.clone())
                found.append(float((ended[1] - ended[0]).norm() / ended[0].norm()))
        return sorted(found)

    found = {}
    for model in ("cnn",) if options.small else ("cnn", "resnet18"):
        for precision in ("float32", "bfloat16"):
            name = f"{model} {precision}"
            values = case(
                options,
                "repeated",
                name,
                partial(differences, model=model, precision=precision),
            )
            found[name] = {"median": statistics.median(values), "most": max(values)}
    return found


class Branching(nn.Module):
    """Reads a value back, which a graph cannot, after random numbers of the device."""

    def forward(self, images: Tensor) -> Tensor:
        dropped = nn.functional.dropout(images, 0.1, self.training)
        return dropped if dropped.sum() > 0 else -dropped


class Branches(Model):
    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        return Network(
            nn.Sequential(Branching(), nn.Flatten()), nn.Linear(math.prod(input_shape), num_classes)
        )


def uncaptured(options: Options) -> Found:
    """A model that cannot be captured trains eagerly, and the next trial of the process is
    captured all the same."""
    plain = learner(options, batch_size=64)
    branching = Learner(
        dataclasses.replace(plain.config, model=Branches()), plain.data, plain.device
    )
    for made in (branching, plain):
        steps(made, first_batches(made, 6))
    finite = all(bool(made.weights.vector.isfinite().all()) for made in (branching, plain))
    return {"because": branching.eager_because, "next": plain.facts()["step"], "finite": finite}


def of_images() -> list[str]:
    """The networks that give each image a class."""
    found = {name: models.find(name) for name in models.names()}
    return [name for name, one in found.items() if "image" in one.takes and not one.per_position]


def synchronisation(options: Options) -> Found:
    """Eager steps under torch's debug mode, in which waiting for the GPU is an error: every
    method, every network."""

    @contextmanager
    def strict(step: int) -> Iterator[None]:
        if options.device == "cuda" and step:  # the first chooses algorithms
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            if options.device == "cuda":
                torch.cuda.set_sync_debug_mode("default")

    left_out = ("torchvision", "timm", *(SLOW if options.small else ()))
    networks = [name for name in of_images() if name not in left_out]
    cases = [{"method": name} for name in methods.names()]
    cases += [{"model": name, "precision": "bfloat16"} for name in networks]
    cases += [{"method": name, "deterministic": True} for name in ("cross_entropy", "focal")]

    def waits(settings: dict[str, Any]) -> str | None:
        """What a step waits for."""
        made = learner(options, **{"batch_size": 64, **settings})
        choices = first_batches(made, 3)
        table = ChoiceTable(choices, made.device)
        table.fill(choices)
        try:
            with made._training(3):
                for step in range(3):
                    with strict(step):
                        made._program.advance(
                            table, lambda now, made=made: made._step(now, torch.Generator())
                        )
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None

    found = {}
    for settings in cases:
        name = " ".join(map(str, settings.values()))
        found[name] = case(options, "synchronisation", name, partial(waits, settings))
    return {"cases": len(cases), "that wait": {name: why for name, why in found.items() if why}}


def networks(options: Options) -> Found:
    """Every network's weights after six steps of deterministic algorithms, captured against eager,
    bit for bit; and in bfloat16, without them, the seconds of a captured step over an eager one's.
    """
    torch.backends.cudnn.allow_tf32 = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as a trial sets it

    def compared(name: str) -> Found:
        same: list[Tensor] = []
        seconds: list[float] = []
        because = None
        for capture in ("on", "off"):
            made = learner(options, model=name, batch_size=64, capture=capture, deterministic=True)
            steps(made, first_batches(made, 6))
            same.append(made.weights.vector.cpu())
            because = made.eager_because if capture == "on" else because
            made = learner(options, model=name, capture=capture, precision="bfloat16")
            choices = first_batches(made, 2 if options.small else 10)
            seconds.append(timed(options, partial(steps, made, choices), 3) / choices.steps)
            because = because or (made.eager_because if capture == "on" else None)
        captured, eager = same
        return {
            "because": because,
            "captured": float((captured - eager).norm() / eager.norm()),
            "eager ms": 1e3 * seconds[1],
            "over eager": seconds[1] / seconds[0],
        }

    found = {
        name: case(options, "networks", name, partial(compared, name))
        for name in of_images()
        if not (options.small and name in (*SLOW, "torchvision", "timm"))
    }
    return {
        "ran eagerly": {name: each["because"] for name, each in found.items() if each["because"]},
        "captured unlike eager": {
            name: each["captured"] for name, each in found.items() if each["captured"]
        },
        "eager ms": {name: each["eager ms"] for name, each in found.items()},
        "as fast as eager": {name: each["over eager"] for name, each in found.items()},
    }


def streamed(options: Options) -> Found:
    """Images a second of captured steps with the images on the GPU, and streamed to it: what a
    data set larger than half of a trial's share costs."""

    def rate(place: str, model: str) -> float:
        where = "trainables.loading.batches.place_of"
        found = place if options.device == "cuda" else "mapped"
        trial_data.__globals__["_trial_data"].cache_clear()
        with mock.patch(where, lambda size, device: found):
            made = learner(options, model=model, precision="bfloat16", epochs=100)
            seconds = timed(options, made.train_epoch, 1 if options.small else 3)
        return len(made.train) / seconds

    names = ("cnn",) if options.small else ("cnn", "resnet18")
    return {
        f"{model} {place}": case(
            options, "streamed", f"{model} {place}", partial(rate, place, model)
        )
        for model in names
        for place in ("resident", "streamed")
    }


SLOW = ("densenet121", "resnet101", "resnet110", "resnet34", "resnet50", "wide_resnet_26_10")


def cost(options: Options) -> Found:
    """Of each method a captured step in bfloat16: its seconds relative to cross-entropy's, those of
    its capture, and the most memory that PyTorch took."""
    rounds, count = (1, 6) if options.small else (5, 10)
    model = "cnn" if options.small else "resnet18"

    capture_it = program.capture

    def measured(name: str) -> dict[str, float | None]:
        made = learner(options, model=model, precision="bfloat16", method=name)
        choices = first_batches(made, count)
        captured: list[float] = []

        def capture(*words: Any) -> Any:
            started = time.perf_counter()
            replay = capture_it(*words)
            captured.append(time.perf_counter() - started)
            return replay

        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with mock.patch("trainables.training.program.capture", capture):
            seconds = timed(options, lambda: steps(made, choices), rounds)
        peak = torch.cuda.max_memory_allocated() / 2**20 if options.device == "cuda" else None
        return {
            "step": seconds / choices.steps,
            "capture": sum(captured) if captured else None,
            "peak": peak,
        }

    found = {
        name: case(options, "cost", name, partial(measured, name))
        for name in ["cross_entropy", *methods.names()]
    }
    base = found["cross_entropy"]["step"]
    return {
        "cross_entropy ms": 1e3 * base,
        "over it": {name: each["step"] / base for name, each in found.items()},
        "capture s": _there(found, "capture"),
        "peak MiB": _there(found, "peak"),
    }


def _there(found: dict[str, Any], key: str) -> dict[str, float]:
    return {name: each[key] for name, each in found.items() if each[key] is not None}


def profile(options: Options) -> Found:
    """Ten captured and ten eager steps under torch's profiler: OUT/trace.json.gz, and what takes
    most of the device's time."""
    from torch.profiler import ProfilerActivity

    model = "cnn" if options.small else "resnet18"
    made = [
        learner(options, model=model, precision="bfloat16", capture=capture)
        for capture in ("on", "off")
    ]
    choices = first_batches(made[0], 10)
    for each in made:
        steps(each, choices)
    watched = [ProfilerActivity.CPU]
    if options.device == "cuda":
        watched.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=watched) as seen:
        for each in made:
            steps(each, choices)
        synchronize(options)
    seen.export_chrome_trace(str(options.out / "trace.json.gz"))
    key = "self_device_time_total" if options.device == "cuda" else "self_cpu_time_total"
    events = sorted(seen.key_averages(), key=lambda event: -getattr(event, key))
    total = sum(getattr(event, key) for event in events)
    return {"share": {event.key[:60]: getattr(event, key) / total for event in events[:12]}}


def ladder(model: str) -> Callable[[Options], Found]:
    """Images a second: a DataLoader script; the Learner eager, in bfloat16, captured,
    compiled; its step alone."""

    def stage(options: Options) -> Found:
        words = argparse.Namespace(
            model="cnn" if options.small else model,
            method="cross_entropy",
            device=options.device,
            former="",
        )
        words.batch, words.rounds, words.count = (64, 1, 100) if options.small else (512, 3, 20_000)
        arms = throughput.ON_CPU[2:] if options.device == "cpu" else throughput.ON_GPU
        arms = [
            *dict.fromkeys(["loader", *arms]),
            *(["airbench"] if model == "airbench" and throughput.has_airbench(options) else []),
        ]
        missing: dict[str, str] = {}
        rates = throughput.measure(words, arms, missing)
        found = {arm: statistics.median(values) for arm, values in rates.items()}
        return {**found, **{arm: f"did not start: {why}" for arm, why in missing.items()}}

    return stage


def actors(options: Options, stage: str = "actors") -> Found:
    """Images a second of 1, 2, 4 and 8 processes that train at once, one CPU thread each."""

    def rate(count: int) -> float:
        words = ["--data", options.data, "--device", options.device, "--state", str(options.state)]
        words += ["--small"] if options.small else []
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.gpu",
            "--stage",
            "actor",
            *words,
        ]
        pipe = subprocess.PIPE
        running = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)
        ]
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()  # it is ready
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return sum(json.loads(each.communicate()[0])["images/s"] for each in running)

    counts = (2,) if options.small else (1, 2, 4, 8)
    return {str(count): case(options, stage, str(count), partial(rate, count)) for count in counts}


def actors_under_mps(options: Options) -> Found:
    """The same under NVIDIA's MPS, whose daemon is this stage's own; the device's
    compute mode stays as it is."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return {"skipped": "no MPS here"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        with mock.patch.dict(os.environ, own):
            said = Path(folder) / "said"
            with said.open("w") as file:  # a pipe would wait for the daemon's end
                started = subprocess.run([control, "-d"], stdout=file, stderr=file, timeout=60)
            if started.returncode != 0:
                return {"skipped": f"MPS does not start: {said.read_text().strip()}"}
            try:
                return actors(options, "actors under MPS")
            finally:
                subprocess.run(
                    [control], input="quit\n", text=True, stdout=subprocess.DEVNULL, timeout=60
                )


def actor(options: Options) -> Found:
    """One of them: trains for some seconds from the line that comes when all are ready."""
    torch.set_num_threads(1)
    made = learner(options, precision="bfloat16", epochs=10_000)
    for _ in range(1 if options.small else 3):  # a smaller last batch is captured in the third
        made.train_epoch()
    synchronize(options)
    print("ready", flush=True)
    sys.stdin.readline()
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < (0.1 if options.small else 8):
        made.train_epoch()
        images += len(made.train)
    synchronize(options)
    return {"images/s": images / (time.perf_counter() - started)}


def accuracy(options: Options) -> Found:
    """A whole training, seconds and validation values: ResNet-18, 16 epochs, in each precision."""

    def training(precision: str) -> Found:
        settings: dict[str, Any] = {
            "model": "cnn" if options.small else "resnet18",
            "epochs": 1 if options.small else 16,
        }
        settings |= {"precision": precision, "optimizer": {"lr": 0.2, "schedule": "one_cycle"}}
        started = time.perf_counter()
        made = learner(options, **settings)
        built = time.perf_counter() - started
        while not made.finished:
            made.train_epoch()
        values = made.predictions().evaluate()
        measured = {name: values[name] for name in ("accuracy", "nll", "ece")}
        last = made.history[-1]["seconds"]
        return {
            "built s": built,
            "s": time.perf_counter() - started,
            "last epoch s": last,
            **measured,
        }

    return {
        precision: case(options, "accuracy", precision, partial(training, precision))
        for precision in ("float32", "bfloat16")
    }


def fast_recipe() -> Found:
    """study/specs/cifar10_fast.yaml, but for where its images come from."""
    spec = strict_yaml.read(Path(__file__).parents[2] / "study" / "specs" / "cifar10_fast.yaml")
    recipe = {name: spec[name] for name in ("model", "optimizer", "batch_size", "epochs")}
    data = {name: spec["data"][name] for name in ("augment", "padding")}
    return {**recipe, "data": data, "precision": "bfloat16"}  # as `auto` on a GPU


def whole_trial(options: Options, **settings: Any) -> Found:
    """A trial from its config to its files, as a study has it: seconds in all, outside
    the epochs, and its values."""
    began = time.perf_counter()
    made = learner(options, **settings)
    training = time.perf_counter()
    while not made.finished:
        made.advance()
    trained = time.perf_counter()
    with ThreadPoolExecutor(1) as beside:
        beside.submit(made.classifier().save, options.state / "model.pt")
        predictions = made.predictions()
    predictions.save(options.state / "predictions.npz")
    values = predictions.evaluate()
    made.leave()
    ended = time.perf_counter()
    return {
        "s": ended - began,
        "between s": ended - trained + training - began,
        "accuracy": values["accuracy"],
    }


def trials(options: Options) -> Found:
    """Whole trials of a process, one after another, by five seeds: a fast recipe,
    and ResNet-18 in 16 epochs.

    The first, which captures, is not counted.
    """
    resnet = {"model": "resnet18", "epochs": 16, "optimizer": {"lr": 0.2, "schedule": "one_cycle"}}
    recipes = {"fast recipe": fast_recipe(), "ResNet-18": {**resnet, "precision": "bfloat16"}}
    found: Found = {}
    for name, settings in recipes.items():
        if options.small:
            small = {"name": "airbench", "width": 4} if name == "fast recipe" else "cnn"
            settings = {**settings, "epochs": 1, "model": small, "batch_size": 64}
        train = partial(whole_trial, options, **settings)
        runs = [
            case(options, "trials", f"{name} {number}", partial(train, number=number))
            for number in range(3 if options.small else 6)
        ][1:]
        middle = {name: statistics.median(run[name] for run in runs) for name in ("s", "between s")}
        accuracies = [run["accuracy"] for run in runs]
        found[name] = {**middle, "trials/h": 3600 / middle["s"], "accuracies": accuracies}
    return found


def airbench(options: Options) -> Found:
    """PyPI's airbench on the same images, five trainings: seconds, and accuracy without its
    test-time augmentation."""
    if not throughput.has_airbench(options):
        return {"skipped": "no GPU, or no airbench here"}
    import airbench as package

    prepared = learner(options).data.prepared
    parts = {
        name: load_split(prepared, split)[:2]
        for name, split in (("train", "train"), ("test", "validation"))
    }
    throughput.write_for_airbench(options.state / "airbench", **parts)
    found: Found = {"s": [], "accuracies": []}
    for _ in range(6):
        started = time.perf_counter()
        network = package.train94(tta_level=0, verbose=False)
        torch.cuda.synchronize()
        found["s"].append(time.perf_counter() - started)
        test = package.CifarLoader("cifar10", train=False, batch_size=2000)
        found["accuracies"].append(package.evaluate(network, test, tta_level=0))
    return {name: values[1:] for name, values in found.items()}


def trial(options: Options) -> Found:
    """A trained model's files, for the machine at home (`--verify OUT`)."""
    made = learner(options, epochs=1 if options.small else 4, precision="bfloat16")
    while not made.finished:
        made.train_epoch()
    predictions = made.predictions()
    predictions.save(options.out / "predictions.npz")
    made.classifier().save(options.out / "model.pt")
    (options.out / "config.json").write_text(json.dumps(made.config.to_mapping()))
    return {"accuracy": predictions.evaluate()["accuracy"]}


def verified(folder: Path, options: Options) -> Found:
    """The largest difference of a probability between the files' predictions and
    the model's here, on the CPU."""
    options.state = folder
    stored = json.loads((folder / "config.json").read_text())
    kept = {key: stored[key] for key in ("model", "batch_size", "epochs", "precision")}
    made = learner(options, "cpu", **kept)
    prepared, validation = made.data.prepared, made.data.validation
    classifier = Classifier(made.network, prepared.mean, prepared.std).load(folder / "model.pt")
    made.network.load_state_dict(classifier.network.state_dict())
    ours, theirs = made.predict(), Predictions.load(folder / "predictions.npz")
    difference = (ours.logits.softmax(-1) - theirs.logits.softmax(-1)).abs().max()
    return {"samples": len(validation), "largest difference": float(difference)}


def study(options: Options) -> Found:
    """`calstudy run` with four trials on the GPU at once; those of `huge` need more than
    their share of its memory."""
    if find_spec("ray") is None or find_spec("mlflow") is None:
        return {"skipped": "no Ray or MLflow here"}
    on_gpu = options.device == "cuda"
    values = {"model.width": 512, "batch_size": 16384}  # 90 GB of features
    huge = [{"label": "huge", "name": "brier", "values": values}] if on_gpu else []
    source = (
        "digits"
        if options.data == "digits"
        else {"name": "parquet", "path": os.path.abspath(options.data)}
    )
    spec = {
        "name": "gpu",
        "data": source,
        "model": "cnn",
        "methods": ["cross_entropy", "mixup", *huge],
        "epochs": 2,
    }
    spec |= {
        "trials": 2 if options.small else 4,
        "batch_size": 512,
        "precision": "auto",
        "capture": "on",
        "resources": {"gpu": 0.25 if on_gpu else 0},
    }
    file = options.state / "gpu.yaml"
    file.write_text(json.dumps(spec))
    command = [sys.executable, "-m", "study.cli"]
    storage = ["--storage", str(options.state / "studies")]
    started = time.perf_counter()
    subprocess.run([*command, "run", str(file), *storage], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - started
    subprocess.run([*command, "audit", "gpu", *storage], check=True, stdout=sys.stderr)
    status = subprocess.run(
        [*command, "status", "gpu", *storage, "--json"], check=True, capture_output=True, text=True
    )
    said = subprocess.run([*command, "status", "gpu", *storage], capture_output=True, text=True)
    counts = json.loads(status.stdout)
    return {"s": seconds, "audit": "clean", "trials": counts, "status": said.stdout}


STAGES: dict[str, Callable[[Options], Found]] = {
    "inventory": inventory,
    "equal": equal,
    "study": study,
    "repeated": repeated,
    "uncaptured": uncaptured,
    "synchronisation": synchronisation,
    "networks": networks,
    "streamed": streamed,
    "ladder resnet18": ladder("resnet18"),
    "ladder cnn": ladder("cnn"),
    "ladder airbench": ladder("airbench"),
    "cost": cost,
    "profile": profile,
    "actors": actors,
    "actors under MPS": actors_under_mps,
    "accuracy": accuracy,
    "trials": trials,
    "airbench": airbench,
    "trial": trial,
}
