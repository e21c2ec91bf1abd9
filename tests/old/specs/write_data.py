"""Writes what masks.yaml, texts.yaml and grouped.yaml train on into data/, the same each time."""

from pathlib import Path

import numpy as np
from PIL import Image

WORDS = {
    "good": ["fine", "kind", "swift", "bright", "warm"],
    "bad": ["cold", "rude", "slow", "dull", "grim"],
}
BOTH = ["the", "room", "was", "and", "staff", "we", "found", "it", "very"]


def main() -> None:
    random = np.random.default_rng(0)
    masks(Path("data/street"), random)
    texts(Path("data/reviews.csv"), random)
    wards(Path("data/wards.csv"), random)


def masks(folder: Path, random: np.random.Generator) -> None:
    """48 images of 16 x 16 with sky, ground and a wall, whose border has no class."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    (folder / "classes.txt").write_text("sky\nground\nwall\n")
    for number in range(48):
        mask = np.zeros((16, 16), np.uint8)
        mask[int(random.integers(6, 12)) :] = 1
        left = int(random.integers(0, 10))
        mask[4:, left : left + 5] = 2
        shade = np.array([[90, 120, 200], [90, 110, 60], [150, 120, 110]])[mask]
        image = np.clip(shade + random.normal(0, 45, (16, 16, 3)), 0, 255).astype(np.uint8)
        mask[[0, -1]] = 255
        Image.fromarray(image).save(folder / f"images/{number:04}.png")
        Image.fromarray(mask).save(folder / f"masks/{number:04}.png")


def texts(file: Path, random: np.random.Generator) -> None:
    """300 reviews of six words, two of which tell most of the stars."""
    lines = ["review,stars"]
    for _ in range(300):
        stars = str(random.choice(list(WORDS)))
        told = stars if random.random() < 0.9 else str(random.choice(list(WORDS)))
        words = [*random.choice(BOTH, 4), *random.choice(WORDS[told], 2)]
        lines.append(f"{' '.join(random.permutation(words))},{stars}")
    file.write_text("\n".join(lines) + "\n")


def wards(file: Path, random: np.random.Generator) -> None:
    """600 rows of 60 patients, who differ."""
    lines = ["patient,age,weight,pulse,outcome"]
    for patient in range(60):
        shift = random.normal(0, 0.6, 3)
        for _ in range(10):
            outcome = int(random.integers(0, 3))
            age, weight, pulse = random.normal(np.eye(3)[outcome] * 1.5 + shift, 1.0)
            lines.append(f"p{patient:02},{age:.4f},{weight:.4f},{pulse:.4f},{'abc'[outcome]}")
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
