"""A study's runs deleted from MLflow."""

from __future__ import annotations

from study.store.study import StudyFolder
from study.tracking.client import asking, open_existing, search_runs


def delete_runs(study: StudyFolder, uri: str) -> int:
    """Delete the study's runs, its own last, and experiments that are then empty. Returns how many
    runs.

    MLflow keeps deleted runs until `mlflow gc`. Raises TrackingError.
    """
    with asking(uri):
        client = open_existing(uri)
        runs = list(search_runs(client, study.id))
        for run in sorted(runs, key=lambda run: "calstudy.trial" not in run.data.tags):
            client.delete_run(run.info.run_id)
        for experiment in {run.info.experiment_id for run in runs}:
            if not client.search_runs([experiment], max_results=1):
                client.delete_experiment(experiment)
    return len(runs)
