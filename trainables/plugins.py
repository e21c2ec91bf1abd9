"""Names come from files: `focal` is methods/focal.py with the class Focal.
Adding the file adds the name.

A user's own folder with the same layout (methods/, models/, data/, metrics/) adds its
names through `use_extensions`.
"""

import importlib
import importlib.util
import os
import shutil
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from trainables.files.atomic import replacing_folder
from trainables.files.digest import file_digest, known_digest
from trainables.files.regular import KINDS
from trainables.own_class import LOADED, file_in, own_class
from trainables.problems import FieldError, nearest

SEARCHED = ("methods", "models", "data", "metrics")
TEXTS = (".md", ".rst", ".txt")

_extensions: Path | None = None
_opened: dict[Path, None] = {}  # the folders of the studies that were opened, the last one last
_metrics_read = 0  # how often metrics of one's own may have become others
_found: dict[str, set[str]] = {}  # the extension modules found, by the finder: a label or a module
_finder = ""


def use_extensions(directory: str | Path | None) -> None:
    """Also look for names in `directory`/methods, models, data, metrics. None: only our own.

    Raises FieldError if the folder is missing.
    """
    global _extensions, _metrics_read
    path = None if directory is None else Path(directory).resolve()
    if path is not None and not path.is_dir():
        raise FieldError("extensions", f"no folder at {path}")
    if path != _extensions:
        _found.clear()
        for module in [name for name in sys.modules.copy() if name.startswith(LOADED)]:
            del sys.modules[module]
    if path != _extensions or extension_folder("metrics") is not None:
        _metrics_read += 1
    _extensions = path


def open_extensions(directory: Path) -> None:
    """Know the metrics of an opened study's own folder by name. Nothing of it is run."""
    global _metrics_read
    if (directory / "metrics").is_dir():
        _opened.pop(directory, None)
        _opened[directory] = None
        _metrics_read += 1


def opened_extensions() -> tuple[Path, ...]:
    """The folders of the studies that were opened, the last one last."""
    return tuple(_opened)


def metrics_read() -> int:
    """A number that changes when metrics of one's own may have become others."""
    return _metrics_read


def keep_extensions(source: Path, kept: Path) -> None:
    """Make `kept` a copy of an extensions folder, limited to the folders that are searched."""
    folders = (*SEARCHED, "search_spaces")
    if source.resolve() == kept.resolve() or (
        kept.is_dir() and _digests(source, folders) == _digests(kept, folders)
    ):
        return
    with replacing_folder(kept) as partial:
        for path in own_files(source):
            copy = partial / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _is_own_file(path: Path) -> bool:
    """Whether it is a regular file and no link, which may lead anywhere."""
    return not path.is_symlink() and path.is_file()


def _is_own_folder(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir()


def skipped_files(directory: Path) -> list[str]:
    """What of an extensions folder is not read, and why: `methods/a.py is a symbolic link`."""
    found = []
    for path in _entries(directory, (*SEARCHED, "search_spaces")):
        if not (_is_own_file(path) or _is_own_folder(path)):
            kind = KINDS.get(stat.S_IFMT(path.lstat().st_mode), "no file")
            found.append(f"{path.relative_to(directory).as_posix()} is {kind}")
    return found


def own_files(directory: Path) -> list[Path]:
    """The files of an extensions folder that are read, sorted."""
    found = _entries(directory, (*SEARCHED, "search_spaces"))
    return [path for path in found if _is_own_file(path) and "__pycache__" not in path.parts]


def _entries(directory: Path, folders: Iterable[str]) -> list[Path]:
    """These folders that are there, and what is below them, sorted; no link is followed."""
    found: list[Path] = []
    for path in (directory / folder for folder in folders):
        if os.path.lexists(path):
            found += [path, *(path.rglob("*") if _is_own_folder(path) else ())]
    return sorted(found)


def extension_digests(folder: str | Path) -> dict[str, str]:
    """{file: sha256} of what a trial may use of an extensions folder: `methods/mine.py`.

    Left out are search spaces (the study records its ranges), texts (.md, .rst, .txt, README) and
    hidden files.
    """
    found = _digests(Path(folder), SEARCHED)
    return {file: digest for file, digest in found.items() if not _is_text(Path(file))}


@contextmanager
def finding_for(finder: str) -> Iterator[None]:
    """Names are found for the trials of this label, or by the code of this module."""
    global _finder
    before = _finder
    _finder = finder
    try:
        yield
    finally:
        _finder = before


def used_files(label: str, files: Mapping[str, str]) -> dict[str, str]:
    """Those of the files of the extensions folder in use that trials of a label use.

    files: {file: digest}, as `extension_digests` gives. Used are the files of the names that were
    found for these trials in this process, and found by the code of such a file. If there is
    one, so are the helpers that this process has imported, for whichever trial (a Python file that
    was imported otherwise than by its name), and every file that is no Python. Not seen: code
    that leaves nothing in `sys.modules`, and a name taken from there without `find`.
    """
    modules: set[str] = set()
    waiting = [label]
    while waiting:
        new = _found.get(waiting.pop(), set()) - modules
        modules |= new
        waiting += new
    if not modules or _extensions is None:
        return {}
    named = {file_in(module) for module in modules}
    imported = {
        str(getattr(module, "__file__", None))
        for name, module in sys.modules.copy().items()  # another thread may import
        if not name.startswith(LOADED)
    }
    return {
        file: digest
        for file, digest in files.items()
        if file in named or not file.endswith(".py") or str(_extensions / file) in imported
    }


def changed_files(folder: str | Path | None, recorded: Mapping[str, str]) -> list[str]:
    """Which of the recorded files an extensions folder has otherwise, or has not."""

    def differs(file: Path, digest: str) -> bool:
        return not file.is_file() or known_digest(file) != digest

    return [
        file
        for file, digest in recorded.items()
        if folder is None or differs(Path(folder) / file, digest)
    ]


def _is_text(file: Path) -> bool:
    return file.suffix.lower() in TEXTS or file.name == "README"


def _digests(directory: Path, folders: Iterable[str]) -> dict[str, str]:
    """{file: sha256} in these folders, without what Python, editors and systems leave there."""
    found = {}
    for path in _entries(directory, folders):
        name = path.relative_to(directory).as_posix()
        if _is_own_file(path) and not name.endswith(("~", ".pyc")) and "/." not in name:
            found[name] = file_digest(path)
    return found


def stems(directory: Path, suffix: str = ".py") -> list[str]:
    """The names in a folder, sorted."""
    return sorted(
        file.stem for file in directory.glob(f"*{suffix}") if not file.stem.startswith("_")
    )


def own_stems(folder: Path, suffix: str = ".py") -> list[str]:
    """`stems` of a folder of extensions, without what is no file of its own."""
    return [name for name in stems(folder, suffix) if _is_own_file(folder / f"{name}{suffix}")]


def extension_folder(folder: str) -> Path | None:
    """The user's own folder of that name, if there is one."""
    if _extensions is None or not _is_own_folder(_extensions / folder):
        return None
    return _extensions / folder


class _Loader(SourceFileLoader):
    """Runs the file whose digest is recorded, never what lies in __pycache__,
    where it writes nothing."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class Folder:
    """The names in one folder: `Folder("method", "trainables.methods")`."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self.short = package.rpartition(".")[2]

    @cached_property
    def _own(self) -> list[str]:
        (directory,) = importlib.import_module(self.package).__path__
        return stems(Path(directory))

    def names(self) -> list[str]:
        """All names, ours and those of the extensions folder, sorted."""
        own = self._own
        folder = extension_folder(self.short)
        theirs = own_stems(folder) if folder else []
        for name in set(own) & set(theirs):
            raise FieldError(
                "extensions", f"{self.short}/{name}.py: '{name}' is a built-in name", "Rename it."
            )
        return sorted(own + theirs)

    def find(self, name: str) -> Any:
        """The class of that name; FieldError with the nearest names if there is none."""
        if not isinstance(name, str) or name not in self.names():
            self._refuse_link(str(name))
            raise FieldError("", f"there is no {self.kind} '{name}'", nearest(name, self.names()))
        module = self.module(name)
        if name in self._own:
            return getattr(module, class_name(name))
        return own_class(module, f"{self.short}/{name}.py", self.kind, class_name(name))

    def _refuse_link(self, name: str) -> None:
        """Raise FieldError if the file of that name is one that is skipped."""
        skipped = [] if _extensions is None else skipped_files(_extensions)
        for found in skipped:
            if found.startswith((f"{self.short}/{name}.py is", f"{self.short} is")):
                raise FieldError("", f"in extensions, {found}, which is not read", "Copy it there.")

    def module(self, name: str) -> ModuleType:
        """The module of a file, ours or of the extensions folder in use. FieldError if it cannot be
        imported."""
        if name in self._own:
            return importlib.import_module(f"{self.package}.{name}")
        qualified = f"{LOADED}{self.short}.{name}"
        _found.setdefault(_finder, set()).add(qualified)
        if qualified in sys.modules:
            return sys.modules[qualified]
        folder = extension_folder(self.short)
        assert folder is not None
        loader = _Loader(qualified, str(folder / f"{name}.py"))
        spec = importlib.util.spec_from_file_location(qualified, loader.path, loader=loader)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        try:
            with finding_for(qualified):
                spec.loader.exec_module(module)
        except BaseException as error:
            # A half-imported module would be found again by its name.
            del sys.modules[qualified]
            if not isinstance(error, Exception) and raised_in(error) is None:
                raise
            found = f"{self.short}/{name}.py: cannot be imported: {in_a_line(error)}"
            mend = "Write @dataclass(frozen=True)." if "frozen dataclass" in found else ""
            raise FieldError("extensions", found, mend) from error
        return module


def raised_in(error: BaseException) -> str | None:
    """The file of an extensions folder whose code raised the error, `sys.exit`
    included; None if there is none.

    Nor is it one's fault that a signal came while it ran: Ray's handlers and
    ours also raise SystemExit.
    """
    found = _own_frame(error)
    return None if found is None else found[0]


def raised_at(error: BaseException) -> str | None:
    """As `raised_in`, with line and function: `methods/mine.py, line 12, in loss`."""
    found = _own_frame(error)
    if found is None:
        return None
    file, line, function = found
    inside = "" if function == "<module>" else f", in {function}"
    return f"{file}, line {line}{inside}"


def _own_frame(error: BaseException) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of one's own code."""
    frames = list(traceback.walk_tb(error.__traceback__))
    names = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    inside = [place for place, name in enumerate(names) if name.startswith(LOADED)]
    if (
        not inside
        or isinstance(error, KeyboardInterrupt)
        or names[-1].partition(".")[0] in ("ray", "study")
    ):
        return None
    frame, line = frames[inside[-1]]
    return file_in(names[inside[-1]]), line, frame.f_code.co_name


def is_own(cls: type) -> bool:
    """Whether a class is of an extensions folder."""
    return cls.__module__.startswith(LOADED)


def file_of(cls: type) -> str:
    """Where a class of an extensions folder is: `models/mine.py`; of another its name."""
    return file_in(cls.__module__) if is_own(cls) else cls.__name__


def in_a_line(error: BaseException) -> str:
    """The kind of an error and what it says."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":.")


def class_name(name: str) -> str:
    """The class in the file of that name: `focal_scheduled` has FocalScheduled."""
    return "".join(part.capitalize() for part in name.split("_"))


def name_of(cls: type) -> str:
    """The name of a class: the stem of its file."""
    return cls.__module__.rpartition(".")[2]
