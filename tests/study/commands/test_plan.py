"""What `run` would refuse, `plan` refuses."""

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


@pytest.mark.slow
def test_a_change_of_a_study_that_has_trials(tmp_path: Path) -> None:
    plain = {"name": "small", "data": "digits", "model": "mlp", "methods": ["focal"], "epochs": 1, "trials": 1}
    file = tmp_path / "small.yaml"

    def plan(check: int = 0, **changed: object) -> str:
        file.write_text(yaml.safe_dump({**plain, **changed}))
        return here("plan", file, "--storage", tmp_path, check=check)

    plan(epochs=2)  # nothing has begun
    file.write_text(yaml.safe_dump(plain))
    here("run", file, "--storage", tmp_path)
    assert "results go to" in plan(trials=9)
    assert "epochs: was 1, is 2" in plan(2, epochs=2)
    assert "data.validation: was 0.2, is 0.3" in plan(2, data={"name": "digits", "validation": 0.3})
    assert "methods.focal: was present, is missing" in plan(2, methods=["mbls"])
