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
from study.tracking.study_summary import ANSWER, FRONT, summary_of

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
    name = facts.study.name
    sync = facts.sync
    later = facts.goes_on_later
    if facts.unreachable is not None:
        fix = f"make MLflow reachable, then run {sync}"
        check.add_offender("tracking", facts.unreachable.rstrip("."), fix)
        return check
    if not facts.runs:
        problem = "MLflow has no run of this study"
        check.add_offender("tracking", problem, f"upload it with {sync}", later)
        return check
    if sample := sample_of(facts):
        check.notes.append(f"{sample}.")
    _check_ends(facts, parents, check)
    trials = {trial: same[0].tags for trial, same in by_trial.items()}
    configs = Configs(facts.study)
    for record in facts.records.finished:
        runs = by_trial.pop(record.name, [])
        rows = histories.get(record.name, [])
        if not runs:
            check.add_offender(record.name, "is not in MLflow", f"upload it with {sync}", later)
        elif len(runs) > 1:
            check.twice += len(runs) - 1
            problem = f"has {len(runs)} runs in MLflow"
            check.add_offender(record.name, problem, f"reduce them to one with {sync}", facts.alive)
        elif runs[0].ended:
            _check_run(facts, record, runs[0], configs.meant(record), rows, check)
    known = {record.name for record in facts.records}
    # The run of a retry's failed attempt is replaced once the retry has ended.
    retried = {record.name for record in facts.records.running if record.is_retry}
    for trial in by_trial.keys() - retried:
        problem = "is not finished in the ledger" if trial in known else "is not in the ledger"
        check.add_offender(trial, f"has an MLflow run but {problem}", "delete that run")
    # What differs in a trial differs in them all together: it is said once.
    if len(parents) == 1 and not (facts.alive or check.offenders or check.pending):
        for problem in _other_standing(facts, parents[0], trials):
            check.add_offender(name, problem, f"correct it with {sync}", later)
    return check


def _check_ends(facts: Evidence, parents: Sequence[TrackedRun], check: Check) -> None:
    """The study's own run is there once, and no run goes on unless the study does."""
    name = facts.study.name
    fix = f"correct it with {facts.sync}"
    if len(parents) != 1:
        problem = f"the study has {len(parents)} parent runs in MLflow"
        check.add_offender(name, problem, fix, facts.alive)
    if facts.alive:
        return
    for run in facts.runs:
        if not run.ended:
            problem = f"its MLflow run is {run.status}, but the study is not running"
            check.add_offender(run.trial or name, problem, fix, facts.goes_on_later)
    ends = "KILLED" if facts.study.lacking(facts.records) else "FINISHED"
    if len(parents) == 1 and parents[0].ended and parents[0].status != ends:
        problem = f"its MLflow run is {parents[0].status}, not {ends}"
        check.add_offender(name, problem, fix, facts.goes_on_later)


def _check_run(
    facts: Evidence,
    record: TrialRecord,
    run: TrackedRun,
    params: Mapping[str, str],
    rows: Sequence[Row],
    check: Check,
) -> None:
    """What a trial's run has otherwise than its record, its params and its history; a run of an
    older version lacks tags and settings that came later."""
    tags = _own(trial_tags(facts.study, record))
    own = {"label", "number", *record.params, *run.params}
    last: dict[str, float] = {}
    for row in rows:
        last |= _measured(row)
    tested = facts.tested_of(record)
    on_test = _finite(tested.flat) if tested else {}
    problems = [
        *_other({"status": STATUS[record.state]}, {"status": run.status}),
        *_other({key: tags[key] for key in tags if key not in LATER or key in run.tags}, run.tags),
        *_other({key: params[key] for key in params if key in own}, run.params, "param "),
        *_other({**dict.fromkeys(run.final), **_finite(record.final)}, run.final, "final "),
        *_other(on_test, on_test | run.tested),
        *_other(last, run.last, "last "),
        *_other_steps(run, rows),
    ]
    check.add_differences(record.name, problems, f"delete its MLflow run, then run {facts.sync}")
    if not problems and on_test.keys() - run.tested.keys():
        fix = f"upload them with {facts.sync}"
        problem = "its test results are not in MLflow"
        check.add_offender(record.name, problem, fix, facts.goes_on_later)


def _other_steps(run: TrackedRun, rows: Sequence[Row]) -> Iterator[str]:
    """Metrics with duplicate or missing steps."""
    if run.points is None:  # not of the sample
        return
    twice = [key for key, points in run.points.items() if points.count > points.steps]
    if twice:
        yield f"MLflow has duplicate steps of {', '.join(sorted(twice))}"
    wanted = Counter(key for row in rows for key in _measured(row))
    steps = {key: points.steps for key, points in run.points.items()}
    other = [key for key in sorted(wanted) if steps.get(key, 0) != wanted[key]]
    if other:
        yield f"MLflow steps differ from the {len(rows)} epochs for {', '.join(other)}"


def _other_standing(
    facts: Evidence, parent: TrackedRun, trials: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Tags of the study's run and of its trials', by name, that are not those of the ledger.

    Nothing is asked of a run that has not ended, or that a version wrote which had no such tags.
    """
    standing = summary_of(facts.study, facts.records)
    if standing is None or not parent.ended or FRONT.removeprefix(PREFIX) not in parent.tags:
        return
    tags = _own(standing.tags)
    yield from _other(tags, dict.fromkeys(tags, "") | parent.tags)
    yield from _other(_finite(standing.metrics), parent.last)
    answer = parent.tags.get(ANSWER.removeprefix(PREFIX), "")  # of no trial for a method's default
    for tag, wanted in {**standing.marked, ANSWER: [answer]}.items():
        having = {name for name, tags in trials.items() if tag.removeprefix(PREFIX) in tags}
        if other := sorted((set(wanted) & trials.keys()) ^ having):
            more = f" and {len(other) - NAMED} more" if len(other) > NAMED else ""
            yield f"the tag {tag} of {', '.join(other[:NAMED])}{more} is wrong"


def _own(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags to compare, without their prefix. The study's id is how the run was found."""
    return {
        key.removeprefix(PREFIX): value
        for key, value in tags.items()
        if key.startswith(PREFIX) and key not in OF_VERSION
    }


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    """What MLflow is given of them."""
    return {key: value for key, value in values.items() if math.isfinite(value)}


def _measured(row: Row) -> dict[str, float]:
    """What an epoch measured, as MLflow is given it."""
    return _finite({key: value for key, value in row.items() if key not in ("epoch", "time")})


def _other(
    ours: Mapping[str, object], theirs: Mapping[str, object], kind: str = ""
) -> Iterator[str]:
    """In words, what MLflow has otherwise."""
    for key, value in ours.items():
        found = theirs.get(key)
        if isinstance(value, float | int) and isinstance(found, float):
            same = math.isclose(value, found, rel_tol=1e-12)
        elif isinstance(value, str) and isinstance(found, str) and len(found) >= LONG:
            same = value.startswith(found)
        else:
            same = value == found
        if not same:
            told = f"{str(found)[:SHOWN]} in MLflow, {str(value)[:SHOWN]} in the ledger"
            yield f"its {kind}{key} is {told}"


def sample_of(facts: Evidence) -> Sample | None:
    """The trials whose histories were compared; None if each was."""
    trials = {run.trial for run in facts.runs if run.trial}
    compared = {run.trial for run in facts.runs if run.trial and run.points is not None}
    if compared == trials:
        return None
    return Sample(sorted(compared), len(trials), sample_seed(facts.study.id))
