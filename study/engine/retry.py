"""`run --retry-failed`: failed trials are tried again, each as a new entry in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from study.engine.budget import Spending
from study.schema.errors import SpecError
from study.store.confirmed import confirming_study
from study.store.extensions import mended_code
from study.store.ledger import Ledger
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from trainables.plugins import extension_digests
from trainables.problems import nearest

OPTION = "--retry-failed"
WORDS = {"pruned": "stopped early"}


@dataclass(frozen=True)
class Retry:
    """names: of the trials to retry, `focal/0007`; none: all that failed."""

    names: tuple[str, ...] = ()

    def chosen(self, records: Trials) -> list[TrialRecord]:
        """The failed trials that are to be retried. One whose retry has begun goes on by
        itself; one whose retry did not fail is done: the same command may be given again.

        Raises SpecError for a name of no trial, or of one that has not failed.
        """
        failed = [record for record in records if record.state == "failed"]
        if not self.names:
            return failed
        found: dict[str, TrialRecord] = {}
        for name in self.names:
            label, _, number = name.partition("/")
            record = records.numbered(label, int(number)) if number.isdecimal() else None
            if record is None:
                mend = nearest(name, [one.name for one in failed])
                raise SpecError(OPTION, "", f"there is no trial '{name}'", mend)
            if record.is_retry and record.state != "failed":
                continue
            if record.state != "failed":
                state = WORDS.get(record.state, record.state)
                mend = "Remove it: only failed trials are retried."
                if record.is_open:
                    mend = "Remove it: a trial that has not ended goes on in any run."
                raise SpecError(OPTION, "", f"{record.name} is {state}", mend)
            found[record.name] = record
        return list(found.values())

    def begun(self, records: Trials) -> Trials:
        """The trials as they are once the retries have begun."""
        chosen = {record.name for record in self.chosen(records)}
        return Trials(
            {
                label: [
                    replace(one, state="running") if one.name in chosen else one for one in found
                ]
                for label, found in records.by_label.items()
            },
            records.places,
        )

    def enqueue(
        self,
        study: StudyFolder,
        ledger: Ledger,
        expected: Mapping[str, float],
        say: Callable[[str], None],
    ) -> None:
        """Put the retries in the ledger, as far as the budget pays, and say what then holds.

        expected: by label, hours of a trial. Under the driver's lock.
        """
        spec = study.spec
        chosen = self.chosen(ledger.trials())
        digests = {} if spec.extensions is None else extension_digests(spec.extensions)
        retried = []
        for record in chosen:
            if spec.budget and not Spending(spec, ledger.trials(), expected).may_begin(
                record.label
            ):
                break
            used = {file: digests[file] for file in record.extensions if file in digests}
            retried.append(ledger.retry(record.label, record.number, used).name)
        if not chosen:
            say("retry: no failed trial is left.")
        if retried:
            say(f"retry: {', '.join(retried)}.")
        if left := len(chosen) - len(retried):
            say(f"retry: the budget does not pay for {left} more. Raise it and retry again.")
        for line in mended_code(ledger.trials()):
            say(f"warning: {line}.")


def refuse_after_test(study: StudyFolder) -> None:
    """Raise SpecError if the study's confirmation has begun: what failed then stays failed."""
    if study.recorded.confirmation is None and confirming_study(study) is None:
        return
    raise SpecError(
        OPTION,
        "",
        f"the confirmation of '{study.name}' has begun, so no trial of it is retried any more",
        "Run without it, or run the spec under a new name.",
    )
