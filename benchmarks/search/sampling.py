"""Samplers, replayed on surrogates of recorded trainings.

A surrogate is, of one method, a Gaussian process (Matern 5/2, a length for each parameter, noise)
for the logarithm of the error and one for that of ECE. Its means are the truth. A trial sees them
times noise: the deviations of a repeated setting's seeds from their mean, error and ECE together,
of a random one of the repeated settings.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from benchmarks.search.curves import Training, spec_of
from benchmarks.search.stopping import Trial, volume
from study.engine.proposing import propose, sampler_for, startup_trials
from study.schema.objective import Objective
from study.schema.spec import Sampler
from trainables.seeding import seed_of

OBJECTIVES = (Objective("error", "minimize"), Objective("ece", "minimize"))
CLEAREST = 1e-3  # of an error or ECE, before its logarithm
GRID = 4000  # random settings that stand for the whole space
Values = dict[str, Any]
# Trials seen, this trial's number, seed.
Sample = Callable[[Sequence[FrozenTrial], int, int], Values]


@dataclass
class Surrogate:
    space: dict[str, BaseDistribution]
    defaults: list[Values]
    models: list[GaussianProcessRegressor]  # of error and of ECE
    noise: NDArray[np.float64]  # [n, 2] deviations of the logarithms
    reference: tuple[float, float] = (0.0, 0.0)
    most: float = 0.0  # hypervolume of the whole space
    grid: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))

    def truth(self, settings: Sequence[Values]) -> NDArray[np.float64]:
        """[n, 2]: error and ECE."""
        return self.at(scaled(settings, self.space))

    def at(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(np.stack([model.predict(places) for model in self.models], -1))

    def share(self, settings: Sequence[Values]) -> float:
        """Their true hypervolume, as a share of the whole space's."""
        return volume([(a, b) for a, b in self.truth(settings)], self.reference) / self.most

    def complete(self, source: np.random.Generator) -> Surrogate:
        """With its reference point, the worst tenth of the space in each objective, and
        the volume of all of it."""
        true = self.at(source.random((GRID, len(self.space))))
        self.reference = (float(np.quantile(true[:, 0], 0.9)), float(np.quantile(true[:, 1], 0.9)))
        self.most = volume([(a, b) for a, b in true], self.reference)
        return self


def scaled(settings: Sequence[Values], space: dict[str, BaseDistribution]) -> NDArray[np.float64]:
    """[n, d] in [0, 1]; logarithmic where the range is."""
    columns = []
    for path, of in space.items():
        assert isinstance(of, FloatDistribution | IntDistribution)
        change = math.log if of.log else float
        low, high = change(of.low), change(of.high)
        columns.append([(change(setting[path]) - low) / (high - low) for setting in settings])
    return np.array(columns, np.float64).T


def fit(trainings: Sequence[Training], label: str) -> Surrogate:
    """Of the trainings of this method that are better than chance."""
    spec = spec_of(trainings[0].set, trainings[0].schedule)
    variant = spec.variant(label)
    space = dict(variant.space.distributions)
    own = [one for one in trainings if one.method == label]
    own = [one for one in own if Trial(label, False, one.rows, spec.epochs).has_result]
    places, targets = scaled([one.params for one in own], space), logarithms(own, spec.epochs)
    models = [fitted(places, column) for column in targets.T]
    return Surrogate(
        space, list(variant.space.defaults), models, deviations(own, targets)
    ).complete(np.random.default_rng(0))


def logarithms(trainings: Sequence[Training], epochs: int) -> NDArray[np.float64]:
    results = [Trial(one.method, False, one.rows, epochs).result for one in trainings]
    return np.log(np.maximum(np.array(results), CLEAREST))


def deviations(trainings: Sequence[Training], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 2]: of the seeds of each repeated setting from their mean, at the
    spread of single seeds."""
    numbers, found = np.array([one.setting for one in trainings]), []
    for number in np.unique(numbers):
        seeds = targets[numbers == number]
        if len(seeds) > 1:
            found.append((seeds - seeds.mean(0)) * math.sqrt(len(seeds) / (len(seeds) - 1)))
    return np.concatenate(found)


def fitted(places: NDArray[np.float64], column: NDArray[np.float64]) -> GaussianProcessRegressor:
    dimensions = places.shape[1]
    kernel = ConstantKernel() * Matern(np.ones(dimensions), (0.1, 20), nu=2.5) + WhiteKernel(0.1)
    with warnings.catch_warnings(action="ignore"):
        return GaussianProcessRegressor(
            kernel, normalize_y=True, random_state=0, n_restarts_optimizer=1
        ).fit(places, column)


def held_out(trainings: Sequence[Training], label: str) -> tuple[float, float]:
    """Spearman's correlation of five-fold predictions with error and with ECE."""
    from scipy.stats import spearmanr

    spec = spec_of(trainings[0].set, trainings[0].schedule)
    own = [one for one in trainings if one.method == label]
    own = [one for one in own if Trial(label, False, one.rows, spec.epochs).has_result]
    space = dict(spec.variant(label).space.distributions)
    places, targets = scaled([one.params for one in own], space), logarithms(own, spec.epochs)
    folds = np.array([one.setting for one in own]) % 5
    predicted = np.empty_like(targets)
    for fold in range(5):
        for column in range(2):
            model = fitted(places[folds != fold], targets[folds != fold, column])
            predicted[folds == fold, column] = model.predict(places[folds == fold])
    error, ece = (
        float(spearmanr(predicted[:, column], targets[:, column]).statistic) for column in range(2)
    )
    return error, ece


def ours(surrogate: Surrogate, name: str = "tpe") -> Sample:
    """As the product proposes: defaults first, then its sampler on a view."""

    def sample(trials: Sequence[FrozenTrial], number: int, seed: int) -> Values:
        if number < len(surrogate.defaults) and len(surrogate.defaults[number]) == len(
            surrogate.space
        ):
            return surrogate.defaults[number]
        sampler = sampler_for(
            Sampler(name=name), seed_of(seed, "sampler", "", number) % 2**32, surrogate.space
        )
        found = propose(trials, OBJECTIVES, surrogate.space, sampler)
        return found | (surrogate.defaults[number : number + 1] or [{}])[0]

    return sample


def of_optuna(surrogate: Surrogate) -> Sample:
    """Optuna's default for several objectives, which gets no defaults of ours."""
    samplers: dict[int, optuna.samplers.TPESampler] = {}

    def sample(trials: Sequence[FrozenTrial], number: int, seed: int) -> Values:
        sampler = samplers.setdefault(seed, optuna.samplers.TPESampler(seed=seed))
        return propose(trials, OBJECTIVES, surrogate.space, sampler)

    return sample


def search(
    surrogate: Surrogate,
    sample: Sample,
    trials: int,
    seed: int,
    slots: int = 1,
    cap: int | None = None,
    stack: int = 1,
) -> list[Values]:
    """The settings of a study of one method on so many slots; a trial lasts 0.9 to 1.1.

    cap: how many trials beyond the start-up may be without a result; what it leaves idle
    other methods would take. stack: how many trials a slot trains at once; they are proposed from
    the same results and end together.
    """
    source = np.random.default_rng(seed)
    noise = surrogate.noise[source.integers(len(surrogate.noise), size=trials)]
    lengths, tried = source.uniform(0.9, 1.1, trials), list[Values]()
    running: list[tuple[float, range]] = []
    done: dict[int, FrozenTrial] = {}
    first, now = max(len(surrogate.defaults), startup_trials(surrogate.space)), 0.0
    while len(tried) < trials:
        number = len(tried)
        pending = sum(other >= first for _, numbers in running for other in numbers)
        room = trials if cap is None else max(0, first - number) + cap - pending
        waits = cap is not None and number >= first and (room <= 0 or not done)
        if len(running) < slots and not waits:
            numbers = range(number, min(number + stack, number + room, trials))
            seen = [done[other] for other in sorted(done)]
            tried += [sample(seen, each, seed) for each in numbers]
            heapq.heappush(running, (now + lengths[number], numbers))
            continue
        now, ended = heapq.heappop(running)
        for each, true in zip(ended, surrogate.truth([tried[one] for one in ended]), strict=True):
            done[each] = create_trial(
                state=TrialState.COMPLETE,
                params=tried[each],
                distributions=surrogate.space,
                values=(true * np.exp(noise[each])).tolist(),
            )
            done[each].number = each
    return tried
