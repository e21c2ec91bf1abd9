"""The experiment: many trials asked for, and what they leave read. `from study import
Study` opens one in Python."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.python import Study as Study

__all__ = ["Study"]


def __getattr__(name: str) -> Any:
    if name != "Study":
        raise AttributeError(f"module 'study' has no attribute '{name}'")
    from calstudy import foreign_package

    problem = foreign_package()
    if problem is not None:
        raise ImportError(problem)
    from study.python import Study  # only now: it imports Optuna

    return Study
