"""Rows of numbers: what an epoch costs beside plain PyTorch, and a whole study of embeddings.

    python -m benchmarks.rows head                           # a last layer on 45,000 x 512 features
    python -m benchmarks.rows newsgroups texts.parquet DIR   # six methods x 24 trials, to the audit

`head` prints CPU seconds an epoch of one thread; the baseline is a loop over shuffled indices with
`torch.optim.Adam`, in the same process. `newsgroups` takes the 20 Newsgroups by date as a parquet
file with the columns split, class and text; it makes a table of them (TF-IDF, 200 singular
vectors), then runs the study's commands one after another and prints what each took.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SAMPLES, COLUMNS, CLASSES = 45_000, 512, 10
EPOCHS = 5
METHODS = ["cross_entropy", "brier", "focal", "label_smoothing", "mbls", "mmce"]
STUDY = """
name: newsgroups
data: {{name: table, path: {table}, label: class}}
model: {{name: mlp, width: 256}}
methods: [{methods}]
optimizer: {{name: adam, lr: 0.001}}
batch_size: 128
epochs: 20
trials: 24
"""
CALSTUDY = str(Path(sys.executable).with_name("calstudy"))
NAMED = ("--storage", "studies")


def commands_of(name: str, *confirm: str) -> list[tuple[str, ...]]:
    """What is run of a study, from its file to the audit. confirm: how it is confirmed."""
    return [
        ("run", f"{name}.yaml"),
        confirm,
        ("answer", name),
        ("report", name),
        ("export", name, "--name", name, "--alias", "champion"),
        ("verify", f"models:/{name}@champion"),
        ("audit", name),
    ]


# ---- a last layer on features --------------------------------------------------------------------


def head() -> None:
    """Print an epoch's CPU seconds, ours and the plain loop's."""
    import torch

    torch.set_num_threads(1)
    print("| batch | calstudy | plain PyTorch | plain over calstudy |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for batch in (128, 512):
            ours = _ours(Path(folder), batch)
            plain = _plain(Path(folder), batch)
            print(f"| {batch} | {ours:.2f} s | {plain:.2f} s | {plain / ours:.2f}x |")


def _seconds(epoch: Callable[[], object]) -> float:
    """The median CPU time of an epoch, after a first one."""
    epoch()
    found = []
    for _ in range(EPOCHS):
        before = time.process_time()
        epoch()
        found.append(time.process_time() - before)
    return float(np.median(found))


def _split(folder: Path, name: str, samples: int) -> None:
    random = np.random.default_rng(samples)
    np.save(folder / f"{name}.npy", random.standard_normal((samples, COLUMNS), dtype=np.float32))
    np.save(folder / f"{name}_labels.npy", random.integers(0, CLASSES, samples))


def _ours(folder: Path, batch: int) -> float:
    """Our learner, validation included, on features as `train: head` leaves them."""
    import torch

    from trainables.config import TrialConfig
    from trainables.inputs import Inputs
    from trainables.loading.cache import Prepared
    from trainables.loading.trial_data import TrialData
    from trainables.training.learner import Learner

    sizes = {"train": SAMPLES, "validation": SAMPLES // 9, "test": 0}
    for name in ("train", "validation"):
        _split(folder, name, sizes[name])
    inputs = Inputs((COLUMNS,), "features")
    classes = tuple(map(str, range(CLASSES)))
    prepared = Prepared(folder, "", classes, inputs, (0.0,), (1.0,), sizes)
    plain = {
        "data": "digits",  # not read
        "model": {"name": "mlp", "depth": 0},
        "method": "cross_entropy",
        "optimizer": {"name": "adam", "lr": 0.001},
        "batch_size": batch,
        "epochs": EPOCHS + 1,
    }
    cpu = torch.device("cpu")
    learner = Learner(TrialConfig.from_mapping(plain), TrialData(prepared, cpu, "none", None), cpu)
    return _seconds(learner.train_epoch)


def _plain(folder: Path, batch: int) -> float:
    """The shortest loop that trains the same layer; it validates nothing."""
    import torch
    from torch.nn import functional as F

    rows = torch.from_numpy(np.load(folder / "train.npy"))
    labels = torch.from_numpy(np.load(folder / "train_labels.npy"))
    layer = torch.nn.Linear(COLUMNS, CLASSES)
    optimizer = torch.optim.Adam(layer.parameters(), 0.001)

    def epoch() -> None:
        for part in torch.randperm(len(rows)).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(layer(rows[part]), labels[part]).backward()
            optimizer.step()

    return _seconds(epoch)


# ---- a study of embeddings -----------------------------------------------------------------------


def write_table(texts: Path, table: Path) -> None:
    """20 Newsgroups as rows of 200 numbers; validation is carved before anything is fitted."""
    import pandas as pd
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline

    found = pd.read_parquet(texts)
    bodies = found["text"].str.partition("\n\n")[2]  # the headers name the group
    train = found.index[found["split"] == "train"]
    fit, held = train_test_split(
        train, test_size=0.1, random_state=0, stratify=found["class"][train]
    )
    found.loc[held, "split"] = "validation"
    tfidf = TfidfVectorizer(min_df=2, sublinear_tf=True)
    encode = make_pipeline(tfidf, TruncatedSVD(200, random_state=0))
    encode.fit(bodies[fit])
    rows = pd.DataFrame(encode.transform(bodies)).add_prefix("svd_")
    rows.assign(**found[["class", "split"]]).to_parquet(table, index=False)


def newsgroups(texts: Path, folder: Path) -> None:
    """Run the study's commands in the folder; print what each took."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "newsgroups.parquet"
    if not table.exists():
        before = time.process_time()
        write_table(texts, table)
        print(f"table: {time.process_time() - before:.0f} CPU s", flush=True)
    spec = STUDY.format(table=table.name, methods=", ".join(METHODS))
    (folder / "newsgroups.yaml").write_text(spec.lstrip())
    run_commands(folder, "newsgroups", "confirm", "newsgroups", "--pareto", "--seeds", "3")


def run_commands(folder: Path, name: str, *confirm: str) -> None:
    """Run the commands in the folder; print what each took, and the scores on test."""
    for words in commands_of(name, *confirm):
        began = time.monotonic()
        command = [CALSTUDY, *words, *NAMED]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        taken = time.monotonic() - began
        last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
        print(f"{words[0]}: exit {done.returncode}, {taken:.0f} s; {' '.join(last)}", flush=True)
        if done.returncode:
            raise SystemExit(done.stderr)
    _print_test(folder, name)


def _print_test(folder: Path, name: str) -> None:
    """Print accuracy and ECE on validation and test of each confirmed row."""
    command = [CALSTUDY, "report", name, "--format", "md", *NAMED]
    print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("head")
    texts = parts.add_parser("newsgroups")
    texts.add_argument("texts", type=Path)
    texts.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.part == "head":
        head()
    else:
        newsgroups(options.texts, options.folder)


if __name__ == "__main__":
    main()
