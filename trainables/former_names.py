"""Former names of our modules, kept importable for extensions written against them.

`plugins` installs this with the first extension; our own files never import by a former name. What an extension may
import: docs/extending.md.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# `trainables.sealed` is missing on purpose: extensions must not read the test split.
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
    """Resolves former names to the current module: its classes are the same by either name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in FORMER else None

    def exec_module(self, module: ModuleType) -> None:
        # The import statement uses this entry.
        sys.modules[module.__name__] = importlib.import_module(FORMER[module.__name__])


_finder = _Finder()


def install() -> None:
    """Resolve former names, after all real modules."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
