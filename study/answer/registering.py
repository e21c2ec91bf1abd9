"""What is next for a model: to be registered, or, once it is, to be verified."""

from __future__ import annotations

import shlex

from study.answer.choice import Choice
from study.store.exports import exported_models
from study.store.other_objectives import selected_by_hand
from study.store.study import StudyFolder


def registering(study: StudyFolder, choice: Choice, command: str) -> tuple[str, str]:
    """The next command, and what it does. study: the search; command: the one that registers."""
    by_hand = "" if study.given is None else selected_by_hand(study.given)
    for made in reversed(exported_models(study.directory)):
        found = (made.study, made.trial, made.serves, made.selected_for)
        if found == (choice.study.name, choice.record.name, study.serves, by_hand):
            words = ("calstudy", "verify", made.uri, "--tracking", made.tracking)
            return shlex.join(words), "checks it; it is registered"
    return command, "registers it in MLflow"
