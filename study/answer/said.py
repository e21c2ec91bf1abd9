"""What an answer says: one object for the terminal, JSON, the page, the model card and MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from study.uncertainty.words import AS_GOOD, BETTER, FORMER, UNDECIDED, WORSE

if TYPE_CHECKING:
    from study.answer.choice import Choice
    from study.uncertainty.intervals import Interval

Values = Mapping[str, "Interval | float"]  # by metric as deployed
# The verdict on the model beside default cross-entropy, as a code.
IS_DEFAULT = "is_default"
NOT_COMPARED = "not_compared"
VERDICTS = {
    BETTER: "better",
    AS_GOOD: "as_good",
    UNDECIDED: "undecided",
    WORSE: "worse",
    f"{BETTER} and {WORSE}": "better_and_worse",
}
# What a code was called before.
FORMER_CODE: dict[str | None, str] = {"undecided": "not_told_apart"}


@dataclass(frozen=True)
class Part:
    """A paragraph of the explanation, below its heading."""

    heading: str
    text: str


@dataclass(frozen=True)
class Model:
    """A trained model, or the seeds of one. settings: all of its method, and all searched ones.

    validation, test: the objectives as deployed; means over seeds of a confirmed model. test is
    empty until it is confirmed.
    """

    name: str
    method: str
    settings: Mapping[str, object]
    validation: Values = field(default_factory=dict)
    test: Values = field(default_factory=dict)

    def to_plain(self) -> dict[str, object]:
        return {
            "name": self.name,
            "method": self.method,
            "settings": dict(self.settings),
            "validation": plain_values(self.validation),
            "test": plain_values(self.test) if self.test else None,
        }


@dataclass(frozen=True)
class Answer:
    """Which model to take, how sure that is, and what to do next.

    sentences: at most four, the first names the model. next: commands, each with what it does. why:
    the explanation. verdict: on the model beside default cross-entropy (`default`), a code of
    VERDICTS, IS_DEFAULT or NOT_COMPARED; about: its sentence, empty without default cross-entropy;
    words: the model's, by metric. left_out: what is wrong
    with a file of trials that it leaves out, by trial.
    """

    sentences: tuple[str, ...]
    next: tuple[tuple[str, str], ...]
    why: tuple[Part, ...] = ()
    choice: Choice | None = None
    model: Model | None = None
    default: Model | None = None
    serves: str = ""
    verdict: str = NOT_COMPARED
    words: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    about: str = ""

    @property
    def split(self) -> str:
        """Where the values are from that say what the model is worth."""
        return "test" if self.model is not None and self.model.test else "validation"

    @property
    def values(self) -> Values:
        """The model's, on that split."""
        if self.model is None:
            return {}
        return self.model.test or self.model.validation

    @property
    def taken(self) -> str | None:
        """The label of the confirmed row; None: there is none."""
        return None if self.choice is None else self.choice.names["taken"]

    @property
    def trial(self) -> str | None:
        """Of the search, whose settings it has; None: there is none, or it is a default."""
        return None if self.choice is None else self.choice.names["trial"]

    def to_plain(self) -> dict[str, object]:
        """The answer as JSON."""
        return {
            "sentences": list(self.sentences),
            "why": [{"heading": part.heading, "text": part.text} for part in self.why],
            "next": [list(each) for each in self.next],
            "taken": self.taken,
            "trial": self.trial,
            "model": self.model and {**self.model.to_plain(), "serves": self.serves},
            "default": self.default and self.default.to_plain(),
            "verdict": (verdict := self.verdict if self.model else None),
            "verdict_former": FORMER_CODE.get(verdict, verdict),
            "words": dict(self.words),
            "words_former": {metric: FORMER.get(word, word) for metric, word in self.words.items()},
            "left_out": dict(self.left_out),
        }


def plain_values(values: Values) -> dict[str, object]:
    """Values for JSON, each with the ends of its interval and its floor where it has them."""
    return {
        name: {"value": value}
        if isinstance(value, float)
        else {"value": value.estimate, **value.ends()}
        for name, value in values.items()
    }
