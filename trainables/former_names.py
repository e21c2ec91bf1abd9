"""Where modules of ours used to be. Extensions written in those days import them from there, and go on doing so.

For extensions alone: `plugins` installs this when it loads the first of them, and none of our own files imports by a
former name. docs/extending.md lists what an extension may import.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# `trainables.sealed` is not among them: the test split is none of an extension's business.
FORMER = {
    "trainables.attempt": "trainables.outputs.attempts",
    "trainables.batches": "trainables.loading.batches",
    "trainables.classifier": "trainables.outputs.classifier",
    "trainables.disk": "trainables.files.atomic",
    "trainables.download": "trainables.files.download",
    "trainables.images": "trainables.data.shared.images",
    "trainables.lookahead": "trainables.methods.shared.lookahead",
    "trainables.naming": "trainables.plugins",
    "trainables.predictions": "trainables.outputs.predictions",
    "trainables.prepared": "trainables.loading.cache",
    "trainables.recording": "trainables.outputs.train_entropy",
    "trainables.resnet": "trainables.models.shared.resnet",
    "trainables.shift": "trainables.loading.shift",
    "trainables.splits": "trainables.data.shared.splits",
    "trainables.torchvision_data": "trainables.data.shared.torchvision",
    "trainables.trial_data": "trainables.loading.trial_data",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the former names, with the module that is there now: its classes are the same by either name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in FORMER else None

    def exec_module(self, module: ModuleType) -> None:
        # The import statement takes what stands here when this returns.
        sys.modules[module.__name__] = importlib.import_module(FORMER[module.__name__])


_finder = _Finder()


def install() -> None:
    """Have the former names be found, after all that are really there."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
