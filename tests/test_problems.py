"""Errors the user can fix: what was found and the mend, in every class of the family."""

import pickle
from pathlib import Path

import pytest

from study.schema.errors import LedgerError, SpecError
from study.store.history import HistoryError
from trainables.problems import FieldError, UserError, joined, nearest

FAMILY = [
    (UserError("it is wet", "Dry it."), "it is wet. Dry it."),
    (LedgerError("it is wet"), "it is wet."),
    (FieldError("method.gamma", "must be > 0, got -1"), "method.gamma: must be > 0, got -1."),
    (FieldError("", "is empty", "Write it."), "is empty. Write it."),
    (
        SpecError("study.yaml", "name", "has trials", "Take another:", differences=("a", "b")),
        "study.yaml: name: has trials. Take another:\n  a\n  b",
    ),
    (
        HistoryError("focal/0001", Path("/s/history.json"), "is not JSON"),
        "focal/0001: /s/history.json is not JSON. Restore it from a backup.",
    ),
]


@pytest.mark.parametrize(("error", "text"), FAMILY, ids=lambda of: type(of).__name__)
def test_one_text_of_two_parts_also_in_another_process(error: UserError, text: str) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and vars(again) == vars(error)
    assert str(error) == str(again) == text


def test_a_field_is_named_from_where_it_is_seen() -> None:
    error = FieldError("gamma", "is missing", "Write it.")
    assert str(error.under("base").under("method")) == "method.base.gamma: is missing. Write it."
    assert str(FieldError("", "is missing").under("method")) == "method: is missing."
    assert str(error.at("elsewhere")) == "elsewhere: is missing. Write it."
    assert str(SpecError.of("study.yaml", error)) == "study.yaml: gamma: is missing. Write it."


def test_a_question_needs_no_full_stop() -> None:
    assert joined("there is no 'gama'", nearest("gama", ["gamma", "lr"])) == (
        "there is no 'gama'. Did you mean 'gamma'?"
    )
    assert joined("published by whom?") == "published by whom?"
    assert nearest("zzz", ["gamma", "lr"]) == "Valid values: gamma, lr."
    assert nearest("zzz", []) == "Valid values: none."
    assert nearest("acc", ["nll", "accuracy", "ts_accuracy"]) == "Did you mean 'accuracy'?"
    many = [f"metric_{number}" for number in range(62)]
    few = ", ".join(many[:10])
    assert nearest("zzz", many) == f"Valid values: {few} and 52 more."
    listed = f"Valid values: {few} and 52 more; `calstudy list metrics` has all."
    assert nearest("zzz", many, "`calstudy list metrics` has all") == listed
    assert nearest("lr", ["optimizer.lr"]) == "Did you mean 'optimizer.lr'?"
