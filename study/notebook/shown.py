"""What a command said, as a value: one line where it is printed, the whole in a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from study.answer import said
from study.schema.objective import read_objectives
from study.store.command_line import call_of
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.answer.confirmation import Results

RESAMPLES = 1000  # of the intervals on an answer's front


@dataclass(frozen=True, repr=False)
class Answer(said.Answer):
    """Which model to take, how sure that is, and what to do next: its commands said as calls where
    a Study has such a method.

    afterwards: what is said of objectives given afterwards; else empty. results, level: what it is
    the answer of, for its picture in a notebook.
    """

    afterwards: str = ""
    results: Results | None = field(default=None, compare=False)
    level: float = 0.95

    def __str__(self) -> str:
        following = (f"Next: {call_of(command)}  ({does})" for command, does in self.next)
        return "\n".join([*filter(None, [self.afterwards]), *self.sentences, *following])

    def __repr__(self) -> str:
        return f"Answer({self.sentences[0]!r})"

    def _repr_html_(self) -> str:
        """The first screen of the report; the sentences of an answer that names no model."""
        if self.model is None or self.results is None:
            return self._sentences()
        from study.report.figure_set import Gallery
        from study.report.first_screen import first_screen
        from study.report.html import alone

        study = self.results.study
        gallery = Gallery(study, self.results.records, None, RESAMPLES, self.level)
        called = replace(self, next=tuple((call_of(command), does) for command, does in self.next))
        note = f"<p>{escape(self.afterwards)}</p>" if self.afterwards else ""
        screen = first_screen(called, gallery.ranking, gallery.analysis, self.level)
        return note + alone(screen or "")

    def _sentences(self) -> str:
        first, *rest = map(escape, self.sentences)
        lines = [f"<p>{escape(self.afterwards)}</p>"] if self.afterwards else []
        lines += [f"<p><b>{first}</b></p>", *(f"<p>{sentence}</p>" for sentence in rest)]
        if self.next:
            items = (
                f"<li><code>{escape(call_of(command))}</code>: {escape(does)}</li>"
                for command, does in self.next
            )
            lines.append(f"<p>Next:</p><ul>{''.join(items)}</ul>")
        if self.why:
            parts = (
                f"<h4>{escape(part.heading)}</h4><p>{escape(part.text)}</p>" for part in self.why
            )
            lines.append(f"<details><summary>Why</summary>{''.join(parts)}</details>")
        return "\n".join(lines)


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


class Figures(list[Path]):
    """The files of figures, which a notebook shows."""

    def _repr_html_(self) -> str:
        return "".join(map(_shown, self))


def _shown(file: Path) -> str:
    if file.suffix == ".pdf":
        return f"<p>{escape(str(file))}</p>"
    kind = "svg+xml" if file.suffix == ".svg" else "png"
    data = b64encode(file.read_bytes()).decode()
    return f'<img alt="{escape(file.stem)}" width="504" src="data:image/{kind};base64,{data}">'


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
