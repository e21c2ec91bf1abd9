"""What trials cost, from made records; the sums are done by hand."""

from pathlib import Path

from study.schema.resources import Resources
from study.store.spending import (
    Spent,
    budget_line,
    cost_of,
    means,
    not_begun,
    spending_plain,
    spent,
)
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from tests.study.made import unwritten_study


def record(
    label: str, number: int, seconds: float | None, state: str = "complete", **more: object
) -> TrialRecord:
    return TrialRecord(label, number, state, {}, seconds=seconds, **more)  # type: ignore[arg-type]


def study(budget: dict[str, float] | None, trials: int = 4) -> StudyFolder:
    made = unwritten_study(["focal", "mbls"], trials=trials)
    methods = [
        {"label": "focal", "name": "focal"},
        {"label": "mbls", "name": "mbls", "resources": {"cpu": 2, "gpu": 1}},
    ]
    plain = {
        **made.plain,
        "budget": budget,
        "resources": {"cpu": 1, "gpu": 0.25},
        "methods": methods,
    }
    return StudyFolder(Path("small"), plain, made.recorded)


RECORDS = Trials(
    {
        "focal": [
            record("focal", 0, 1800),
            record("focal", 1, 5400, "failed"),
            record("focal", 2, None, "running"),
        ],
        "mbls": [
            record("mbls", 0, 3600),
            record("mbls", 1, 900, "pruned"),
            record("mbls", 2, None, "failed"),
        ],
    }
)


def test_ended_trials_cost_their_time_and_what_was_reserved() -> None:
    assert spent(study(None), RECORDS) == {"focal": Spent(2, 0.5), "mbls": Spent(2.5, 1.25)}
    assert means(study(None), RECORDS, "cpu_hours") == {"focal": 1, "mbls": 1.25}
    assert budget_line(study(None), RECORDS) == "spent: 4.5 CPU-hours, 1.75 GPU-hours of training."


def test_a_trial_that_ran_out_of_memory_has_a_whole_gpu() -> None:
    retried = record("focal", 0, 3600, deaths={"out_of_memory": 1})
    assert cost_of(retried, Resources(cpu=1, gpu=0.25)) == Spent(1, 1)
    assert cost_of(
        record("focal", 0, 3600, deaths={"node": 1}), Resources(cpu=1, gpu=0.25)
    ) == Spent(1, 0.25)


def test_a_budget_that_is_spent_says_so() -> None:
    """Four of each are planned, three of each are asked. Another of focal, 1
    CPU-hour, comes next."""
    enough, short = study({"cpu_hours": 5.5}), study({"cpu_hours": 5.4})
    assert (not_begun(enough, RECORDS), not_begun(short, RECORDS)) == (0, 2)
    assert budget_line(enough, RECORDS) == "budget: 4.5 of 5.5 CPU-hours spent, 1 left."
    line, rest = (
        "budget: 4.5 of 5.4 CPU-hours spent, 0.9 left",
        "Raise the budget and run again to go on.",
    )
    assert budget_line(short, RECORDS) == f"{line}; 2 trials were not begun. {rest}"
    assert budget_line(short, RECORDS, alive=True) == f"{line}."
    assert "nothing left" in budget_line(study({"cpu_hours": 4}), RECORDS)
    assert not_begun(study({"gpu_hours": 1}, trials=3), RECORDS) == 0  # all are asked
    plain = spending_plain(short, RECORDS)
    assert (plain["cpu_hours"], plain["budget"], plain["not_begun"]) == (4.5, {"cpu_hours": 5.4}, 2)
