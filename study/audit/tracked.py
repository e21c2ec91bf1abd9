"""MLflow against the ledger: every run's status, tags, params and last values; and its histories.

What a user adds to a run is the user's: only what calstudy writes is compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from study.audit.evidence import Evidence
from study.audit.result import Check, Sample
from study.audit.standing import check_standing
from study.store.history import Row
from study.store.trials import TrialRecord
from study.tracking.client import PREFIX, STATUS
from study.tracking.contents import Configs, trial_tags
from study.tracking.histories import Points, sample_seed
from study.tracking.reader import TrackedRun

Histories = Mapping[str, Sequence[Row]]  # by trial
# Of the version that wrote them: another has another.
OF_VERSION = ("calstudy.metrics",)
# A run of an older version lacks these.
LATER = ("epoch",)
LONG = 250  # characters; a longer value some servers cut
SHOWN = 80  # of a value in a message


def check_tracked(facts: Evidence, histories: Histories) -> Check:
    """Each finished trial has exactly one run, which matches the ledger; there are no others."""
    by_trial: dict[str, list[TrackedRun]] = defaultdict(list)
    for run in facts.runs:
        by_trial[run.trial].append(run)
    parents = by_trial.pop("", [])
    check = Check("mlflow", "each finished trial once in MLflow", sum(map(len, by_trial.values())))
    if facts.unreachable is not None:
        check.add_offender(
            "tracking",
            facts.unreachable.rstrip("."),
            f"make MLflow reachable, then run {facts.sync}",
        )
        return check
    if not facts.runs:
        fix = f"upload it with {facts.sync}"
        check.add_offender("tracking", "MLflow has no run of this study", fix, facts.goes_on_later)
        return check
    _check_parents(facts, parents, check)
    trials = {name: same[0].tags for name, same in by_trial.items()}
    configs = Configs(facts.study)
    for record in facts.records.finished:
        runs = by_trial.pop(record.name, [])
        if not runs:
            check.add_offender(
                record.name, "is not in MLflow", f"upload it with {facts.sync}", facts.goes_on_later
            )
        elif len(runs) > 1:
            check.twice += len(runs) - 1
            fix = f"reduce them to one with {facts.sync}"
            check.add_offender(record.name, f"has {len(runs)} runs in MLflow", fix, facts.alive)
        elif runs[0].ended:
            differences = _differences(facts, record, runs[0], configs.meant(record), histories)
            _check_run(facts, record, runs[0], list(differences), check)
    known = {record.name for record in facts.records}
    for name in by_trial:
        problem = "is not finished in the ledger" if name in known else "is not in the ledger"
        check.add_offender(name, f"has an MLflow run but {problem}", "delete that run")
    # What differs in a trial differs in them all together: it is said once.
    if len(parents) == 1 and not (facts.alive or check.offenders or check.pending):
        check_standing(facts, parents[0], trials, check)
    return check


def _check_run(
    facts: Evidence, record: TrialRecord, run: TrackedRun, differences: list[str], check: Check
) -> None:
    if differences:
        fix = f"delete its MLflow run, then run {facts.sync}"
        check.add_offender(record.name, "; ".join(differences), fix)
    elif facts.tested.get(record.name, {}).keys() - run.tested.keys():
        problem = "its test results are not in MLflow"
        fix = f"upload them with {facts.sync}"
        check.add_offender(record.name, problem, fix, facts.goes_on_later)


def _check_parents(facts: Evidence, parents: list[TrackedRun], check: Check) -> None:
    name = facts.study.spec.name
    if len(parents) != 1:
        fix = f"restore exactly one with {facts.sync}"
        check.add_offender(
            name, f"the study has {len(parents)} parent runs in MLflow", fix, facts.alive
        )
    elif parents[0].ended and not facts.alive:
        status = "KILLED" if facts.study.lacking(facts.records) else "FINISHED"
        if parents[0].status != status:
            problem = f"its MLflow run is {parents[0].status}, not {status}"
            check.add_offender(name, problem, f"fix with {facts.sync}", facts.goes_on_later)


def _differences(
    facts: Evidence,
    record: TrialRecord,
    run: TrackedRun,
    params: Mapping[str, str],
    histories: Histories,
) -> Iterator[str]:
    """Differences between MLflow and the ledger for a trial, in words."""
    tags = _own(trial_tags(facts.study, record))
    for kind, ours, theirs in (
        ("", {"status": STATUS[record.state]}, {"status": run.status}),
        ("", _written(tags, run.tags), run.tags),
        ("param ", _needed(record, params, run.params), run.params),
    ):
        yield from _other_texts(kind, ours, theirs)
    tested = {
        key: value for key, value in facts.tested.get(record.name, {}).items() if key in run.tested
    }
    yield from _other_values("final ", record.final, run.final)
    yield from _other_values("", tested, run.tested)
    if rows := histories.get(record.name):
        last = _last_values(rows)
        known = {key: value for key, value in run.last.items() if key in last}
        yield from _other_values("last ", last, known)


def _own(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags to compare, without their prefix. The study's id is how the run was found."""
    return {
        key.removeprefix(PREFIX): value
        for key, value in tags.items()
        if key.startswith(PREFIX) and key not in OF_VERSION
    }


def _written(tags: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The tags to compare, without those that an older version did not write."""
    return {key: value for key, value in tags.items() if key not in LATER or key in there}


def _needed(
    record: TrialRecord, params: Mapping[str, str], there: Mapping[str, str]
) -> dict[str, str]:
    """The params to compare: a run of an older version lacks settings that came later."""
    own = {"label", "number", *record.params}
    return {path: value for path, value in params.items() if path in own or path in there}


def _last_values(rows: Sequence[Row]) -> dict[str, float]:
    """The last value of each metric that epochs measured, as MLflow has it."""
    found: dict[str, float] = {}
    for row in rows:
        found |= {key: value for key, value in _measured(row).items() if math.isfinite(value)}
    return found


def _measured(row: Row) -> dict[str, float]:
    return {key: value for key, value in row.items() if key not in ("epoch", "time")}


def _other_texts(kind: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    for key, value in ours.items():
        found = theirs.get(key)
        is_cut = found is not None and len(found) >= LONG and value.startswith(found)
        if found != value and not is_cut:
            in_mlflow = "None" if found is None else found[:SHOWN]
            yield f"its {kind}{key} is {in_mlflow} in MLflow, {value[:SHOWN]} in the ledger"


def _other_values(
    kind: str, ours: Mapping[str, float], theirs: Mapping[str, float]
) -> Iterator[str]:
    known = {key: value for key, value in ours.items() if math.isfinite(value)}
    other = [
        f"{key} ({theirs.get(key)}, in the ledger {known.get(key)})"
        for key in sorted(known.keys() | theirs.keys())
        if not math.isclose(known.get(key, math.nan), theirs.get(key, math.nan), rel_tol=1e-12)
    ]
    if other:
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        yield f"MLflow has a different {kind}{other[0]}{more}"


def sample_of(facts: Evidence) -> Sample | None:
    """The trials whose histories were compared; None if each was."""
    trials = {run.trial for run in facts.runs if run.trial}
    compared = {run.trial for run in facts.runs if run.trial and run.points is not None}
    if compared == trials:
        return None
    return Sample(sorted(compared), len(trials), sample_seed(facts.study.id))


def check_steps(facts: Evidence, histories: Histories) -> Check:
    """Every epoch is once in the history, and once per metric in the runs of MLflow whose points
    were read."""
    check = Check("steps", "each epoch once in histories and MLflow")
    epochs = {record.name: facts.study.spec.epochs for record in facts.records.complete}
    epochs |= {
        record.name: record.epoch
        for record in facts.records
        if record.state == "pruned" and record.epoch
    }
    for name, rows in histories.items():
        found = [row["epoch"] for row in rows]
        check.counted += len(found)
        if found != list(range(1, epochs.get(name, len(found)) + 1)):
            check.add_offender(name, f"history.json has the epochs {', '.join(map(str, found))}")
    if sample := sample_of(facts):
        check.notes.append(f"{sample}.")
    for run in facts.runs:
        if run.points is None:
            continue
        problems = "; ".join(_step_problems(run, run.points, histories.get(run.trial, [])))
        check.counted += sum(points.count for points in run.points.values())
        if problems:
            name = run.trial or facts.study.spec.name
            check.add_offender(name, problems, f"delete its MLflow run, then run {facts.sync}")
    return check


def _step_problems(
    run: TrackedRun, of_run: Mapping[str, Points], history: Sequence[Row]
) -> Iterator[str]:
    """Metrics of a run with duplicate or missing steps."""
    twice = [key for key, points in of_run.items() if points.count > points.steps]
    if twice:
        yield f"MLflow has duplicate steps of {', '.join(sorted(twice))}"
    wanted: Counter[str] = Counter()
    for row in history:
        wanted.update(key for key, value in _measured(row).items() if math.isfinite(value))
    steps = {key: points.steps for key, points in of_run.items()}
    other = [key for key in sorted(wanted) if steps.get(key, 0) != wanted[key]]
    if other and run.ended:
        yield f"MLflow steps differ from the {len(history)} epochs for {', '.join(other)}"
