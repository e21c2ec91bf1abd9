"""Each experiment still starts. What it computes is tested beside it, in benchmarks/experiments."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "experiments"
NAMES = [
    *(
        file.stem
        for file in sorted(FOLDER.glob("*.py"))
        if file.stem not in ("__init__", "populations")
    ),
    *(f"{file.parent.name}.__main__" for file in sorted(FOLDER.glob("*/__main__.py"))),
]


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    module = importlib.import_module(f"benchmarks.experiments.{name}")
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out
