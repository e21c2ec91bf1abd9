"""Approved wordings: what is said to a user, in one file beside each file of tests.

A test asserts what is done: an error's type and field, an exit code, a number. The sentence it
gives to the fixture `approved`, and `tests/x/approved/test_y.txt` holds it, under the test's name.
`make approve` writes these files anew; their diff is read like any other.
"""

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEADER = re.compile(r"^=== (.+)\n", re.MULTILINE)
VERSION = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?:[+.]?\w+)*")
# A digit in a word (`float32`, `attempt-1`, `UTF-8`) is part of a name.
NUMBER = re.compile(r"(?<!\w)(?<![A-Za-z_]-)[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def plain(text: str, places: dict[str, object], base: Path) -> str:
    """The text with PATH, ROOT, VERSION and N for what differs from run to run.

    places: what else does, by name. base: of pytest's temporary folders.
    """
    for name, value in sorted(places.items(), key=lambda place: -len(str(place[1]))):
        text = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", name.upper(), text)
    bases = [base, base.parent] if "PYTEST_XDIST_WORKER" in os.environ else [base]
    for folder in bases:
        text = re.sub(rf"{re.escape(str(folder))}/[\w-]+", "PATH", text)
    text = re.sub(rf"{re.escape(str(ROOT))}(?=$|[\W_])", "ROOT", text)
    text = NUMBER.sub("N", VERSION.sub("VERSION", text))
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


@dataclass
class Wordings:
    """Those of one file of tests. whole: all of its tests were collected."""

    tests: Path
    whole: bool
    collected: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    asked: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.tests.parent / "approved" / f"{self.tests.stem}.txt"

    @property
    def mend(self) -> str:
        return f"`make approve FILES={os.path.relpath(self.tests, ROOT)}`, and read the diff"

    def read(self) -> dict[str, str]:
        if not self.file.exists():
            return {}
        _, *parts = HEADER.split(self.file.read_text(encoding="utf-8"))
        return {key: text.strip("\n") for key, text in zip(parts[::2], parts[1::2], strict=True)}

    def unknown(self) -> list[str]:
        """The keys that no test asks for. One that did not run, or failed, may ask for its own."""
        found = []
        for key in self.read().keys() - self.asked.keys():
            test = re.sub(r" \d+$", "", key)
            if test in self.passed or (self.whole and test not in self.collected):
                found.append(key)
        return sorted(found)

    def write(self) -> None:
        unknown = self.unknown()
        texts = {key: text for key, text in self.read().items() if key not in unknown} | self.asked
        if texts:
            self.file.parent.mkdir(exist_ok=True)
            blocks = [f"=== {key}\n{text}\n" for key, text in sorted(texts.items())]
            self.file.write_text("\n".join(blocks), encoding="utf-8")
        else:
            self.file.unlink(missing_ok=True)


class Approvals:
    """A plugin of pytest. Each process compares and writes for the files that it runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._renew = bool(config.getoption("--approve"))
        if self._renew and os.environ.get("CI"):
            raise pytest.UsageError("--approve: CI compares, and renews nothing")
        self._config = config
        self._files: dict[Path, Wordings] = {}

    def of(self, item: pytest.Item) -> Wordings:
        if item.path not in self._files:
            start = self._config.invocation_params.dir
            named = [arg.split("::")[0] for arg in self._config.args if "::" in arg]
            part = item.path in [(start / name).resolve() for name in named]
            whole = not part and not self._config.getoption("lf", False)
            self._files[item.path] = Wordings(item.path, whole)
        return self._files[item.path]

    @pytest.hookimpl(tryfirst=True)  # before `-m` and `-k` choose
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.of(item).collected.add(item.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        report = yield
        if report.when == "call" and report.passed:
            self.of(item).passed.add(item.name)
        return report

    def take(self, item: pytest.Item, text: str, base: Path, places: dict[str, object]) -> None:
        """Compare what a test says with what was approved; with --approve, keep it."""
        wordings, name = self.of(item), item.name
        before = sum(key == name or key.startswith(f"{name} ") for key in wordings.asked)
        key = f"{name} {before + 1}" if before else name
        said = wordings.asked[key] = plain(text, places, base)
        assert said and not HEADER.search(f"{said}\n"), "a wording is not empty and has no header"
        if self._renew:
            return
        approved = wordings.read().get(key, "")
        if said != approved:
            told = "\n".join(difflib.ndiff(approved.splitlines(), said.splitlines()))
            wrong = f"{key}: not the approved wording (-), but (+):\n{told}"
            pytest.fail(f"{wrong}\nIf it is meant: {wordings.mend}.", pytrace=False)

    @pytest.fixture
    def approved(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Callable[..., None]:
        """`approved(text, **places)`; places: what differs from run to run, by the name it gets."""
        base = tmp_path_factory.getbasetemp()
        return lambda text, **places: self.take(request.node, text, base, places)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None):  # type: ignore[no-untyped-def]
        done = yield
        wordings = self.of(item)
        last = nextitem is None or nextitem.path != item.path
        if last and not self._renew and (unknown := wordings.unknown()):
            said = f"no test asks for {', '.join(unknown)} of {wordings.file}: {wordings.mend}."
            pytest.fail(said, pytrace=False)
        return done

    def pytest_sessionfinish(self) -> None:
        for wordings in self._files.values() if self._renew else ():
            wordings.write()
