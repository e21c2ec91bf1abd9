"""What `run` would refuse, `plan` refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.study.command_line import here, write_spec


@pytest.mark.parametrize(
    ("augment", "padding", "said"),
    [
        (
            "crop",
            8,
            "data.padding: 8 is not below the images' 8 pixels: crops could be empty. Lower it.",
        ),
        (
            "flip",
            2,
            (
                "data.padding: has no effect with augment: flip. Remove it, or write augment: crop"
                " or crop_flip."
            ),
        ),
        ("crop_flip", 7, ""),
    ],
)
def test_padding(tmp_path: Path, augment: str, padding: int, said: str) -> None:
    plain = {
        "name": "small",
        "data": {"name": "digits", "augment": augment, "padding": padding},
        "model": "mlp",
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**plain, "methods": ["focal"]}))
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if said else 0)
    assert said in shown and (not said or shown.count("\n") == 1)


@pytest.mark.parametrize(
    ("objectives", "serve", "said"),
    [
        (["accuracy", "ece"], None, ""),
        (
            ["accuracy", "ece"],
            "temperature",
            "serve: temperature: its registered models have accuracy, ts_ece, while",
        ),
        (["accuracy", "ts_ece"], None, ""),
        (
            ["accuracy", "ts_nll"],
            "raw",
            "serve: raw: its registered models have accuracy, nll, while the search",
        ),
        (["ece", "ts_ece"], "raw", ""),
        (
            ["ece", "ts_ece"],
            None,
            "small.yaml: serve: the objectives are of the network as trained and of its temper",
        ),
        (
            ["ece"],
            "scaled",
            "small.yaml: serve: there is no 'scaled'. Valid values: temperature, raw.",
        ),
    ],
)
def test_what_is_served(
    tmp_path: Path, objectives: list[str], serve: str | None, said: str
) -> None:
    directions = {"accuracy": "maximize"}
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal"],
        "objectives": [
            {"metric": name, "direction": directions.get(name, "minimize")} for name in objectives
        ],
        "serve": serve,
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plain))
    refused = said.startswith("small.yaml")
    shown = here("plan", tmp_path / "small.yaml", "--storage", tmp_path, check=2 if refused else 0)
    assert said in shown and ("registered models" in shown) == ("registered models" in said)
    assert not refused or shown.count("\n") == 1


@pytest.mark.slow
def test_a_change_of_a_study_that_has_trials(tmp_path: Path) -> None:
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal"],
        "epochs": 1,
        "trials": 1,
    }
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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"batch_size": 1152}, "1152 is more than the 1151 samples that cross_entropy trains on"),
        (
            {"batch_size": 1100, "equal_train": True},
            "1100 is more than the 1036 samples that cross_entropy trains on",
        ),
        ({"search_space": {"batch_size": {"choices": [64, 2048]}}}, "2048 is more than the 1151"),
    ],
    ids=str,
)
def test_a_batch_of_more_samples_than_there_are(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], **keys)
    assert f"batch_size: {said}" in here("plan", spec, "--storage", tmp_path, check=2)


def test_how_much_of_a_gpu_the_images_take(tmp_path: Path) -> None:
    data = {"name": "digits", "augment": "crop", "padding": 1}
    spec = write_spec(tmp_path / "small.yaml", data=data, resources={"cpu": 1, "gpu": 0.5})
    shown = here("plan", spec, "--storage", tmp_path)
    assert (
        f"images: {(1151 * 10 * 10 + 287 * 8 * 8) / 1e6:.1f} MB of a trial's share of its GPU's"
        " memory" in shown
    )
