"""Images with masks: a study of street scenes, and what the drawn pixels say of all pixels.

    python -m benchmarks.masks study camvid.parquet DIRECTORY    # 4 methods x 3 seeds, to the audit
    python -m benchmarks.masks rows DIRECTORY cross_entropy/0000 # ten draws beside all pixels

`study` takes CamVid as a parquet file with the columns split (train, val, test), image and mask (11
classes, 11 void); it writes camvid.yaml and runs the study's commands. `rows` takes that directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from benchmarks.rows import run_commands
from study.store.files import stored_classifier
from study.store.study import open_directory
from trainables import metrics
from trainables.loading.cache import load_split, prepare
from trainables.loading.marks import rows_of
from trainables.outputs.classifier import predicted
from trainables.positions import Positions

NAMES = "sky building pole road pavement tree sign fence car pedestrian bicyclist"
STUDY = """
name: camvid
data:
  name: parquet
  path: {path}
  size: [90, 120]
  mask: mask
  void: 11
  classes: [{classes}]
  splits: {{train: train, validation: val, test: test}}
  augment: crop_flip
model: unet
methods:
  - {{label: cross_entropy, name: cross_entropy}}
  - {{label: label_smoothing, name: label_smoothing, epsilon: 0.05}}
  - {{label: mbls, name: mbls, margin: 10.0, weight: 0.1}}
  - {{label: focal, name: focal, gamma: 3.0}}
trials: 3
epochs: 12
batch_size: 8
optimizer: {{name: adam, lr: 0.003, weight_decay: 0.0}}
objectives:
  - {{metric: miou, direction: maximize}}
  - {{metric: ece, direction: minimize}}
"""
MEASURED = ("accuracy", "ece", "miou")
DRAWS = 10


def street_scenes(images: Path, folder: Path) -> None:
    """Run the study's commands in the folder; print what each took."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = STUDY.format(path=images.absolute(), classes=", ".join(NAMES.split()))
    (folder / "camvid.yaml").write_text(spec.lstrip())
    run_commands(folder, "camvid", "confirm", "camvid")


def drawn_rows(folder: Path, trial: str) -> None:
    """Print metrics of a trial on all labelled pixels of validation, and on ten draws of rows."""
    study = open_directory(folder / "studies" / "camvid", "camvid")
    record = study.records().named(trial, "trial")
    config = study.config_of(record)
    prepared = prepare(config.data, config.seed, digest=study.recorded.data_digest)
    classifier, _ = stored_classifier(study, record, prepared)
    split = load_split(prepared, "validation")
    assert split.marked is not None
    marked = split.marked.numpy()
    image, *place = np.nonzero(marked[:, -1])
    everywhere = np.column_stack([image, place[0] * marked.shape[3] + place[1]])
    labels = marked[:, -1][image, *place].astype(np.int64) - 1

    def measured(positions: np.ndarray, of_rows: np.ndarray) -> dict[str, float]:
        where = Positions(*torch.from_numpy(positions).T.contiguous())
        with torch.inference_mode():
            logits = predicted(classifier.logits, split.images, where)
        return metrics.measure(logits, torch.from_numpy(of_rows), MEASURED)

    whole = measured(everywhere, labels)
    draws = [measured(*rows_of(marked, seed, "validation")) for seed in range(DRAWS)]
    print(f"| {trial} | all {len(labels):,} pixels | ten draws | largest difference |")
    print("|---|---|---|---|")
    for name in MEASURED:
        values = np.array([draw[name] for draw in draws])
        furthest = np.abs(values - whole[name]).max()
        mean = f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"
        print(f"| {name} | {whole[name]:.4f} | {mean} | {furthest:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    whole = parts.add_parser("study")
    whole.add_argument("images", type=Path)
    whole.add_argument("folder", type=Path)
    rows = parts.add_parser("rows")
    rows.add_argument("folder", type=Path)
    rows.add_argument("trial")
    options = parser.parse_args()
    if options.part == "study":
        street_scenes(options.images, options.folder)
    else:
        drawn_rows(options.folder, options.trial)


if __name__ == "__main__":
    main()
