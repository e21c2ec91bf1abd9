"""Names come from files: `focal` is methods/focal.py with the class Focal. Adding the file adds the name.

A user's own folder with the same layout (methods/, models/, data/) adds its names through `use_extensions`.
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
    """Also look for names in `directory`/methods, models, data. None: only our own.

    Raises FieldError if the folder is missing.
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
    """Make `kept` a copy of an extensions folder, limited to the folders that are searched."""
    if source.resolve() == kept.resolve():
        return
    partial = kept.with_name(kept.name + ".partial")
    _remove(partial)
    for folder in ("methods", "models", "data", "search_spaces"):
        if (source / folder).is_dir():
            shutil.copytree(source / folder, partial / folder, ignore=shutil.ignore_patterns("__pycache__"))
    partial.mkdir(exist_ok=True)
    _remove(kept)
    partial.rename(kept)


def _remove(folder: Path) -> None:
    """Remove a folder, or a link in its place, if there is one."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def stems(directory: Path, suffix: str = ".py") -> list[str]:
    """The names in a folder, sorted."""
    return sorted(file.stem for file in directory.glob(f"*{suffix}") if not file.stem.startswith("_"))


def extension_folder(folder: str) -> Path | None:
    """The user's own folder of that name, if there is one."""
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
            raise FieldError("extensions", f"{self.short}/{name}.py: '{name}' is a built-in name; rename it.")
        return sorted(own + theirs)

    def find(self, name: str) -> Any:
        """The class of that name; FieldError with the nearest names if there is none."""
        if not isinstance(name, str) or name not in self.names():
            raise FieldError("", f"there is no {self.kind} '{name}'.{nearest(name, self.names())}")
        module = self._module(name)
        if not hasattr(module, class_name(name)):
            raise FieldError("extensions", f"{self.short}/{name}.py: it must define the class {class_name(name)}.")
        return getattr(module, class_name(name))

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
            # A half-imported module would be found again by its name.
            del sys.modules[qualified]
            problem = f"{self.short}/{name}.py: cannot be imported: {type(error).__name__}: {error}."
            raise FieldError("extensions", problem) from error
        return module


def class_name(name: str) -> str:
    """The class in the file of that name: `focal_scheduled` has FocalScheduled."""
    return "".join(part.capitalize() for part in name.split("_"))


def name_of(cls: type) -> str:
    """The name of a class: the stem of its file."""
    return cls.__module__.rpartition(".")[2]
