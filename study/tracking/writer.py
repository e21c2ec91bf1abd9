"""Write one study's runs to MLflow, each found by its tags, complete and only once.

One experiment per study, with a parent run STUDY and a child run METHOD/0007 per finished trial.
Runs are identified by tags, never from memory: `calstudy.id` is the study, `calstudy.trial` the
trial.

A trial's run has its configuration and searched values as params by dotted path; `train_loss`,
`accuracy`, ... per epoch, at the time they were measured; and `final/ece`, ... the ledger's metrics
of its result. (Under one name the two would be one series, wrong if `result` is not the last
epoch.) A confirmed trial also has `test/ece`, `shift/NAME/ece`, ... once the ledger has them.
What is no series is at step 0: of a metric without a later step MLflow's pages draw a bar for each
run, of others a line.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import strict_yaml
from study.schema.errors import LedgerError
from study.schema.uris import without_credentials
from study.store.files import HISTORY
from study.store.history import Row, read_history
from study.store.spending import UNITS, budget_line, budget_of, cost_of, spent, summed
from study.store.trials import TrialRecord, Trials
from study.tracking.client import STATUS, open_client, search_runs, what_happened
from study.tracking.contents import (
    Configs,
    commit_tag,
    flat,
    keys_of_trials,
    study_tags,
    trial_tags,
)
from study.tracking.descriptions import NOTE, description
from study.tracking.locations import upload
from study.tracking.study_summary import NO_SERIES, log_values, set_tags, summary_of

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

    from study.store.openings import Tested
    from study.store.study import StudyFolder

LONGEST_DIGEST = 36  # that MLflow takes of a data set; the tag calstudy.data_digest is whole


class StudyRuns:
    """One study's runs on one MLflow, whose errors propagate; then only the tags can be trusted."""

    def __init__(self, study: StudyFolder, uri: str) -> None:
        self._study = study
        self._uri = uri
        self._found: dict[str, Run] = {}  # existing runs, by trial
        self._tags: dict[str, tuple[str, Mapping[str, str]]] = {}  # id and tags, by trial
        self._done: set[str] = set()
        self._tested: dict[str, dict[int, Tested]] = {}  # by label and number
        self._configs = Configs(study)
        self._status = ""  # of the study's run
        self._ended = 0  # the latest end of a trial, in ms
        self.removed = 0
        self.note: str | None = None  # a failure that does not affect the trials

    def open(self) -> None:
        """Find the study's runs; create experiment and parent, and delete the younger of twins."""
        self._client = open_client(self._uri)
        found = list(search_runs(self._client, self._study.id))
        self._experiment = found[0].info.experiment_id if found else self._find_experiment()
        if not found:  # it may just have been restored
            found = list(search_runs(self._client, self._study.id))
        runs: dict[str, list[Run]] = {}
        for run in found:
            runs.setdefault(run.data.tags.get("calstudy.trial", ""), []).append(run)
        parents = runs.pop("", [])
        self._parent = self._keep_one(parents) if parents else self._create_parent()
        self._experiment = self._parent.info.experiment_id
        self._describe_parent()
        self._found = {name: self._keep_one(same) for name, same in runs.items()}
        if self._study.is_confirmation:
            from study.store.openings import read_tested

            self._tested = read_tested(self._study)
        self._tags = {name: (run.info.run_id, run.data.tags) for name, run in self._found.items()}
        parent = self._parent.info.run_id
        for run in self._found.values():
            if run.data.tags.get("mlflow.parentRunId") != parent:
                self._client.set_tag(run.info.run_id, "mlflow.parentRunId", parent)

    def resume(self) -> None:
        """Set the study's run to RUNNING: a driver is at work."""
        if self._status != "RUNNING":
            self._client.update_run(self._parent.info.run_id, "RUNNING")
            self._status = "RUNNING"

    def end(self, complete: bool, records: Trials | None = None) -> None:
        """End the study's run: FINISHED if every planned trial is, else KILLED, to be resumed.

        What each method's trials cost, and which are on the front, is written before, unless the
        ledger cannot be read. records: all trials, if they were just read.
        """
        with suppress(LedgerError):
            known = records or self._study.records()
            self._tag_spending(known)
            self._log_summary(known)
        status = "FINISHED" if complete else "KILLED"
        if self._status != status:
            self._client.set_terminated(self._parent.info.run_id, status, self._ended or None)
            self._status = status

    def _tag_spending(self, records: Trials) -> None:
        costs = spent(self._study, records)
        tags = {}
        for unit in UNITS:
            if summed(costs.values()).of(unit):
                tags[f"calstudy.{unit}"] = ", ".join(
                    f"{label}: {cost.of(unit):.3g}" for label, cost in costs.items()
                )
        if budget_of(self._study) is not None:
            tags["calstudy.budget"] = budget_line(self._study, records)
        self._log(self._parent, {}, [], tags)

    def _log_summary(self, records: Trials) -> None:
        """Trials first: a study's own run whose tags are right has trials whose tags are."""
        summary = summary_of(self._study, records)
        if summary is None:
            return
        for name, (run_id, tags) in self._tags.items():
            set_tags(self._client, run_id, tags, summary.tags_of(name))
        run = self._client.get_run(self._parent.info.run_id)
        log_values(self._client, run.info.run_id, run.data.metrics, summary.metrics)
        set_tags(self._client, run.info.run_id, run.data.tags, summary.tags)

    def write(self, record: TrialRecord) -> bool:
        """Write the trial's run unless it is complete; returns whether anything was missing.

        Raises HistoryError, and has written nothing, if its history is damaged.
        """
        self._ended = max(self._ended, _milliseconds(record.ended))
        if record.name in self._done:
            return False
        self._done.add(record.name)
        run = self._found.pop(record.name, None)
        tags = trial_tags(self._study, record) | {"mlflow.parentRunId": self._parent.info.run_id}
        if run is not None and _has_ended(run) and _is_of(run, tags):
            return self._add_tested(run, record)
        params = self._configs.params(record)
        history = read_history(self._study.files(record) / HISTORY, record.name)
        if run is not None and not (
            _is_of(run, tags) and run.data.params.items() <= params.items()
        ):
            self._delete(run)  # it describes another outcome, and MLflow's params are immutable
            run = None
        if run is None:
            # The ledger's time is when the trial was queued: it may have waited for a free slot.
            started = record.started
            if history and (first := history[0].get("time")) is not None:
                started = first - history[0].get("seconds", 0.0)
            run = self._create(record.name, tags, _milliseconds(started))
            self._tags[record.name] = (run.info.run_id, tags)
        self._log_data(run)
        cost = asdict(cost_of(record, self._study.resources_of(record.label)))
        final = {f"final/{name}": value for name, value in record.final.items()}
        costs = {f"cost/{unit}": hours for unit, hours in cost.items() if hours}
        self._log(
            run, params, _points(record, history, final | costs) + self._tested_points(record)
        )
        # Last: a run that has ended is complete.
        self._client.set_terminated(
            run.info.run_id, STATUS[record.state], _milliseconds(record.ended)
        )
        return True

    def _add_tested(self, run: Run, record: TrialRecord) -> bool:
        """Add test metrics measured since the run was written; returns whether there were any."""
        lacking = [
            point for point in self._tested_points(record) if point.key not in run.data.metrics
        ]
        self._log(run, {}, lacking)
        return bool(lacking)

    def _tested_points(self, record: TrialRecord) -> list[Metric]:
        """test/ece, shift/NAME/ece, when they were measured: logged again, they are the same."""
        tested = self._tested.get(record.label, {}).get(record.number)
        if tested is None:
            return []
        return _metrics(tested.flat, tested.time, NO_SERIES)

    # ---- experiment and parent -------------------------------------------------------------------

    def _find_experiment(self) -> str:
        """The id of the study's experiment, created or restored if necessary."""
        name = self._study.name
        found = self._client.get_experiment_by_name(name)
        if found is None:
            location = None  # a server decides
            if not self._uri.startswith("http"):
                location = str(self._study.directory.parent / "artifacts" / name)
            # Without a kind, MLflow's page prompts for it.
            tags = {
                "mlflow.experimentKind": "custom_model_development",
                NOTE: description(self._study),
            }
            return self._client.create_experiment(name, location, tags)
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _keep_one(self, runs: list[Run]) -> Run:
        """The finished run, else the oldest; deletes the others."""
        kept, *twins = sorted(
            runs, key=lambda run: (not _has_ended(run), run.info.start_time, run.info.run_id)
        )
        for twin in twins:
            self._delete(twin)
        return kept

    def _delete(self, run: Run) -> None:
        self._client.delete_run(run.info.run_id)
        self.removed += 1

    def _create(self, name: str, tags: Mapping[str, str], started: int) -> Run:
        return self._client.create_run(self._experiment, started, dict(tags), name)

    def _create_parent(self) -> Run:
        created = datetime.fromisoformat(self._study.recorded.created).timestamp()
        return self._create(self._study.name, study_tags(self._study), _milliseconds(created))

    def _describe_parent(self) -> None:
        """Update tags and study.yaml: a later run may have other trials and methods."""
        study = self._study
        recorded = study.recorded
        run = self._parent
        plain = {**study.plain, "sampler": {**study.plain.get("sampler", {})}}
        plain["sampler"].pop("pending", None)  # it may change
        # What later runs cannot change: params are immutable.
        meant = (keys_of_trials() & set(recorded.meaning)) - {"capture", "extensions"}
        kept = {*meant, "sampler", "early_stopping"}
        shared = {key: plain[key] for key in plain if key in kept and plain[key] is not None}
        shared["precision"] = recorded.meaning["precision"]  # what `auto` came to
        shared["objectives"] = ", ".join(
            f"{one.metric} {one.direction}" for one in study.objectives
        )
        lacking = {
            path: value for path, value in flat(shared).items() if path not in run.data.params
        }
        tags = {
            **study_tags(self._study),
            "calstudy.methods": ", ".join(study.labels),
            "calstudy.trials": str(plain.get("trials")),
            "calstudy.versions": ", ".join(
                f"{name} {found}" for name, found in recorded.versions.items()
            ),
            "mlflow.source.name": "calstudy",
            **commit_tag(recorded.versions),
        }
        if study.confirms is not None:
            tags["calstudy.confirms"] = study.confirms
        if NOTE not in run.data.tags:  # keep a user's edits
            tags[NOTE] = description(study)
        self._log(run, lacking, [], tags)
        self._log_data(run)
        self._status = run.info.status
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "study.yaml"
                whole = {**plain, "recorded": recorded.to_plain()}
                file.write_text(strict_yaml.dump(without_credentials(whole)))
                upload(self._study, self._uri, run.info.artifact_uri, [file])
        except Exception as error:  # a server may store artifacts where this machine cannot write
            self.note = f"study.yaml was not uploaded: {what_happened(error, self._uri)}"

    # ---- one trial -------------------------------------------------------------------------------

    def _log_data(self, run: Run) -> None:
        """Log the data set as the run's input once; MLflow keeps one of each name and digest."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if run.inputs is not None and run.inputs.dataset_inputs:
            return
        recorded = self._study.recorded
        data = self._study.plain["data"]
        source = without_credentials(data if isinstance(data, Mapping) else {"name": data})
        digest = recorded.data_digest[:LONGEST_DIGEST]
        sizes = json.dumps(recorded.sizes)
        dataset = Dataset(source["name"], digest, "calstudy", json.dumps(source), profile=sizes)
        context = InputTag("mlflow.data.context", "training")
        self._client.log_inputs(run.info.run_id, [DatasetInput(dataset, [context])])

    def _log(
        self,
        run: Run,
        params: Mapping[str, str],
        points: list[Metric],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Param, RunTag

        self._client.log_batch(
            run.info.run_id,
            points,
            [Param(path, value) for path, value in params.items()],
            [RunTag(key, value) for key, value in (tags or {}).items()],
        )


def _is_of(run: Run, tags: Mapping[str, str]) -> bool:
    return all(
        run.data.tags.get(key) == tags[key] for key in ("calstudy.state", "calstudy.attempt")
    )


def _has_ended(run: Run) -> bool:
    return run.info.status in STATUS.values()


def _points(
    record: TrialRecord, history: Sequence[Row], final: Mapping[str, float]
) -> list[Metric]:
    """Metrics by step, at the recorded times: logged again, they are the same points."""
    points = []
    for row in history:
        measured = {name: value for name, value in row.items() if name not in ("epoch", "time")}
        points += _metrics(measured, row.get("time", record.ended), int(row["epoch"]))
    return points + _metrics(final, record.ended, NO_SERIES)


def _metrics(values: Mapping[str, float], seconds: float | None, step: int) -> list[Metric]:
    from mlflow.entities import Metric

    measured = _milliseconds(seconds)
    return [
        Metric(name, float(value), measured, step)
        for name, value in values.items()
        if math.isfinite(value)
    ]


def _milliseconds(seconds: float | None) -> int:
    return int((seconds or 0.0) * 1000)
