"""A budget: what it refuses, when it begins no more trials, and what a run that
it ends leaves behind."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from study.analysis.prediction import Costs
from study.engine import probe as probing
from study.engine import run
from study.engine.budget import Spending
from study.schema.reading import spec_from_mapping
from study.store.trials import TrialRecord, Trials
from tests.study.analysis.test_prediction import MEASURED
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import unanswered as unanswered  # fixture
from trainables.training.learner import Learner
from trainables.trial_probe import Cost

PLAIN = {
    "name": "small",
    "data": "digits",
    "model": "mlp",
    "methods": ["focal", "mbls"],
    "epochs": 4,
    "trials": 8,
}


def record(label: str, number: int, seconds: float | None = None) -> TrialRecord:
    return TrialRecord(
        label, number, "running" if seconds is None else "complete", {}, seconds=seconds
    )


def test_begun_trials_count_with_what_they_will_still_take() -> None:
    spec = spec_from_mapping({**PLAIN, "budget": {"cpu_hours": 10}}, "small.yaml")
    records = {
        "focal": [record("focal", 0, 7200), record("focal", 1, 3600)],
        "mbls": [record("mbls", 0)],
    }
    spending = Spending(spec, Trials(records), {"focal": 9.0, "mbls": 2.0})
    assert spending.committed == 3 + 2  # spent, and the one of mbls that an earlier run began
    # 1.5 each by the ended ones, 2 by the probe.
    assert spending.may_begin("focal") and spending.may_begin("mbls")
    for number in (2, 3, 4):
        assert spending.may_begin("focal")
        spending.handed_out(record("focal", number))
    assert spending.committed == 3 + 2 + 4.5 and not spending.may_begin("focal")
    spending.trained(
        record("mbls", 0), [{"epoch": 1, "seconds": 900}, {"epoch": 2, "seconds": 900}]
    )
    # Half of its epochs took a quarter of what was expected.
    assert spending.committed == 3 + (0.5 + 1) + 4.5
    spending.finished(record("mbls", 0, 3600))
    assert (
        spending.committed == 3 + 1 + 4.5
        and spending.may_begin("focal")
        and spending.may_begin("mbls")
    )
    spending.stopped(record("focal", 2))  # its process died: it is handed out again
    assert spending.committed == 3 + 1 + 4.5


def test_without_a_budget_all_may_begin() -> None:
    spending = Spending(
        spec_from_mapping(PLAIN, "small.yaml"), Trials({"focal": [], "mbls": []}), {}
    )
    assert spending.may_begin("focal") and spending.has_work()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "budget: must have exactly one of cpu_hours and gpu_hours"),
        (
            {"cpu_hours": 1, "gpu_hours": 1},
            "budget: must have exactly one of cpu_hours and gpu_hours",
        ),
        ({"cpu_hours": 0}, "budget.cpu_hours: must be > 0, got 0."),
        ({"cpu_hour": 1}, "budget.cpu_hour: Budget has no 'cpu_hour'. Did you mean 'cpu_hours'?"),
        (
            {"gpu_hours": 1},
            "budget.gpu_hours: trials of cross_entropy have resources.gpu: 0. Write cpu_hours",
        ),
        (3, "budget: must be a mapping"),
    ],
)
def test_bad_budgets_are_refused_in_one_line(tmp_path: Path, given: object, said: str) -> None:
    shown = here("plan", write_spec(tmp_path / "small.yaml", budget=given), check=2)
    assert shown.startswith(f"small.yaml: {said}") and shown.count("\n") == 1


@pytest.fixture
def hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch takes half an hour by the clock of a trial, and the probe knows."""
    row = Learner._row
    monkeypatch.setattr(
        Learner, "_row", lambda learner, measured: {**row(learner, measured), "seconds": 1800.0}
    )
    cost = Cost(**{**MEASURED.__dict__, "epoch_wall": 1800.0})

    def probe(
        spec: object, file_name: str, digest: str, labels: list[str], say: object, **more: object
    ) -> Costs:
        return {label: [(1.0, cost)] for label in labels}

    for module in (probing, run):
        monkeypatch.setattr(module, "probe", probe)


@pytest.mark.usefixtures("hourly")
def test_a_budget_that_cannot_pay_the_defaults_is_refused(tmp_path: Path) -> None:
    """cross_entropy begins with one setting, focal with its three defaults:
    four trials of an hour."""
    spec = write_spec(tmp_path / "small.yaml", budget={"cpu_hours": 3.9})
    for command in ("plan", "run"):
        shown = here(command, spec, "--storage", tmp_path / "studies", check=2)
        assert (
            shown.splitlines()[-1]
            == "small.yaml: budget.cpu_hours: 3.9 CPU-hours pay for 1 trial of each method, but the"
            " 4 that are tried first need about 4. Write at least 4, or train fewer epochs."
        )
    assert not (tmp_path / "studies").exists()
    shown = here(
        "plan", write_spec(spec, budget={"cpu_hours": 4}), "--storage", tmp_path / "studies"
    )
    assert "budget: 4 CPU-hours pays for about 4 of 6 trials; all trials need about 6." in shown


@pytest.mark.slow
@pytest.mark.usefixtures("hourly", "unanswered")
def test_a_budget_ends_a_run_in_order_and_a_raised_one_goes_on(tmp_path: Path) -> None:
    """Six trials of an hour are planned; five and a half pay for five."""
    spec = write_spec(tmp_path / "small.yaml", budget={"cpu_hours": 5.5})
    line = (
        "budget: 5 of 5.5 CPU-hours spent, 0.5 left; 1 trial was not begun. Raise the budget and"
        " run again to go on."
    )
    assert line in here("run", spec, "--storage", tmp_path)
    assert line in here("run", spec, "--storage", tmp_path)  # begins nothing
    assert line in here("status", "small", "--storage", tmp_path)
    found = here_json("status", "small", "--storage", tmp_path)["spending"]
    assert (
        found["methods"]["focal"]["cpu_hours"] + found["methods"]["cross_entropy"]["cpu_hours"] == 5
    )
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")

    def parent() -> tuple[str, str, str]:
        experiment = client.get_experiment_by_name("small")
        runs = client.search_runs([experiment.experiment_id], "tags.`mlflow.runName` = 'small'")
        return (
            runs[0].info.status,
            runs[0].data.tags["calstudy.cpu_hours"],
            runs[0].data.tags["calstudy.budget"],
        )

    assert parent() == ("KILLED", "cross_entropy: 3, focal: 2", line)
    shown = here("run", write_spec(spec, budget={"cpu_hours": 6}), "--storage", tmp_path)
    assert "6/6 trials" in shown and "budget: 6 of 6 CPU-hours spent, nothing left." in shown
    assert parent()[:2] == ("FINISHED", "cross_entropy: 3, focal: 3")
