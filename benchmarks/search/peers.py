"""Syne Tune's stopping schedulers as rules of a replay; they are fed trial after
trial, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.search.stopping import Rule, Trial

INSTALLED = find_spec("syne_tune") is not None
SKIPPED = (
    "Syne Tune's MOASHA and ASHA: skipped, syne-tune is not installed (`make compare` has it)."
)


def rules() -> dict[str, Rule]:
    """MOASHA by error and ECE, ASHA by error: eta 3, rungs from 1/9 of the epochs on, or one
    at 1/3. None without them.

    They protect no trial.
    """
    if not INSTALLED:
        return {}
    from syne_tune.config_space import uniform
    from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving
    from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

    space = {"place": uniform(0.0, 1.0)}  # nothing is asked of it: the settings are recorded

    def moasha(**options: Any) -> Any:
        return MOASHA(space, metrics=["error", "ece"], time_attr="epoch", random_seed=0, **options)

    def asha(**options: Any) -> Any:
        return AsynchronousSuccessiveHalving(
            space, metric="error", time_attr="epoch", random_seed=0, **options
        )

    return {
        "Syne Tune's MOASHA, error + ECE, rungs from 1/9": fed(moasha, 9),
        "Syne Tune's MOASHA, error + ECE, rung 1/3": fed(moasha, 3),
        "Syne Tune's ASHA, error, rungs from 1/9": fed(asha, 9),
        "Syne Tune's ASHA, error, rung 1/3": fed(asha, 3),
    }


def fed(made: Callable[..., Any], shortest: int, eta: float = 3) -> Rule:
    """shortest: the first rung is at this part of the epochs, rounded."""
    from syne_tune.backend.trial_status import Trial as Told
    from syne_tune.optimizer.scheduler import SchedulerDecision

    def trained(trials: Sequence[Trial]) -> list[int]:
        epochs = trials[0].epochs
        scheduler = made(
            max_t=epochs, grace_period=max(1, round(epochs / shortest)), reduction_factor=eta
        )
        spent = []
        for number, trial in enumerate(trials):
            told = Told(trial_id=number, config={"place": 0.5}, creation_time=None)
            scheduler.on_trial_add(told)
            for epoch in range(1, len(trial.rows) + 1):
                error, ece = trial.costs(epoch, ("accuracy", "ece"))
                if (
                    scheduler.on_trial_result(told, {"epoch": epoch, "error": error, "ece": ece})
                    != SchedulerDecision.CONTINUE
                ):
                    break
            spent.append(epoch)
        return spent

    return trained
