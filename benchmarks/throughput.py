"""How fast images are trained on: our Learner beside a script, its own step alone, and
the path of a former commit.

    python benchmarks/throughput.py --model resnet18 --batch 128
    python benchmarks/throughput.py --model cnn --batch 128 --former 72dc48a

Prints Markdown for benchmarks/results/training.md. Each arm is a process that trains on one thread
when it is told to; the arms take turns, `--rounds` times. Seconds are CPU seconds on a CPU (other
processes do not change them), and seconds of the clock on a GPU. The images are random: 32x32,
cropped and flipped. The arms:
- loader: a DataLoader of PIL images with torchvision's transforms, torch.optim.SGD,
  float32, as papers' code has it;
- former: the Learner of `--former`, from a worktree of this repository;
- learner: today's Learner, float32; learner bfloat16; on a GPU also eager, and
  with the network compiled;
- bound: only the Learner's step, on one batch that lies there already; in both precisions;
- airbench: PyPI's package of that name, where it is installed and there is a
  GPU, on the same images.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FORMER = "72dc48a"
ON_CPU = ("loader", "former", "learner", "learner bfloat16", "bound", "bound bfloat16")
# Its steps are captured where nothing else is said.
ON_GPU = (
    *("loader", "learner eager", "learner eager bfloat16", "learner", "learner bfloat16"),
    *("learner bfloat16 compiled", "learner bfloat16 cudnn.benchmark", "bound", "bound bfloat16"),
)


def write_images(file: Path, count: int) -> None:
    """A parquet file of random images of ten classes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng, encoded = np.random.default_rng(0), []
    for _ in range(count):
        image = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(image, "png")
        encoded.append(image.getvalue())
    pq.write_table(
        pa.table({"image": encoded, "label": [number % 10 for number in range(count)]}), file
    )


def learner(options: argparse.Namespace, **settings: Any) -> Any:
    """Of whichever commit is imported here."""
    import torch

    from trainables.config import TrialConfig
    from trainables.loading.trial_data import trial_data

    try:
        from trainables.training.learner import Learner
    except ImportError:
        from trainables.learner import Learner  # type: ignore[import-not-found, no-redef]

    data = {
        "name": "parquet",
        "path": str(options.images),
        "augment": "crop_flip",
        "validation": 0.02,
    }
    plain = {
        "data": data,
        "model": options.model,
        "method": options.method,
        "batch_size": options.batch,
    }
    if "capture" in {each.name for each in fields(TrialConfig)}:  # a former commit's is always on
        plain["capture"] = "on"
    config = TrialConfig.from_mapping({**plain, "epochs": 1000, **settings})
    device = torch.device(options.device)
    return Learner(config, trial_data(config, device), device)


def by_learner(options: argparse.Namespace, **settings: Any) -> Callable[[], int]:
    made = learner(options, **settings)
    if "eager" in options.arm.split():
        made._program.eager_because = "asked for"

    def epoch() -> int:
        made.train_epoch()
        return len(made.train)

    return epoch


def by_step(options: argparse.Namespace, **settings: Any) -> Callable[[], int]:
    import torch

    made = learner(options, **settings)
    generator = torch.Generator()
    choices, *_ = made._decided(torch.arange(len(made.train)), generator)
    batch = made.train.batch(
        {name: values[0].to(made.device) for name, values in choices.train.items()}
    )
    made.train.batch = lambda decided: batch

    def epoch() -> int:
        with made._training(choices.steps):
            made._program.run(choices, lambda now: made._step(now, generator))
        return choices.steps * options.batch

    return epoch


def by_loader(options: argparse.Namespace) -> Callable[[], int]:
    import pyarrow.parquet as pq
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    table = pq.read_table(options.images).to_pydict()
    images = [Image.open(io.BytesIO(encoded)).convert("RGB") for encoded in table["image"]]
    train = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )

    class Images(Dataset[Any]):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            return train(images[index]), table["label"][index]

    from trainables import models

    device = torch.device(options.device)
    network = models.find(options.model)().build((3, 32, 32), 10).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(Images(), options.batch, shuffle=True)

    def epoch() -> int:
        network.train()
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(
                network(batch.to(device)), labels.to(device)
            ).backward()
            optimizer.step()
        return len(images)

    return epoch


def has_airbench(options: argparse.Namespace) -> bool:
    """Whether PyPI's package can train here: it needs a GPU."""
    return options.device == "cuda" and find_spec("airbench") is not None


def write_for_airbench(folder: Path, **parts: Any) -> None:
    """Files of (uint8 [N, C, 32, 32], labels [N]) for its loader, which looks for them below
    the working directory."""
    import torch

    (folder / "cifar10").mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in parts.items():
        kept = {
            "images": images.permute(0, 2, 3, 1).contiguous(),
            "labels": labels,
            "classes": list("0123456789"),
        }
        torch.save(kept, folder / "cifar10" / f"{name}.pt")
    os.chdir(folder)


def by_airbench(options: argparse.Namespace) -> Callable[[], int]:
    """An epoch of its training, with the whitening that comes before."""
    import airbench

    from trainables.loading.cache import load_split

    prepared = learner(options, model="cnn").data.prepared
    parts = {
        name: load_split(prepared, split)[:2]
        for name, split in (("train", "train"), ("test", "validation"))
    }
    write_for_airbench(options.images.parent, **parts)
    loader = airbench.CifarLoader(
        "cifar10", batch_size=options.batch, aug={"flip": True, "translate": 2}, altflip=True
    )

    def epoch() -> int:
        airbench.train94(loader, epochs=1, verbose=False)
        return len(loader) * options.batch

    return epoch


def work(options: argparse.Namespace) -> None:
    """An arm: at the first line that comes some epochs that are not counted; at each other one an
    epoch and a line of JSON."""
    import torch

    torch.set_num_threads(1)
    # An editable install would find here what a former commit does not have.
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
    words = options.arm.split()
    settings = {"precision": "bfloat16"} if "bfloat16" in words else {}
    settings |= {"compile": True} if "compiled" in words else {}
    torch.backends.cudnn.benchmark = "cudnn.benchmark" in words
    makers: dict[str, Any] = {"loader": by_loader, "bound": by_step, "airbench": by_airbench}
    if words[0] in ("learner", "bound") and options.device == "cpu":  # as in a trial's process
        from trainables.machine import keep_freed_memory

        keep_freed_memory()
    epoch = makers.get(words[0], by_learner)(options, **settings)
    on_gpu = options.device != "cpu"
    sys.stdin.readline()
    # A smaller last batch is captured in the third epoch.
    for _ in range(3 if on_gpu and words[0] != "loader" else 1):
        epoch()
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter(), time.process_time()
        images = epoch()
        if on_gpu:
            torch.cuda.synchronize()
        clock, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
        print(json.dumps({"images": images, "seconds": clock if on_gpu else cpu}), flush=True)


class NotStarted(Exception):
    """An arm that ended before it trained, and why."""


@contextmanager
def worker(arm: str, options: argparse.Namespace, root: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["--model", options.model, "--method", options.method, "--batch", str(options.batch)]
    words += ["--device", options.device, "--arm", arm, "--images", str(options.images)]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    environment["PYTHONFAULTHANDLER"] = "1"
    environment["CALSTUDY_CACHE"] = str(options.images.parent / f"cache-{root.name}")
    command = [sys.executable, "-W", "ignore", __file__, *words]
    pipe = subprocess.PIPE
    with (
        errors(arm, options).open("w") as said,
        subprocess.Popen(
            command, cwd=root, env=environment, stdin=pipe, stdout=pipe, stderr=said, text=True
        ) as process,
    ):
        yield process
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def errors(arm: str, options: argparse.Namespace) -> Path:
    """The file of the worker's standard error."""
    return Path(options.images.parent / f"{arm}.log")


def begin(arm: str, process: subprocess.Popen[str], options: argparse.Namespace) -> None:
    """Have the worker train what is not counted. Raises NotStarted."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if line != "ready\n":
        said = errors(arm, options).read_text().strip() or "it said nothing"
        end = f"it printed {line!r}" if line else f"exit code {process.wait()}"
        raise NotStarted(f"{said.splitlines()[-1]} ({end})")


def measure(
    options: argparse.Namespace, arms: list[str], missing: dict[str, str] | None = None
) -> dict[str, list[float]]:
    """Images a second of each arm, by round. Why an arm did not start is added to `missing`."""
    rates: dict[str, list[float]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder, ExitStack() as stack:
        options.images = Path(folder) / "images.parquet"
        write_images(options.images, options.count)
        former = Path(folder) / "former"
        if "former" in arms:
            add = [
                "git",
                "-C",
                str(ROOT),
                "worktree",
                "add",
                "--quiet",
                "--detach",
                str(former),
                options.former,
            ]
            subprocess.run(add, check=True)
            stack.callback(
                subprocess.run,
                ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(former)],
            )
        workers = {
            arm: stack.enter_context(worker(arm, options, former if arm == "former" else ROOT))
            for arm in arms
        }  # They are made at once, and begin in turn.
        for arm in arms:
            try:
                begin(arm, workers[arm], options)
            except NotStarted as error:
                print(f"{arm}: did not start: {error}", file=sys.stderr)
                if missing is not None:
                    missing[arm] = str(error)
                del rates[arm], workers[arm]
        for _ in range(options.rounds):
            for arm, process in workers.items():
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write("\n")
                process.stdin.flush()
                found = json.loads(process.stdout.readline())
                rates[arm].append(found["images"] / found["seconds"])
    return rates


def table(rates: dict[str, list[float]], base: str) -> str:
    """Markdown: medians over the rounds, the extremes, and the ratio to `base` of the same
    round."""
    lines = [f"| arm | images/s | least, most | over {base} |", "|---|---|---|---|"]
    for arm, found in rates.items():
        ratio = statistics.median(
            one / other for one, other in zip(found, rates[base], strict=True)
        )
        extremes = f"{min(found):,.0f}, {max(found):,.0f}"
        lines.append(f"| {arm} | {statistics.median(found):,.0f} | {extremes} | {ratio:.2f}x |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--method", default="cross_entropy")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--count", type=int, default=2000, help="images; 78%% of them are trained on"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--former", default=FORMER, help="a commit of this repository; '' for none")
    parser.add_argument("--arms", help="some of them, separated by commas")
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    parser.add_argument("--images", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        work(options)
        return
    arms = (
        options.arms.split(",")
        if options.arms
        else list(ON_CPU if options.device == "cpu" else ON_GPU)
    )
    arms += ["airbench"] if options.model == "airbench" and has_airbench(options) else []
    arms = [arm for arm in arms if arm != "former" or options.former]
    print(
        f"{options.model}, {options.method}, batch {options.batch}, {options.device},"
        f" {options.rounds} rounds\n"
    )
    print(table(measure(options, arms), arms[1] if arms[1:] and arms[1] == "former" else arms[0]))


if __name__ == "__main__":
    main()
