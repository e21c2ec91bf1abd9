"""What a method's next trial tries: Optuna's samplers on a view of the ledger, kept in memory.

The ledger has facts only. The view adds what the sampler should know besides: which trials do not
count, by how much they violate a constraint, and that relative to the best trial now.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from search_spaces.conditions import NO_WHENS, Ranges, Whens, most_searched, searched_in
from search_spaces.space import contains
from study.analysis.ranking import Rules
from study.schema.objective import Objective
from study.schema.spec import Sampler, StudySpec
from study.store.ledger_reader import OPTUNA_STATES
from study.store.trials import TrialRecord
from trainables.plain import Value
from trainables.seeding import seed_of

Values = dict[str, Value]  # by path
NOTHING: Mapping[str, Value] = {}
# A method's proposals without a result are at most a sixth of its trials: more would make TPE
# random search. With two, an actor finds its next trial waiting.
LEAST_PENDING = 2


def most_pending(spec: StudySpec) -> int:
    """For how many proposed trials a method waits before it proposes another."""
    return spec.sampler.pending or max(LEAST_PENDING, math.ceil(spec.trials / 6))


def trials_without_results(spec: StudySpec, label: str) -> float:
    """How many trials of a method are proposed before results are used: those tried first and the
    start-up trials; all of `random`, and where nothing is searched."""
    space = spec.variant(label).space
    if spec.sampler.name == "random" or not space.distributions:
        return math.inf
    return max(len(space.first), startup_trials(space.distributions, space.whens))


class Proposer:
    """Proposes the hyperparameters of each method's next trial. It is told of every trial by `see`.

    A proposal is a function of the sampler's seed, the label, the trial's number and the trials
    seen, so that a restart proposes what no restart would have.
    """

    def __init__(self, spec: StudySpec, rules: Rules, records: Iterable[TrialRecord]) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # each proposal makes a study
        self._spec = spec
        self._rules = rules
        self._spaces = {variant.label: variant.space for variant in spec.variants}
        self._best: dict[str, float] = {}
        self._views: dict[str, dict[int, FrozenTrial]] = {label: {} for label in self._spaces}
        self._records: dict[str, dict[int, TrialRecord]] = {label: {} for label in self._spaces}
        # By how much a method's trials violate each rule where `_relative_to` is the best.
        self._violations: dict[str, dict[int, dict[str, float]]] = {}
        self._relative_to: dict[str, float] = {}
        self._drafts: dict[str, Future[Values]] = {}
        self._background: ThreadPoolExecutor | None = None
        for record in records:
            self.see(record)

    def see(self, record: TrialRecord) -> None:
        """A trial as the ledger has it now. A failed one tells the sampler nothing."""
        view = self._views[record.label]
        view.pop(record.number, None)
        self._violations.get(record.label, {}).pop(record.number, None)
        space = self._spaces[record.label]
        paths = space.searched_in(record.params)
        if record.state == "failed" or any(path not in record.params for path in paths):
            return
        is_complete = record.state == "complete"
        trial = create_trial(
            state=OPTUNA_STATES[record.state],
            params={path: record.params[path] for path in paths},
            distributions={path: space.distributions[path] for path in paths},
            values=[record.metrics[one.metric] for one in self._spec.objectives]
            if is_complete
            else None,
        )
        trial.number = record.number
        view[record.number] = trial
        if is_complete:
            self._records[record.label][record.number] = record
            self._best = self._rules.best([record], self._best)

    def learns(self, label: str, number: int) -> bool:
        """Whether the trial is to be proposed from results: it is none of those tried first, no
        start-up trial, not of `random`."""
        return number >= trials_without_results(self._spec, label)

    def proposal(self, label: str, number: int) -> Values | None:
        """The parameters of the trial, by path.

        None while they are worked out in the background, as `gp` does, which takes a second: ask
        again.
        """
        if self._spec.sampler.name != "gp" or not self.learns(label, number):
            first = (self._spaces[label].first[number:] or [{}])[0]
            return self._propose(label, number, first, self._view(label))
        if label not in self._drafts:
            self._background = self._background or ThreadPoolExecutor(1, "proposing")
            self._drafts[label] = self._background.submit(
                self._propose, label, number, {}, self._view(label)
            )
        return self._drafts.pop(label).result() if self._drafts[label].done() else None

    def _propose(
        self, label: str, number: int, given: Mapping[str, Value], trials: Sequence[FrozenTrial]
    ) -> Values:
        space = self._spaces[label].distributions
        whens = self._spaces[label].whens
        fixed = {
            path: of.to_external_repr(of.to_internal_repr(given[path]))
            for path, of in space.items()
            if path in given and contains(of, given[path])
        }
        if all(path in fixed for path in searched_in(fixed, space, whens)):
            return fixed
        seed = seed_of(self._spec.sampler.seed, "sampler", label, number) % 2**32
        sampler = sampler_for(self._spec.sampler, seed, space, whens)
        return propose(trials, self._spec.objectives, space, sampler, whens, fixed)

    def _view(self, label: str) -> list[FrozenTrial]:
        """The method's trials by number; with constraints, if one of them violates any."""
        if self._relative_to != self._best:
            self._violations, self._relative_to = {}, self._best
        found = self._violations.setdefault(label, {})
        for number, record in self._records[label].items():
            if number not in found:
                found[number] = self._rules.violations(record.metrics, self._best)
        violated = sorted({name for each in found.values() for name, by in each.items() if by > 0})
        view = self._views[label]
        for number, each in found.items() if violated else ():
            # Not `set_constraint`, which keeps the first value: a distance from the best trial
            # changes.
            view[number].system_attrs["constraints"] = [each[name] for name in violated]
        return [view[number] for number in sorted(view)]


def propose(
    trials: Sequence[FrozenTrial],
    objectives: Sequence[Objective],
    space: Ranges,
    sampler: BaseSampler,
    whens: Whens = NO_WHENS,
    fixed: Mapping[str, Value] = NOTHING,
) -> Values:
    """The parameters for one more trial of `space` after these: those `fixed`, the sampler's."""
    directions: list[Any] = [objective.direction for objective in objectives]
    study = optuna.create_study(storage=_View(trials), directions=directions, sampler=sampler)
    trial = study.ask()
    found: Values = {}
    for path, of in space.items():
        if path in searched_in(found, space, whens):
            _suggest(trial, path, of)
            found[path] = fixed.get(path, trial.params[path])
    return found


def _suggest(trial: optuna.Trial, path: str, of: BaseDistribution) -> None:
    if isinstance(of, CategoricalDistribution):
        trial.suggest_categorical(path, of.choices)
    elif isinstance(of, IntDistribution):
        trial.suggest_int(path, of.low, of.high, step=of.step, log=of.log)
    elif isinstance(of, FloatDistribution):
        trial.suggest_float(path, of.low, of.high, step=of.step, log=of.log)


def sampler_for(sampler: Sampler, seed: int, space: Ranges, whens: Whens = NO_WHENS) -> BaseSampler:
    """A fresh sampler for one proposal. TPE models the parameters jointly (multivariate); with
    conditional ranges those that trials have together (group)."""
    start = startup_trials(space, whens)
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        if sampler.name == "random":
            return RandomSampler(seed=seed)
        if sampler.name == "gp":
            import torch

            torch.set_num_threads(1)  # the cores are the trials'
            return GPSampler(seed=seed, n_startup_trials=start, warn_independent_sampling=False)
        if whens:
            return TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=start)
        return _TPEOfOneSpace(space, seed=seed, multivariate=True, n_startup_trials=start)


def startup_trials(space: Ranges, whens: Whens = NO_WHENS) -> int:
    """Trials, defaults included, before a sampler uses results. Optuna's 10 would make a small
    study random search."""
    return max(2 * most_searched(space, whens), 1)


class _TPEOfOneSpace(TPESampler):
    """TPE where each trial has all of the space: Optuna compares the ranges of all trials, at every
    proposal, to find out what they share."""

    def __init__(self, space: Ranges, **options: Any) -> None:
        super().__init__(**options)
        self._shared = {path: of for path, of in sorted(space.items()) if not of.single()}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._shared


class _View(InMemoryStorage):
    """A storage with these trials, which are not copied into it, and the one that is asked."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._seen = trials

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        # A sampler leaves out what has the number of the trial that is asked.
        self.get_trial(trial_id).number = (
            max((trial.number for trial in self._seen), default=-1) + 1
        )
        return trial_id

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return [trial for trial in self._seen if states is None or trial.state in states]
