"""`calstudy list studies`: what there is, in which state, and what cannot be read."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from study.store.study import record_facts
from tests.study.command_line import here, here_json
from tests.study.made import made_study

TRIAL = ({"accuracy": 0.9, "ece": 0.1}, [{"accuracy": 0.9}])


def test_each_study_has_its_state_trials_size_and_age(tmp_path: Path) -> None:
    made_study(tmp_path, "whole", {"focal": [TRIAL, TRIAL]}, planned=2)
    begun = made_study(tmp_path, "begun", {"focal": [TRIAL]}, planned=3)
    created = datetime.now(UTC) - timedelta(days=21, hours=1)
    record_facts(begun.directory, created=created.isoformat())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.yaml").write_text("name: [")
    (tmp_path / "artifacts").mkdir()  # no study
    rows = {row["name"]: row for row in here_json("list", "studies", "--storage", tmp_path)}
    assert {*rows} == {"whole", "begun", "broken"}
    states = {name: (row["state"], row["ended"], row["planned"]) for name, row in rows.items()}
    assert states == {
        "whole": ("complete", 2, 2),
        "begun": ("not finished", 1, 3),
        "broken": ("unreadable", 0, 0),
    }
    sizes = [file.stat().st_size for file in (tmp_path / "whole").rglob("*") if file.is_file()]
    assert rows["whole"]["bytes"] == sum(sizes)
    assert "study.yaml" in rows["broken"]["problem"]
    shown = here("list", "studies", "--storage", tmp_path)
    (line,) = [line for line in shown.splitlines() if line.startswith("begun")]
    assert "1 of 3" in line and line.endswith("21 days")
    assert "broken/study.yaml" in shown


def test_an_empty_storage_says_so(tmp_path: Path) -> None:
    assert f"no studies in {tmp_path}" in here("list", "studies", "--storage", tmp_path)
    assert json.loads(here("list", "studies", "--storage", tmp_path, "--json")) == []
