"""A padding that cannot be meant is refused before anything is trained."""

from pathlib import Path

import pytest
import yaml

from tests.study.command_line import here


@pytest.mark.parametrize(
    ("augment", "padding", "said"),
    [
        ("crop", 8, "data.padding: 8 is not below the images' 8 pixels: crops could be empty. Lower it."),
        ("flip", 2, "data.padding: has no effect with augment: flip; remove it, or write augment: crop or crop_flip."),
        ("crop_flip", 7, ""),
    ],
)
def test_padding(tmp_path: Path, augment: str, padding: int, said: str) -> None:
    plain = {"name": "small", "data": {"name": "digits", "augment": augment, "padding": padding}, "model": "mlp"}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**plain, "methods": ["focal"]}))
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if said else 0)
    assert said in shown and (not said or shown.count("\n") == 1)
