"""A command of a study, as a shell takes it and as a method of `Study` in Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# The commands that a Study has as methods.
CALLS = ("run", "trials", "confirm", "report", "export")


class CommandLine(str):
    """To be pasted into a shell. call: the same in Python; itself where that has no such method."""

    call: str

    @classmethod
    def of(cls, verb: str, name: str, words: Sequence[str], where: Sequence[str]) -> CommandLine:
        """words: its options, each maybe with a value. where: --storage, which a method knows."""
        line = cls(shlex.join(("calstudy", verb, name, *words, *where)))
        line.call = str(line)
        if verb in CALLS:
            # Only `export` names a confirmation: a seed of it.
            is_seed = verb == "export" and name.endswith("-confirm")
            study = f"Study.open({name!r})" if is_seed else "study"
            line.call = f"{study}.{verb}({', '.join(_arguments(verb, words))})"
        return line


class _Option(NamedTuple):
    name: str
    value: str | None


def _options(words: Sequence[str]) -> Iterator[_Option]:
    for place, word in enumerate(words):
        if word.startswith("--"):
            value = next(iter(words[place + 1 : place + 2]), "--")
            yield _Option(word.removeprefix("--"), None if value.startswith("--") else value)


def _arguments(verb: str, words: Sequence[str]) -> Iterator[str]:
    for name, value in _options(words):
        if (verb, name) == ("export", "name"):
            yield repr(value)
        elif (verb, name) == ("confirm", "trial"):
            yield f"trials=[{value!r}]"
        elif name in ("temperature", "raw"):
            yield f"temperature={name == 'temperature'}"
        elif value is None:
            yield f"{name}=True"
        else:
            yield f"{name}={value if value.isdigit() else repr(value)}"
