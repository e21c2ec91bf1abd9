"""The kinds of samples, and what people call them. Light: readers of a study use it too."""

from typing import Literal, get_args

Kind = Literal["image", "features"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FEWEST = 10  # samples, or groups of them, that a resample says something of
NOUNS: dict[str, str] = {"image": "images", "features": "rows"}
