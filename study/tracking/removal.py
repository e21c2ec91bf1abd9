"""A study's runs deleted from MLflow."""

from __future__ import annotations

from study.store.study import Study
from study.tracking.client import asking, open_existing, search_runs


def delete_runs(study: Study, uri: str) -> int:
    """Delete the study's runs, its own last, and its then empty experiment. Returns their number.

    MLflow keeps deleted runs until `mlflow gc`. Raises TrackingError.
    """
    with asking(uri):
        client = open_existing(uri)
        experiment = client.get_experiment_by_name(study.name)
        if experiment is None:
            return 0
        runs = list(search_runs(client, experiment.experiment_id, study.id))
        for run in sorted(runs, key=lambda run: "calstudy.trial" not in run.data.tags):
            client.delete_run(run.info.run_id)
        if not client.search_runs([experiment.experiment_id], max_results=1):
            client.delete_experiment(experiment.experiment_id)
    return len(runs)
