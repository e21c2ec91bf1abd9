"""Write one study's runs to MLflow, each found by its tags, complete and only once.

One experiment per study, with a parent run STUDY and a child run METHOD/0007 per finished trial. Runs are identified by
tags, never from memory: `calstudy.id` is the study, `calstudy.trial` the trial.

A trial's run has its configuration and searched values as params by dotted path; `train_loss`, `accuracy`, ... per
epoch, at the time they were measured; and `final/ece`, ... the ledger's metrics of its result. (Under one name the two
would be one series, wrong if `result` is not the last epoch.) A confirmed trial also has `test/ece`, `shift/NAME/ece`,
... once the ledger has them.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import strict_yaml
from study.schema.errors import LedgerError
from study.schema.uris import without_credentials
from study.store.files import HISTORY
from study.store.history import Row, read_history
from study.store.spending import UNITS, budget_line, budget_of, cost_of, spent, summed
from study.store.trials import TrialRecord
from study.tracking.client import STATUS, open_client, search_runs, what_happened
from study.tracking.descriptions import NOTE, description
from study.tracking.locations import upload

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

    from study.store.study import Study
    from study.store.test_openings import Tested

# Settings shared by all trials that later runs of the study cannot change: the parent's params (immutable in MLflow).
SHARED = (
    "data",
    "model",
    "optimizer",
    "batch_size",
    "epochs",
    "seed",
    "result",
    "sampler",
    "early_stopping",
)
LONGEST_DIGEST = 36  # that MLflow takes of a data set; the tag calstudy.data_digest is whole


class StudyRuns:
    """The runs of one study on one MLflow. MLflow's errors propagate; afterwards only the tags can be trusted."""

    def __init__(self, study: Study, uri: str) -> None:
        self._study, self._uri = study, uri
        self._found: dict[str, Run] = {}  # existing runs, by trial
        self._done: set[str] = set()
        self._tested: dict[str, dict[int, Tested]] = {}  # by label and number
        self._configs: dict[str, dict[str, str]] = {}
        self._status = ""  # of the study's run
        self._ended = 0  # the latest end of a trial, in ms
        self.removed = 0
        self.note: str | None = None  # a failure that does not affect the trials

    def open(self) -> None:
        """Find the study's runs, creating its experiment and parent; the younger of duplicate runs is deleted."""
        self._client = open_client(self._uri)
        self._experiment = self._find_experiment()
        runs: dict[str, list[Run]] = {}
        for run in search_runs(self._client, self._experiment, self._study.id):
            runs.setdefault(run.data.tags.get("calstudy.trial", ""), []).append(run)
        parents = runs.pop("", [])
        self._parent = self._keep_one(parents) if parents else self._create_parent()
        self._describe_parent()
        self._found = {name: self._keep_one(same) for name, same in runs.items()}
        if self._study.confirms is not None:
            from study.store.test_openings import read_tested

            self._tested = read_tested(self._study)
        parent = self._parent.info.run_id
        for run in self._found.values():
            if run.data.tags.get("mlflow.parentRunId") != parent:
                self._client.set_tag(run.info.run_id, "mlflow.parentRunId", parent)

    def resume(self) -> None:
        """Set the study's run to RUNNING: a driver is at work."""
        if self._status != "RUNNING":
            self._client.update_run(self._parent.info.run_id, "RUNNING")
            self._status = "RUNNING"

    def end(self, complete: bool) -> None:
        """End the study's run: FINISHED if every planned trial is, KILLED if a later driver will resume it.

        What each method's trials cost is tagged before, unless the ledger cannot be read.
        """
        with suppress(LedgerError):
            self._tag_spending()
        status = "FINISHED" if complete else "KILLED"
        if self._status != status:
            self._client.set_terminated(self._parent.info.run_id, status, self._ended or None)
            self._status = status

    def _tag_spending(self) -> None:
        records = self._study.records()
        costs, budget = spent(self._study, records), budget_of(self._study)
        tags = {}
        for unit in UNITS:
            if summed(costs.values()).of(unit):
                tags[f"calstudy.{unit}"] = ", ".join(
                    f"{label}: {cost.of(unit):.3g}" for label, cost in costs.items()
                )
        if budget is not None:
            tags["calstudy.budget"] = budget_line(self._study, records)
        self._log(self._parent, {}, [], tags)

    def write(self, record: TrialRecord) -> bool:
        """Write the trial's run unless it is complete; returns whether anything was missing.

        Raises HistoryError, and has written nothing, if its history is damaged.
        """
        self._ended = max(self._ended, _milliseconds(record.ended))
        if record.name in self._done:
            return False
        self._done.add(record.name)
        run, tags = self._found.pop(record.name, None), self._trial_tags(record)
        if run is not None and _has_ended(run) and _is_of(run, tags):
            return self._add_tested(run, record)
        params = self._params(record)
        history = read_history(self._study.files(record) / HISTORY, record.name)
        if run is not None and not (
            _is_of(run, tags) and run.data.params.items() <= params.items()
        ):
            self._delete(run)  # it describes another outcome, and MLflow's params are immutable
            run = None
        if run is None:
            # The ledger's time is when the trial was queued: it may have waited for a free slot.
            first = history[0].get("time") if history else None
            started = record.started if first is None else first - history[0].get("seconds", 0.0)
            run = self._create(record.name, tags, _milliseconds(started))
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
        """test/ece, shift/NAME/ece, at the time they were measured: logged again, they are the same points."""
        from mlflow.entities import Metric

        tested = self._tested.get(record.label, {}).get(record.number)
        if tested is None:
            return []
        measured, step = _milliseconds(tested.time), record.epoch or 0
        known = {key: float(value) for key, value in tested.flat.items() if math.isfinite(value)}
        return [Metric(key, value, measured, step) for key, value in known.items()]

    # ---- experiment and parent -------------------------------------------------------------------------------------

    def _find_experiment(self) -> str:
        """The id of the study's experiment, created or restored if necessary."""
        name = self._study.name
        found = self._client.get_experiment_by_name(name)
        if found is None:
            artifacts = (
                self._study.directory.parent / "artifacts" / name
            )  # without a server to decide
            location = None if self._uri.startswith("http") else str(artifacts)
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
        created = datetime.fromisoformat(self._study.recorded["created"]).timestamp()
        return self._create(self._study.name, self._study_tags(), _milliseconds(created))

    def _describe_parent(self) -> None:
        """Update tags and study.yaml: a later run of the study may have other trials and methods."""
        study, recorded, run = self._study, self._study.recorded, self._parent
        plain = {**study.plain, "sampler": {**study.plain.get("sampler", {})}}
        plain["sampler"].pop("pending", None)  # it may change
        objectives = ", ".join(
            f"{objective.metric} {objective.direction}" for objective in study.objectives
        )
        shared = {key: plain[key] for key in SHARED if plain.get(key) is not None} | {
            "objectives": objectives
        }
        lacking = {
            path: value for path, value in _flat(shared).items() if path not in run.data.params
        }
        tags = {
            **self._study_tags(),
            "calstudy.methods": ", ".join(study.labels),
            "calstudy.trials": str(plain.get("trials")),
            "calstudy.versions": ", ".join(
                f"{name} {found}" for name, found in recorded["versions"].items()
            ),
            **({"calstudy.confirms": study.confirms} if study.confirms is not None else {}),
            "mlflow.source.name": "calstudy",
            **_commit_tag(recorded["versions"]),
            **(
                {} if NOTE in run.data.tags else {NOTE: description(self._study)}
            ),  # keep a user's edits
        }
        self._log(run, lacking, [], tags)
        self._log_data(run)
        self._status = run.info.status
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "study.yaml"
                file.write_text(
                    strict_yaml.dump(without_credentials({**plain, "recorded": recorded}))
                )
                upload(self._study, self._uri, run.info.artifact_uri, [file])
        except Exception as error:  # a server may store artifacts where this machine cannot write
            self.note = f"study.yaml was not uploaded: {what_happened(error, self._uri)}"

    # ---- one trial -------------------------------------------------------------------------------------------------

    def _study_tags(self) -> dict[str, str]:
        from trainables.metrics import CONVENTION

        recorded = self._study.recorded
        return {
            "calstudy.study": self._study.name,
            "calstudy.id": self._study.id,
            "calstudy.metrics": CONVENTION,
            "calstudy.data_digest": recorded["data_digest"],
        }

    def _trial_tags(self, record: TrialRecord) -> dict[str, str]:
        return {
            **self._study_tags(),
            "mlflow.parentRunId": self._parent.info.run_id,
            "calstudy.trial": record.name,
            "calstudy.state": record.state,
            "calstudy.attempt": str(record.attempt),
            **_commit_tag(record.versions),
            **({"calstudy.training": record.how_trained} if record.how_trained else {}),
            **({"calstudy.reason": record.reason} if record.reason else {}),
        }

    def _params(self, record: TrialRecord) -> dict[str, str]:
        if record.label not in self._configs:
            self._configs[record.label] = _config(self._study, record.label)
        number = self._study.plain.get("first_seed", 0) + record.number
        own = {"label": record.label, **record.params, "number": number}
        return self._configs[record.label] | {path: _text(value) for path, value in own.items()}

    def _log_data(self, run: Run) -> None:
        """Log the data set as the run's input, unless it is; MLflow keeps one of each name and digest."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if run.inputs is not None and run.inputs.dataset_inputs:
            return
        recorded, data = self._study.recorded, self._study.plain["data"]
        source = without_credentials(data if isinstance(data, Mapping) else {"name": data})
        digest, sizes = recorded["data_digest"][:LONGEST_DIGEST], json.dumps(recorded["sizes"])
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


def _commit_tag(versions: Mapping[str, str]) -> dict[str, str]:
    """The git commit, as MLflow's UI shows it."""
    return {"mlflow.source.git.commit": versions["git_commit"]} if "git_commit" in versions else {}


def _is_of(run: Run, tags: Mapping[str, str]) -> bool:
    return all(
        run.data.tags.get(key) == tags[key] for key in ("calstudy.state", "calstudy.attempt")
    )


def _has_ended(run: Run) -> bool:
    return run.info.status in STATUS.values()


def _points(
    record: TrialRecord, history: Sequence[Row], final: Mapping[str, float]
) -> list[Metric]:
    """Metrics in order of their steps, at the recorded times: logged again, they are the same points."""
    from mlflow.entities import Metric

    points = [
        Metric(name, float(value), _milliseconds(row.get("time", record.ended)), int(row["epoch"]))
        for row in history
        for name, value in row.items()
        if name not in ("epoch", "time") and math.isfinite(value)
    ]
    ended, step = _milliseconds(record.ended), record.epoch or 0
    return points + [
        Metric(name, float(value), ended, step)
        for name, value in final.items()
        if math.isfinite(value)
    ]


def _config(study: Study, label: str) -> dict[str, str]:
    """A label's trials as params, without what is searched: as recorded, so that no code of a user's is imported."""
    from trainables.config import TrialConfig

    meaning = study.recorded["meaning"]
    parts = meaning["methods"][label]
    usual = {
        field.name: field.default for field in fields(TrialConfig) if field.default is not MISSING
    }
    keys = {field.name for field in fields(TrialConfig)} - {"method", "number"}
    shared = {key: value for key, value in {**usual, **study.plain}.items() if key in keys}
    set_here = {
        path: value
        for path, value in parts["space"].items()
        if not isinstance(value, Mapping | list)
    }
    own = {
        path.removesuffix(".name"): value for path, value in {**parts["fixed"], **set_here}.items()
    }
    whole = _flat({**shared, "precision": meaning.get("precision", "float32")})
    return whole | {path: _text(value) for path, value in own.items()}


def _flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """{dotted path: text}; the name of a part is at its own path: `method`, `method.gamma`."""
    flat: dict[str, str] = {}
    for key, value in plain.items():
        path = prefix if key == "name" and prefix else f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping):
            flat |= _flat(value, path)
        else:
            flat[path] = _text(value)
    return flat


def _text(value: Any) -> str:
    return str(without_credentials(value)) if isinstance(value, str) else json.dumps(value)


def _milliseconds(seconds: float | None) -> int:
    return int((seconds or 0.0) * 1000)
