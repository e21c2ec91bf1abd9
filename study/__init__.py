"""The experiment: many trials asked for, and what they leave read. In Python
`calstudy.Study` opens one."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.notebook.process import CommandFailed as CommandFailed
    from study.python import Study as Study
    from study.registry.encoding import encode as encode
    from study.schema.errors import TryAgain as TryAgain
    from trainables.problems import UserError as UserError

_PLACES = {
    "Study": "study.python",  # only when it is asked for: it imports Optuna
    "UserError": "trainables.problems",
    "TryAgain": "study.schema.errors",
    "CommandFailed": "study.notebook.process",
    "encode": "study.registry.encoding",
}
__all__ = ["CommandFailed", "Study", "TryAgain", "UserError", "encode"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'study' has no attribute '{name}'")
    from calstudy.command import foreign_package

    problem = foreign_package()
    if problem is not None:
        raise ImportError(problem)
    with warnings.catch_warnings():
        # In a notebook Optuna's progress bars, which nothing here draws, ask for a widget.
        warnings.filterwarnings("ignore", message="IProgress not found")
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
