"""The folder is the list: `focal` is methods/focal.py, whose class is Focal. Adding the file adds the name.

A user's own folder laid out like ours (methods/, models/, data/) adds its names once `use_extensions` has been told.
"""

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trainables import former_names
from trainables.fields import FieldError, nearest

_extensions: Path | None = None


def use_extensions(directory: str | Path | None) -> None:
    """Look for names in `directory`/methods, models, data too. None: only our own.

    Raises FieldError when the folder is missing or one of its names is taken by ours.
    """
    global _extensions
    path = None if directory is None else Path(directory).resolve()
    if path is not None and not path.is_dir():
        raise FieldError("extensions", f"no folder at {path}.")
    for module in [name for name in list(sys.modules) if name.startswith("calstudy_extensions.")]:
        if path != _extensions:
            del sys.modules[module]
    _extensions = path


def keep_extensions(source: Path, kept: Path) -> None:
    """Have `kept` be a copy of an extensions folder: the folders we look into, and nothing else of it."""
    if source.resolve() == kept.resolve():
        return
    partial = kept.with_name(kept.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for folder in ("methods", "models", "data", "search_spaces"):
        if (source / folder).is_dir():
            shutil.copytree(source / folder, partial / folder, ignore=shutil.ignore_patterns("__pycache__"))
    partial.mkdir(exist_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    partial.rename(kept)


def stems(directory: Path, suffix: str = ".py") -> list[str]:
    """The names a folder holds, sorted."""
    return sorted(file.stem for file in directory.glob(f"*{suffix}") if not file.stem.startswith("_"))


def extension_folder(folder: str) -> Path | None:
    """The user's own folder of that name, where there is one."""
    return _extensions / folder if _extensions is not None and (_extensions / folder).is_dir() else None


class Folder:
    """The names in one folder: `Folder("method", "trainables.methods")`."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self.short = package.rpartition(".")[2]

    def _own(self) -> list[str]:
        (directory,) = importlib.import_module(self.package).__path__
        return stems(Path(directory))

    def names(self) -> list[str]:
        """All names, ours and those of the extensions folder, sorted."""
        own, folder = self._own(), extension_folder(self.short)
        theirs = stems(folder) if folder else []
        for name in set(own) & set(theirs):
            raise FieldError("extensions", f"{self.short}/{name}.py: '{name}' is one of our own; rename it.")
        return sorted(own + theirs)

    def find(self, name: str) -> Any:
        """The class of that name; FieldError with the nearest names where there is none."""
        if not isinstance(name, str) or name not in self.names():
            raise FieldError("", f"there is no {self.kind} '{name}'.{nearest(name, self.names())}")
        module = self._module(name)
        class_name = "".join(part.capitalize() for part in name.split("_"))
        if not hasattr(module, class_name):
            raise FieldError("extensions", f"{self.short}/{name}.py: it must define the class {class_name}.")
        return getattr(module, class_name)

    def _module(self, name: str) -> ModuleType:
        if name in self._own():
            return importlib.import_module(f"{self.package}.{name}")
        qualified = f"calstudy_extensions.{self.short}.{name}"
        if qualified in sys.modules:
            return sys.modules[qualified]
        folder = extension_folder(self.short)
        assert folder is not None
        spec = importlib.util.spec_from_file_location(qualified, folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        former_names.install()
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            # Half a module would be found again by its name.
            del sys.modules[qualified]
            problem = f"{self.short}/{name}.py: cannot be imported: {type(error).__name__}: {error}."
            raise FieldError("extensions", problem) from error
        return module


def name_of(cls: type) -> str:
    """The name a class is found by: the stem of the file it stands in."""
    return cls.__module__.rpartition(".")[2]
