"""The digits study from its file to a verified model."""

from pathlib import Path

import pytest

from tests.study.command_line import here, here_json
from tests.study.counting import counted_once

pytestmark = pytest.mark.slow


def test_the_digits_study_from_its_file_to_a_verified_model(tmp_path: Path) -> None:
    """What `make study` does, with one trial a method, of fewer epochs."""
    text = Path("study/specs/digits.yaml").read_text()
    assert text.count("epochs: 20\n") == 1
    spec = tmp_path / "digits.yaml"
    spec.write_text(text.replace("epochs: 20\n", "epochs: 5\n"))
    here("run", spec, "--trials", 1, "--storage", tmp_path)
    counted_once(tmp_path, 6, "digits")
    figure, table = tmp_path / "digits" / "figures" / "front.png", tmp_path / "front.csv"
    front = here_json("pareto", "digits", "--storage", tmp_path, "--figure", figure, "--csv", table)
    assert figure.read_bytes().startswith(b"\x89PNG") and table.read_text().startswith(
        "method,number,"
    )
    assert front["knee"] in [
        {"method": row["method"], "number": row["number"]} for row in front["front"]
    ]
    here("export", "digits", "--name", "digits", "--alias", "champion", "--storage", tmp_path)
    found = here_json("verify", "models:/digits@champion", "--storage", tmp_path)
    assert found["ok"] and found["model"] == "models:/digits/1" and found["num_samples"] == 287
