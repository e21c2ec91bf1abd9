"""What a trial leaves, as it is written: the same bytes, whoever reads them."""

import json

import pytest

from trainables.outputs.outcome import Outcome, Report, reports_from_json, reports_to_json

COMPLETE = (
    '{"attempt": 2, "versions": {"torch": "2"}, "state": "complete", "metrics": {"ece": 0.1},'
    ' "epoch": 3, "seconds": 1.5, "samples": 60, "device": "cpu", "training": {"step": "eager"},'
    ' "digests": {"model.pt": "ab"}}'
)
FAILED = '{"attempt": 1, "state": "failed", "reason": "loss is nan", "epoch": 2, "digests": {}}'
EMPTY = '{"state": "failed", "metrics": {}, "epoch": 2, "reason": "objective ece is nan"}'
STOPPED = (
    '{"state": "pruned", "metrics": {"ece": 0.1}, "epoch": 2, "attempt": 1,'
    ' "versions": {}, "reason": "stopped early"}'
)


@pytest.mark.parametrize("text", [COMPLETE, FAILED, EMPTY])
def test_an_outcome_is_written_as_it_was_read(text: str) -> None:
    assert json.dumps(Outcome.from_plain(json.loads(text)).to_plain()) == text


def test_what_stops_early_says_last_who_stopped_it() -> None:
    outcome = Outcome.from_plain(json.loads(STOPPED))
    assert json.dumps(outcome.to_plain("attempt", "versions", "reason")) == STOPPED


def test_what_is_not_known_of_an_outcome_is_passed_over() -> None:
    assert Outcome.from_plain({"state": "failed", "later": 1}) == Outcome(state="failed")


@pytest.mark.parametrize(
    "text",
    [
        '{"rows": [{"epoch": 1}], "outcome": null}',
        '{"rows": [], "outcome": ' + FAILED + "}",
        '{"rows": [], "outcome": null, "rung": {"epoch": 2, "costs": [0.1, 0.2], "outcome":'
        ' {"state": "pruned", "metrics": {"ece": 0.1}, "epoch": 2}}}',
    ],
)
def test_a_report_is_written_as_it_was_read(text: str) -> None:
    plain = json.loads(text)
    assert json.loads(reports_to_json({"focal/0007": Report.from_plain(plain)})) == {
        "focal/0007": plain
    }
    assert reports_from_json(json.dumps({"focal/0007": plain}))["focal/0007"].to_plain() == plain
