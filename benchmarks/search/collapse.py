"""Collapsed trials, trained for real: SECE on focal loss on digits, whose ECE is best where
its accuracy is a guess's.

24 trials in turn for each of 8 seeds of the sampler, as study/specs/digits.yaml has them: with its
constraint and the test for guessing in the sampler's view, and with neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.search import curves
from benchmarks.search.stopping import interval
from study.analysis.pareto import front
from study.analysis.ranking import Rules
from study.engine.proposing import Proposer
from study.schema.reading import read_spec
from study.schema.spec import StudySpec
from study.store.trials import TrialRecord
from trainables.loading.cache import prepare

LABEL, SEEDS, TRIALS = "sece_on_focal", 8, 24
DIGITS = Path(__file__).resolve().parents[2] / "study" / "specs" / "digits.yaml"


def table() -> Iterator[str]:
    """Means over the seeds: trials of 24 that guess, that do not meet the constraint; those
    that guess on any front."""
    spec = read_spec(DIGITS)
    prepared = prepare(spec.data, spec.seed)
    rules = Rules(
        spec.objectives,
        spec.constraints,
        prepared.majority("validation"),
        prepared.sizes["validation"],
    )
    yield "| the sampler's view has | trials that guess | excluded in all | guesses on a front |"
    yield "|---|---|---|---|"
    for name, view in (("constraint and guesses", rules), ("neither", Rules(spec.objectives))):
        guesses, aside, shown = [], [], 0
        for seed in range(SEEDS):
            found = searched(spec, view, seed)
            guesses.append(float(sum(map(rules.guesses, found))))
            aside.append(float(len(rules.excluded(found))))
            shown += sum(map(rules.guesses, front(rules.eligible(found), spec.objectives)))
        cells = ["{:.1f} ({:.1f}, {:.1f})".format(*interval(counts)) for counts in (guesses, aside)]
        yield f"| {name} | {' | '.join(cells)} | {shown} |"


def searched(spec: StudySpec, view: Rules, seed: int) -> list[TrialRecord]:
    """A method's trials, each proposed after the one before was told."""
    own = replace(spec, sampler=replace(spec.sampler, seed=seed))
    proposer, found = Proposer(own, view, []), []
    for number in range(TRIALS):
        params = proposer.proposal(LABEL, number)
        assert params is not None
        rows = curves.train(spec, LABEL, params, 1000 * seed + number)
        metrics = (
            dict(zip(curves.METRICS, rows[-1], strict=True)) if len(rows) == spec.epochs else {}
        )
        found.append(
            TrialRecord(LABEL, number, "complete" if metrics else "failed", params, metrics)
        )
        proposer.see(found[-1])
    return found
