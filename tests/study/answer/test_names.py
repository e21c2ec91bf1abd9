"""A model has one name: what retrains a trial is named as the trial, in whatever shows it."""

from pathlib import Path

import pytest

from study.answer.answer import answer
from study.answer.choice import seed_of
from study.answer.confirmation import results_of
from study.commands import confirm as command
from study.commands.report import _block, _compared
from study.registry.model_card import confirmed_facts
from study.report.comparison import ComparisonTable
from study.report.page_confirmation import confirmed
from study.report.paper_table import to_csv, to_markdown
from study.terminal.console import OurConsole
from tests.study.answer.test_answer import confirm, every_part, predictions, search
from tests.study.registry.test_model_card import section_of

# focal/0000 was selected; cross_entropy/0000 too, and has its method's default values.
ROWS = {
    "focal_0000": [predictions(20, 0.95, shift) for shift in (0, 3, 6)],
    "cross_entropy_0000_default": [predictions(40, 0.9, shift) for shift in (0, 3, 6)],
}
NAMES = ["focal/0000", "cross_entropy/0000"]


@pytest.mark.slow
def test_a_model_has_one_name_in_everything_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = search(tmp_path)
    confirm(study, ROWS, ROWS)
    results = results_of(study)
    found = results.confirmation
    assert found is not None and [row.name for row in found.rows] == NAMES
    shown = OurConsole(record=True, width=200, force_terminal=False)
    monkeypatch.setattr(command, "console", shown)
    command._print(found, command._sizes(found))
    block = _compared(results, _block(results), ("error", "ece"), 100, 0.95)
    said = {
        "confirm": shown.export_text().replace(str(tmp_path), ""),
        "answer": every_part(answer(results)),
        "markdown": to_markdown(ComparisonTable((block,))),
        "csv": to_csv(ComparisonTable((block,))),
    }
    for text in said.values():
        assert all(name in text for name in NAMES) and not any(label in text for label in ROWS)
    assert "\ncross_entropy/0000: has its method's default values\n" in said["confirm"]
    assert "Beside default cross-entropy: cross_entropy/0000 has accuracy" in said["answer"]
    assert [row["name"] for row in confirmed(study, found, ["accuracy"])["rows"]] == NAMES
    assert set(block.methods["ece"].rows) == set(NAMES)


@pytest.mark.slow
def test_a_card_names_the_model_and_numbers_its_seeds(tmp_path: Path) -> None:
    study = search(tmp_path)
    confirm(study, ROWS, ROWS)
    found = results_of(study).confirmation
    assert found is not None
    record = found.rows[1].records[2]
    facts = {
        "confirmed": confirmed_facts(seed_of(found, record)),
        "trial": record.name,
        "serves": "raw",
    }
    lines = section_of(facts).splitlines()
    assert lines[1].startswith("This model is seed 2")
    assert lines[0] == "## Confirmation: 3 fresh seeds of `cross_entropy/0000`, found by the search"
    assert [line.split(" |")[0] for line in lines if line[:3] in ("| 0", "| 1", "| 2")] == [
        "| 0",
        "| 1",
        "| 2",
    ]
    assert not any("cross_entropy_0000_default" in line for line in lines)
