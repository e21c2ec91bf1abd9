"""What a command said, as a value: one line where it is printed, the whole in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from study.answer import said
from study.schema.objective import read_objectives
from study.store.command_line import CommandLine
from trainables.problems import FieldError


@dataclass(frozen=True, repr=False)
class Answer(said.Answer):
    """Which model to take, how sure that is, and what to do next: its commands said as calls where
    a Study has such a method.

    afterwards: what is said of objectives given afterwards; else empty.
    """

    afterwards: str = ""

    def __str__(self) -> str:
        following = (f"Next: {_call(command)}  ({does})" for command, does in self.next)
        return "\n".join([*filter(None, [self.afterwards]), *self.sentences, *following])

    def __repr__(self) -> str:
        return f"Answer({self.sentences[0]!r})"

    def _repr_html_(self) -> str:
        first, *rest = map(escape, self.sentences)
        lines = [f"<p>{escape(self.afterwards)}</p>"] if self.afterwards else []
        lines += [f"<p><b>{first}</b></p>", *(f"<p>{sentence}</p>" for sentence in rest)]
        if self.next:
            items = (
                f"<li><code>{escape(_call(command))}</code>: {escape(does)}</li>"
                for command, does in self.next
            )
            lines.append(f"<p>Next:</p><ul>{''.join(items)}</ul>")
        if self.why:
            parts = (
                f"<h4>{escape(part.heading)}</h4><p>{escape(part.text)}</p>" for part in self.why
            )
            lines.append(f"<details><summary>Why</summary>{''.join(parts)}</details>")
        return "\n".join(lines)


def _call(command: str) -> str:
    return command.call if isinstance(command, CommandLine) else command


@dataclass(frozen=True, repr=False)
class Plan:
    """What a study will run, line by line."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Plan({self.lines[0]!r})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def in_commas(names: str | Sequence[str] | None) -> str | None:
    """`accuracy,nll`: metrics as a command takes them. Raises FieldError."""
    if names is None or isinstance(names, str):
        return names
    return ",".join(one.metric for one in read_objectives(names, "objectives"))


def level_of(interval: float) -> float:
    """The level of intervals as a fraction."""
    if not 50 < interval < 100:
        raise FieldError(
            "interval",
            f"{interval:g} is not between 50 and 100 (both excluded)",
            "Write a percentage: 90 for 90% intervals.",
        )
    return interval / 100


def served_words(temperature: bool | None) -> list[str]:
    return [] if temperature is None else ["--temperature" if temperature else "--raw"]


def text_or_none(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
