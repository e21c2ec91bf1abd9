"""What a study must have come to: every trial once, in the ledger and in MLflow."""

import json
import re
from collections import Counter
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from study.store.study import StudyFolder, open_study


def runs_of(storage: Path, name: str = "small") -> list[Run]:
    """All MLflow runs of a study's trials (not its parent)."""
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return [run for run in runs if "calstudy.trial" in run.data.tags]


def counted_once(storage: Path, planned: int, name: str = "small") -> StudyFolder:
    """Every planned trial once in the ledger and once in MLflow; none left
    over, none like another."""
    study = open_study(name, str(storage))
    records = study.records()
    assert len(records) == planned and {record.state for record in records} <= {
        "complete",
        "pruned",
        "failed",
    }
    runs = runs_of(storage, name)
    assert Counter(run.data.tags["calstudy.trial"] for run in runs) == Counter(
        record.name for record in records
    )
    assert not [run for run in runs if run.info.status in ("RUNNING", "SCHEDULED")]
    for label, found in study.records().by_label.items():
        assert len({json.dumps(record.params) for record in found}) == len(found), (
            f"equal parameters in {label}"
        )
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    for run in runs:
        if run.info.status == "FINISHED":
            steps = [
                point.step for point in client.get_metric_history(run.info.run_id, "train_loss")
            ]
            assert steps == list(range(1, study.spec.epochs + 1))
    return study


def epochs_trained(study: StudyFolder) -> int:
    """Lines of epochs in the logs of all attempts."""
    logs = study.directory.glob("trials/*/*/attempt-*/log")
    return sum(len(re.findall(r"^epoch=", log.read_text(), re.MULTILINE)) for log in logs)
