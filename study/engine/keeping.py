"""Which trials keep their weights."""

from __future__ import annotations

from collections.abc import Sequence

from study.analysis.ranking import Rules, on_a_front, rules_of
from study.store.study import StudyFolder
from study.store.trials import Listener, TrialRecord, Trials


class ModelKeeper(Listener):
    """`keep_models: front`: removes the weights of trials that are not, or no longer, on the
    front."""

    def __init__(self, study: StudyFolder, records: Trials) -> None:
        self._study = study
        self._kept: list[TrialRecord] = []
        self._rules: Rules = rules_of(study)
        self._best: dict[str, float] = {}
        self._keep(records.complete)

    def finished(self, record: TrialRecord) -> None:
        if record.state == "complete":
            self._keep([*self._kept, record])

    def _keep(self, candidates: Sequence[TrialRecord]) -> None:
        if self._study.spec.keep_models == "all" or self._study.confirms_itself:
            return
        # Candidates are those kept before and new ones. The best of all trials is remembered: it
        # may itself not count.
        self._best = self._rules.best(candidates, self._best)
        self._kept = on_a_front(self._study, self._rules.eligible(candidates, self._best))
        kept = {record.name for record in self._kept}
        for dropped in candidates:
            if dropped.name not in kept:
                (self._study.files(dropped) / "model.pt").unlink(missing_ok=True)
