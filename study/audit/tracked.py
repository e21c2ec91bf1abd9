"""MLflow against the ledger: every run's status, tags, params and last values, the steps of its
metrics; and what the study's own run says of all trials: its front, knee and hypervolume.

What a user adds to a run is the user's: only what calstudy writes is compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from study.audit.evidence import Evidence
from study.audit.result import Check, Sample
from study.store.history import Row
from study.store.trials import TrialRecord
from study.tracking.client import PREFIX, STATUS
from study.tracking.contents import Configs, trial_tags
from study.tracking.histories import sample_seed
from study.tracking.reader import TrackedRun
from study.tracking.standing import ANSWER, FRONT, standing_of

Histories = Mapping[str, Sequence[Row]]  # by trial
# Of the version that wrote them: another has another.
OF_VERSION = ("calstudy.metrics",)
# A run of an older version lacks these.
LATER = ("epoch",)
LONG = 250  # characters; a longer value some servers cut
SHOWN = 80  # of a value in a message
NAMED = 3  # trials in a message


def check_tracked(facts: Evidence, histories: Histories) -> Check:
    """Each finished trial has exactly one run, which matches the ledger; there are no others, and
    none goes on unless the study does."""
    by_trial: dict[str, list[TrackedRun]] = defaultdict(list)
    for run in facts.runs:
        by_trial[run.trial].append(run)
    parents = by_trial.pop("", [])
    check = Check("mlflow", "each finished trial once in MLflow", sum(map(len, by_trial.values())))
    if facts.unreachable is not None:
        fix = f"make MLflow reachable, then run {facts.sync}"
        check.add_offender("tracking", facts.unreachable.rstrip("."), fix)
        return check
    if not facts.runs:
        fix = f"upload it with {facts.sync}"
        check.add_offender("tracking", "MLflow has no run of this study", fix, facts.goes_on_later)
        return check
    if sample := sample_of(facts):
        check.notes.append(f"{sample}.")
    _check_open(facts, check)
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
            rows = histories.get(record.name, [])
            _check_run(facts, record, runs[0], configs.meant(record), rows, check)
    known = {record.name for record in facts.records}
    for name in by_trial:
        problem = "is not finished in the ledger" if name in known else "is not in the ledger"
        check.add_offender(name, f"has an MLflow run but {problem}", "delete that run")
    # What differs in a trial differs in them all together: it is said once.
    if len(parents) == 1 and not (facts.alive or check.offenders or check.pending):
        for problem in _standing_problems(facts, parents[0], trials):
            fix = f"correct it with {facts.sync}"
            check.add_offender(facts.study.name, problem, fix, facts.goes_on_later)
    return check


def _check_open(facts: Evidence, check: Check) -> None:
    for run in facts.runs:
        if not (run.ended or facts.alive):
            problem = f"its MLflow run is {run.status}, but the study is not running"
            name = run.trial or facts.study.spec.name
            check.add_offender(name, problem, f"end it with {facts.sync}", facts.goes_on_later)


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


def _standing_problems(
    facts: Evidence, parent: TrackedRun, trials: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Tags of the study's run and of its trials', by name, that are not those of the ledger.

    Nothing is asked of a run that has not ended, or that a version wrote which had no such tags.
    """
    standing = standing_of(facts.study, facts.records)
    if standing is None or not parent.ended or FRONT.removeprefix(PREFIX) not in parent.tags:
        return
    tags = _own(standing.tags)
    yield from _other_texts("", tags, {key: parent.tags.get(key, "") for key in tags})
    there = {key: parent.last[key] for key in standing.metrics if key in parent.last}
    yield from _other_values("", standing.metrics, there)
    marked = {tag.removeprefix(PREFIX): set(names) for tag, names in standing.marked.items()}
    answer = ANSWER.removeprefix(PREFIX)
    marked[answer] = {parent.tags.get(answer, "")}  # of no trial for a method's default
    for key, wanted in marked.items():
        having = {name for name, tags in trials.items() if key in tags}
        if other := sorted((wanted & trials.keys()) ^ having):
            more = f" and {len(other) - NAMED} more" if len(other) > NAMED else ""
            yield f"the tag {PREFIX}{key} of {', '.join(other[:NAMED])}{more} is wrong"


def _check_run(
    facts: Evidence,
    record: TrialRecord,
    run: TrackedRun,
    params: Mapping[str, str],
    rows: Sequence[Row],
    check: Check,
) -> None:
    """A trial's run against its record, its params and the rows of its history."""
    tags = _own(trial_tags(facts.study, record))
    tested = facts.tested.get(record.name, {})
    known = {key: value for key, value in tested.items() if key in run.tested}
    problems = [
        *_other_texts("", {"status": STATUS[record.state]}, {"status": run.status}),
        *_other_texts("", _written(tags, run.tags), run.tags),
        *_other_texts("param ", _needed(record, params, run.params), run.params),
        *_other_values("final ", record.final, run.final),
        *_other_values("", known, run.tested),
        *_history_problems(run, rows),
    ]
    if problems:
        fix = f"delete its MLflow run, then run {facts.sync}"
        check.add_offender(record.name, "; ".join(problems), fix)
    elif tested.keys() - run.tested.keys():
        fix = f"upload them with {facts.sync}"
        problem = "its test results are not in MLflow"
        check.add_offender(record.name, problem, fix, facts.goes_on_later)


def _history_problems(run: TrackedRun, rows: Sequence[Row]) -> Iterator[str]:
    """Other last values than the history's, and metrics with duplicate or missing steps."""
    last: dict[str, float] = {}
    wanted: Counter[str] = Counter()
    for row in rows:
        measured = {
            key: value
            for key, value in row.items()
            if key not in ("epoch", "time") and math.isfinite(value)
        }
        last |= measured
        wanted.update(measured.keys())
    if rows:
        known = {key: value for key, value in run.last.items() if key in last}
        yield from _other_values("last ", last, known)
    if run.points is None:  # not of the sample
        return
    twice = [key for key, points in run.points.items() if points.count > points.steps]
    if twice:
        yield f"MLflow has duplicate steps of {', '.join(sorted(twice))}"
    steps = {key: points.steps for key, points in run.points.items()}
    other = [key for key in sorted(wanted) if steps.get(key, 0) != wanted[key]]
    if other:
        yield f"MLflow steps differ from the {len(rows)} epochs for {', '.join(other)}"


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
