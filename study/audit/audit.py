"""Audit: proves that every planned trial is counted exactly once, or names every offender. It reads, and mends nothing.

While a driver is at work, what it has still to bring to MLflow or to clear away is `pending`; without one it is off.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution

from study.analysis.pareto import front
from study.audit.epochs import Epochs, trained_epochs
from study.audit.evidence import Evidence, gather
from study.audit.result import AuditReport, Check
from study.audit.test_openings import TOLERANCE, check_openings
from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.spec import SpecError
from study.store.files import BACKUP, MISSING, MODEL, file_problem
from study.store.study import Study, check_home
from study.store.trials import TrialRecord, trial_directory, trial_name
from study.tracking.client import STATUS
from study.tracking.reader import TrackedRun
from trainables import metrics, post_hoc
from trainables.fields import FieldError
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.predictions import Predictions

COMPLETE_FILES = ("predictions.npz", "history.json", "model.pt")
READERS = 4  # of files at once


def audit(study: Study, tracking_uri: str) -> AuditReport:
    """Read everything and compare. Raises LedgerError where the ledger cannot be read."""
    facts = gather(study, tracking_uri)
    files, whole = _files(facts)
    histories = _histories(facts, whole)
    epochs, counts = _epochs(facts, histories)
    checks = [
        _identity(facts),
        _ledger(facts),
        _running(facts),
        files,
        _results(facts, whole),
        _mlflow(facts),
        _steps(facts, histories),
        epochs,
        check_openings(facts),
    ]
    planned = sum(max(study.spec.trials, len(found)) for found in facts.records.values())
    lost = 0 if facts.alive else study.lacking(facts.records)
    twice = sum(check.twice for check in checks)
    return AuditReport(study.spec.name, facts.alive, _copied(study), checks, planned, lost, twice, counts)


def _copied(study: Study) -> str | None:
    try:
        check_home(study)
    except SpecError as error:
        return str(error)
    return None


# ---- the ledger ----------------------------------------------------------------------------------------------------


def _identity(facts: Evidence) -> Check:
    """The record beside the ledger is of this ledger, and of one meaning from the first trial on."""
    check = Check("identity", "one study, one meaning", len(facts.labels))
    study, spec = facts.study, facts.study.spec
    try:
        meaning = completed_meaning(study.recorded["meaning"], spec.meaning())
        refuse_changes(meaning, spec, "study.yaml", "has trials")
    except SpecError as error:
        for difference in error.differences:
            check.add_offender("study.yaml", difference, "put back what the trials were trained with")
    if not study.recorded.get("data_digest"):
        check.add_offender("study.yaml", "the data's digest is not recorded", BACKUP)
    for label, state in facts.labels.items():
        name = f"ledger of {label}"
        if state.mark is None:
            if facts.records.get(label):
                check.add_offender(name, "it does not say whose it is", BACKUP)
        elif state.mark["id"] != study.id:
            check.add_offender(name, f"it is of study {state.mark['id']}, study.yaml is of {study.id}", BACKUP)
        elif label not in facts.records:
            check.add_offender(name, "study.yaml has no such label", "put it back under `methods`")
        elif state.directions != [objective.direction for objective in spec.objectives]:
            check.add_offender(
                name, f"its objectives are to {' and '.join(state.directions)}, study.yaml's are not", BACKUP
            )
    return check


def _ledger(facts: Evidence) -> Check:
    check = Check("ledger", "planned trials, each once in the ledger", len(facts.all))
    spec = facts.study.spec
    for variant in spec.variants:
        label, found = variant.label, facts.records[variant.label]
        for number in sorted({*range(len(found))} - {record.number for record in found}):
            check.add_offender(trial_name(label, number), "it was never begun, later ones were", BACKUP)
        if len(found) < spec.trials:
            problem = f"{spec.trials - len(found)} of {spec.trials} trials have not been begun"
            check.add_offender(label, problem, f"{facts.goes_on} goes on", facts.alive)
        for record in found[spec.trials :]:
            mend = f"if it ran with more, {facts.goes_on} with `trials: {len(found)}` says so"
            check.add_offender(record.name, f"no more than {spec.trials} trials of {label} were asked for", mend)
        lacking = [record for record in found if not set(variant.space.distributions) <= set(record.params)]
        for record in lacking if not facts.alive else ():
            check.add_offender(
                record.name, "it lacks parameters of its space", f"{facts.goes_on} completes what a kill has cut"
            )
        again = list(_proposed_again(found, variant.space.distributions))
        for record, first in again:
            mend = "no sampler draws a point of a continuous range twice; one of the two is too many"
            check.add_offender(record.name, f"it has the parameters of {first.name}", mend)
        check.twice += len({record.name for record in [*found[spec.trials :], *(record for record, _ in again)]})
    return check


def _proposed_again(
    records: Iterable[TrialRecord], space: Mapping[str, BaseDistribution]
) -> Iterator[tuple[TrialRecord, TrialRecord]]:
    """Trials with the parameters of an earlier one, where that cannot be chance.

    A space of choices and grids alone is used up by a study of some length, and one without parameters repeats its one
    point on purpose; but no continuous range yields a number twice, and published settings are enqueued once.
    """
    continuous = [
        path
        for path, found in space.items()
        if isinstance(found, FloatDistribution) and found.step is None and not found.single()
    ]
    first: dict[str, TrialRecord] = {}
    for record in records if continuous else ():
        if set(continuous) <= set(record.params):
            earlier = first.setdefault(json.dumps(record.params, sort_keys=True), record)
            if earlier is not record:
                yield record, earlier


def _running(facts: Evidence) -> Check:
    """None is RUNNING but under a driver; nor is a run in MLflow."""
    running = [record for record in facts.all if record.state == "running"]
    open_runs = [run for run in facts.runs if not run.ended]
    check = Check("running", "running, under a driver alone", len(running) + len(open_runs))
    if facts.alive:
        return check
    for record in running:
        check.add_offender(record.name, "it is RUNNING and no driver is at work", f"{facts.goes_on} takes it up again")
    for run in open_runs:
        name = run.trial or facts.study.spec.name
        check.add_offender(name, f"its run in MLflow is {run.status} and no driver is at work", f"{facts.sync} ends it")
    return check


# ---- what lies on disk ---------------------------------------------------------------------------------------------


def _files(facts: Evidence) -> tuple[Check, dict[str, set[str]]]:
    """Also, by trial, the files that are what the ledger says."""
    check = Check("files", "files of finished trials, as their digests say")
    study, known = facts.study, {record.name for record in facts.all}
    for name in sorted(set(facts.attempts) - known):
        check.add_offender(
            name, "a directory whose trial is not in the ledger", f"remove {study.directory / 'trials' / name}"
        )
    for record in facts.finished:
        _leftovers(facts, record, check)
    wanted = [(record, file, digest) for record in facts.finished for file, digest in record.digests.items()]
    with ThreadPoolExecutor(READERS) as pool:
        problems = list(pool.map(lambda one: file_problem(study.files(one[0]) / one[1], one[2]), wanted))
    kept = {record.name for record in front(facts.all, study.spec.objectives)}
    whole: dict[str, set[str]] = defaultdict(set)
    for (record, file, _), problem in zip(wanted, problems, strict=True):
        on_purpose = study.spec.keep_models == "front" or study.recorded.get("pruned")
        dropped = on_purpose and not (record.name in kept and not facts.alive)
        if problem is None:
            whole[record.name].add(file)
            check.counted += 1
        elif not (problem == MISSING and file == MODEL and dropped):
            check.add_offender(record.name, f"{file} {problem}", BACKUP)
    return check, whole


def _leftovers(facts: Evidence, record: TrialRecord, check: Check) -> None:
    """Of a finished trial there is the attempt that counts, whole, with nothing that only a running one needs."""
    if record.state == "complete":
        for file in sorted(set(COMPLETE_FILES) - set(record.digests)):
            check.add_offender(record.name, f"the ledger has no digest of its {file}", BACKUP)
    for attempt in sorted(facts.attempts.get(record.name, ())):
        directory = attempt_directory(trial_directory(facts.study.directory, record.label, record.number), attempt)
        if attempt > record.attempt:
            check.add_offender(record.name, f"attempt {attempt} is newer than the one counted", f"remove {directory}")
        if os.path.exists(directory / "last.pt"):
            mend = f"{facts.goes_on} removes it"
            check.add_offender(
                record.name, f"{directory.name}/last.pt is left though it is finished", mend, facts.alive
            )


def _histories(facts: Evidence, whole: Mapping[str, set[str]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by trial, of the finished ones that left any."""
    return {
        record.name: json.loads((facts.study.files(record) / "history.json").read_text())
        for record in facts.finished
        if "history.json" in whole.get(record.name, ())
    }


def _results(facts: Evidence, whole: Mapping[str, set[str]]) -> Check:
    """The stored predictions give the objectives that the ledger has; all are of the same samples."""
    check = Check("results", "objectives, computed again from the predictions")
    values = facts.values
    names = [objective.metric for objective in facts.study.spec.objectives]
    of_samples: dict[bytes, list[str]] = defaultdict(list)
    for record in facts.finished:
        if record.state != "complete":
            continue
        recorded = [record.metrics.get(name, math.nan) for name in names]
        learnt = values.get(record.name, recorded)
        if learnt != recorded:
            check.add_offender(record.name, f"the sampler learnt {learnt}, the outcome says {recorded}", BACKUP)
        if "predictions.npz" not in whole.get(record.name, ()):
            continue
        check.counted += 1
        try:
            predictions = Predictions.load(facts.study.files(record) / "predictions.npz")
        except FieldError as error:
            check.add_offender(record.name, error.problem, BACKUP)
            continue
        of_samples[hashlib.sha256(predictions.labels.numpy().tobytes()).digest()].append(record.name)
        for name, value, found in zip(names, recorded, _values(predictions, names), strict=True):
            if not abs(value - found) <= TOLERANCE:
                check.add_offender(
                    record.name, f"{name} is {value:g} in the ledger, {found:g} by its predictions", BACKUP
                )
    usual = max(of_samples.values(), key=len, default=[])
    for others in of_samples.values():
        for name in others if others is not usual else ():
            check.add_offender(
                name, f"its validation labels are not those of {usual[0]}", "it was trained on other data"
            )
    return check


def _values(predictions: Predictions, names: list[str]) -> list[float]:
    """Metrics by name; those after temperature scaling cost ten times the others."""
    logits, labels = predictions.logits.double(), predictions.labels
    after = [name.startswith(metrics.AFTER_TEMPERATURE) for name in names]
    calibrated = post_hoc.cross_fitted(predictions.logits, labels) if any(after) else logits
    return [
        float(metrics.find(name)(calibrated if scaled else logits, labels))
        for name, scaled in zip(names, after, strict=True)
    ]


def _epochs(facts: Evidence, histories: Mapping[str, list[dict[str, Any]]]) -> tuple[Check, Epochs]:
    """Nothing was trained in vain but what was promised."""
    check, total = Check("epochs", "epochs trained, no more than promised"), Epochs()
    for record in facts.all:
        if record.name not in facts.attempts:
            continue
        history = histories.get(record.name)
        directory = trial_directory(facts.study.directory, record.label, record.number)
        needed = None if history is None else len(history)
        trial = trained_epochs(directory, facts.study.spec.checkpoint_seconds, needed)
        total += trial.epochs
        for broken in trial.broken:
            check.add_offender(record.name, broken, "a fault took more than was promised; this is a bug of calstudy's")
        if trial.lacking:
            problem = f"no log has its epochs {', '.join(map(str, trial.lacking))}"
            check.add_offender(record.name, problem, "its training cannot be accounted for")
    check.counted = total.trained
    return check, total


# ---- MLflow --------------------------------------------------------------------------------------------------------


def _mlflow(facts: Evidence) -> Check:
    """Each finished trial has one run, which says what the ledger says; there are no others."""
    by_trial: dict[str, list[TrackedRun]] = defaultdict(list)
    for run in facts.runs:
        by_trial[run.trial].append(run)
    parents = by_trial.pop("", [])
    check = Check("mlflow", "finished trials, each one run in MLflow", sum(map(len, by_trial.values())))
    if facts.unreachable is not None:
        check.add_offender(
            "tracking", facts.unreachable.rstrip("."), f"not provable without it; start it, then {facts.sync}"
        )
        return check
    if not facts.runs:
        check.add_offender("tracking", "MLflow has no run of this study", f"{facts.sync} writes all", facts.alive)
        return check
    _check_parents(facts, parents, check)
    for record in facts.finished:
        runs = by_trial.pop(record.name, [])
        if not runs:
            check.add_offender(record.name, "it is not in MLflow", f"{facts.sync} writes it", facts.alive)
        if len(runs) > 1:
            check.twice += len(runs) - 1
            check.add_offender(
                record.name, f"it has {len(runs)} runs in MLflow", f"{facts.sync} keeps one", facts.alive
            )
        for run in runs if len(runs) == 1 else ():
            differences = "; ".join(_differences(facts, record, run)) if run.ended else ""
            if differences:
                check.add_offender(record.name, differences, f"delete its run in MLflow, then {facts.sync}")
            elif run.ended and facts.tested.get(record.name, {}).keys() - run.tested.keys():
                check.add_offender(
                    record.name, "MLflow lacks its figures on test", f"{facts.sync} writes them", facts.alive
                )
    known = {record.name for record in facts.all}
    for name in by_trial:
        problem = "has not finished in the ledger" if name in known else "is not in the ledger"
        check.add_offender(name, f"it has a run in MLflow and {problem}", "delete that run")
    return check


def _check_parents(facts: Evidence, parents: list[TrackedRun], check: Check) -> None:
    name = facts.study.spec.name
    if len(parents) != 1:
        check.add_offender(
            name, f"the study has {len(parents)} runs of its own in MLflow", f"{facts.sync} leaves one", facts.alive
        )
    elif parents[0].ended and not facts.alive:
        status = "KILLED" if facts.study.lacking(facts.records) else "FINISHED"
        if parents[0].status != status:
            check.add_offender(name, f"its run in MLflow is {parents[0].status}, not {status}", f"{facts.sync} sets it")


def _differences(facts: Evidence, record: TrialRecord, run: TrackedRun) -> Iterator[str]:
    """What MLflow has of a trial and the ledger has otherwise, in words."""
    digest = facts.study.recorded.get("data_digest")
    expected = {"state": record.state, "attempt": str(record.attempt), "data_digest": digest}
    found = {"status": run.status, **{key: run.tags.get(key) for key in expected}}
    for key, value in {"status": STATUS[record.state], **expected}.items():
        if found[key] != value:
            yield f"its {key} is {found[key]} in MLflow, {value} by the ledger"
    tested = {key: value for key, value in facts.tested.get(record.name, {}).items() if key in run.tested}
    for kind, ours, theirs in (("final ", record.final, run.final), ("", tested, run.tested)):
        known = {key: value for key, value in ours.items() if math.isfinite(value)}
        other = [
            f"{key} ({theirs.get(key)}, by the ledger {known.get(key)})"
            for key in sorted(known.keys() | theirs.keys())
            if not math.isclose(known.get(key, math.nan), theirs.get(key, math.nan), rel_tol=1e-12)
        ]
        if other:
            more = f" and {len(other) - 1} more" if len(other) > 1 else ""
            yield f"MLflow has another {kind}{other[0]}{more}"


def _steps(facts: Evidence, histories: Mapping[str, list[dict[str, Any]]]) -> Check:
    """Every epoch once: in the histories, and for each of their metrics in MLflow."""
    check = Check("steps", "epochs in histories and MLflow, each once")
    epochs = {record.name: facts.study.spec.epochs for record in facts.all if record.state == "complete"}
    for name, rows in histories.items():
        found = [row["epoch"] for row in rows]
        check.counted += len(found)
        if found != list(range(1, epochs.get(name, len(found)) + 1)):
            check.add_offender(name, f"history.json has the epochs {', '.join(map(str, found))}", BACKUP)
    for run in facts.runs:
        problems = "; ".join(_step_problems(run, histories.get(run.trial, [])))
        check.counted += sum(points.count for points in run.points.values())
        if problems:
            name = run.trial or facts.study.spec.name
            check.add_offender(name, problems, f"delete its run in MLflow, then {facts.sync}")
    return check


def _step_problems(run: TrackedRun, history: list[dict[str, Any]]) -> Iterator[str]:
    """Which metrics of a run have a step twice, or too few of them."""
    twice = [key for key, points in run.points.items() if points.count > points.steps]
    if twice:
        yield f"MLflow has a step twice, of {', '.join(sorted(twice))}"
    wanted = Counter(key for row in history for key in row if key not in ("epoch", "time") and math.isfinite(row[key]))
    other = [key for key in sorted(wanted) if (run.points[key].steps if key in run.points else 0) != wanted[key]]
    if other and run.ended:
        yield f"MLflow has other steps than the {len(history)} epochs, of {', '.join(other)}"
