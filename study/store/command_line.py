"""A command of a study, as a shell takes it and as a method of `Study` in Python."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

# The commands that a Study has as methods.
CALLS = ("run", "trials", "confirm", "answer", "report", "export")
# In the environment of a command that a Study runs: it names calls where it has them.
FROM_PYTHON = "CALSTUDY_FROM_PYTHON"
_as_calls = ContextVar("_as_calls", default=False)


def option_words(**options: object) -> list[str]:
    """The options of a command: `--seeds 3 --pareto`. None and False: not given."""
    words = []
    for name, value in options.items():
        option = f"--{name}"
        if value is True:
            words.append(option)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for each in value:
                words += [option, str(each)]
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def retry_words(retry: bool | Sequence[str]) -> list[str]:
    """`--retry-failed focal/0007`, of these trials; True: of all; False or none: nothing."""
    names = [] if isinstance(retry, bool) else [retry] if isinstance(retry, str) else [*retry]
    return ["--retry-failed", *names] if retry else []


class CommandLine(str):
    """To be pasted into a shell. call: the same in Python; itself where that has no such method.

    In a sentence it stands as a call within `in_calls`.
    """

    call: str

    def __format__(self, spec: str) -> str:
        return format(self.call if _as_calls.get() else str(self), spec)

    @classmethod
    def of(
        cls, verb: str, name: str, options: Mapping[str, object], where: Sequence[str]
    ) -> CommandLine:
        """options: by name, as of `option_words`. where: --storage, which a method knows."""
        line = cls(shlex.join(("calstudy", verb, name, *option_words(**options), *where)))
        line.call = str(line)
        if verb in CALLS:
            # Only `export` names a confirmation: a seed of it.
            is_seed = verb == "export" and name.endswith("-confirm")
            study = f"Study.open({name!r})" if is_seed else "study"
            arguments = [one for one in _arguments(verb, options) if one != "why=True"]
            line.call = f"{study}.{verb}({', '.join(arguments)}){'.why' * bool(options.get('why'))}"
        return line

    def at(self, address: str) -> CommandLine:
        """The same of a Ray cluster."""
        line = CommandLine(f"{self!s} --address {shlex.quote(address)}")
        line.call = str(line)
        if self.call != self:
            comma = "" if self.call.endswith("()") else ", "
            line.call = f"{self.call[:-1]}{comma}address={address!r})"
        return line


def call_of(command: str) -> str:
    """The same in Python."""
    return command.call if isinstance(command, CommandLine) else command


@contextmanager
def in_calls() -> Iterator[None]:
    """Sentences that are made within name calls instead of commands, where a Study has them."""
    token = _as_calls.set(True)
    try:
        yield
    finally:
        _as_calls.reset(token)


def repeated(command: str) -> str:
    """As its reader repeats it: the call, where a Study runs the command that says so."""
    return call_of(command) if FROM_PYTHON in os.environ else command


def _arguments(verb: str, options: Mapping[str, object]) -> list[str]:
    given = {name: value for name, value in options.items() if value not in (None, False)}
    first = [repr(given.pop("name"))] if verb == "export" else []
    if verb == "confirm" and "trial" in given:
        trials = given.pop("trial")
        given["trials"] = [trials] if isinstance(trials, str) else trials
    if "raw" in given:
        given["temperature"] = not given.pop("raw")
    return first + [f"{name}={value!r}" for name, value in given.items()]
