"""What was handed out to Ray and has not ended: attempts at lone trials, and at stacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from study.engine.deaths import Death
from study.engine.queue import Group
from study.machines.nodes import DATA_PATIENCE
from study.schema.resources import Resources
from study.schema.variant import with_values
from study.store.study import StudyFolder
from study.store.targets import Targets
from study.store.trials import TrialRecord
from trainables.plain import Plain
from trainables.plugins import extension_digests
from trainables.training.attempt import Assignment

# A report covers as many epochs as fit in STEP_SECONDS, at least one, because it costs more than a
# short epoch. Many concurrent trials report less often, so that one driver can handle them all.
STEP_SECONDS = 2.0
REPORTS_A_SECOND = 50


@dataclass
class Row:
    """A trial that trains."""

    record: TrialRecord
    seconds: float = 0.0  # of training, over all attempts
    epoch: int = 0

    def add(self, rows: list[dict[str, float]]) -> None:
        """Epochs that it reports."""
        self.seconds += sum(row["seconds"] for row in rows)
        self.epoch = int(rows[-1]["epoch"]) if rows else self.epoch


@dataclass
class Live:
    """An attempt at a group of trials. rows: of those that have not ended, by name."""

    group: Group
    number: int
    resources: Resources
    last_seen: float | None = None  # time of its last report; None until it has started
    overdue: bool = False
    actor: str | None = None  # Ray's id of its process
    had_company: bool = False  # another trained at the same time
    prepares: bool = False  # its process is new, and the data may have to be decoded there
    rows: dict[str, Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = {record.name: Row(record) for record in self.group.open}

    @property
    def alone(self) -> bool:
        """Whether no other may train beside it."""
        return self.group.rest.alone

    def was_alone_for(self, death: Death) -> bool:
        """Whether it died on an idle node, as far as is known."""
        return not self.had_company and death.on_idle_node

    def seen(self, now: float) -> None:
        self.last_seen = now
        self.prepares = False

    def hangs(self, now: float, patience: float) -> bool:
        """Whether it is silent for longer than its trials may train in total, beside what their
        node may take for the data. patience: seconds of a trial."""
        if self.last_seen is None or self.overdue:
            return False
        left = sum(patience - row.seconds for row in self.rows.values())
        return now - self.last_seen > left + DATA_PATIENCE * self.prepares


class Assigning:
    """Writes the assignments of a study's trials. limit: seconds of training."""

    def __init__(self, study: StudyFolder, targets: Targets, limit: float | None) -> None:
        self._study = study
        self._targets = targets
        self._limit = limit
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        folder = study.spec.extensions
        self._extensions: Mapping[str, str] = {} if folder is None else extension_digests(folder)

    def of(self, live: Live, slots: int) -> str:
        """As JSON. slots: of the cluster."""
        rows = [self._of_trial(record, live, slots) for record in live.group.records]
        if live.group.stack is None:
            return rows[0].to_json()
        return json.dumps({"rows": [asdict(row) for row in rows]})

    def shown(self, live: Live) -> dict[str, Plain]:
        """What Ray shows of an attempt beside it: the trial, its method and the values searched; of
        a stack by the trials' names. Nothing of ours reads it."""
        rows: dict[str, Plain] = {}
        for record in live.group.records:
            method = self._configs[record.label]["method"]
            name = method["name"] if isinstance(method, dict) else method
            rows[record.name] = {"method": name, **record.params}
        if live.group.stack is not None:
            return {"stack": live.group.name, "trials": rows}
        (row,) = rows.values()
        assert isinstance(row, dict)
        return {"trial": live.group.name, **row}

    def _of_trial(self, record: TrialRecord, live: Live, slots: int) -> Assignment:
        study = self._study
        spec = study.spec
        early = spec.early_stopping
        config = with_values(self._configs[record.label], record.params)
        number = spec.seed_number(record.number)
        stack = record.stack
        if live.group.stack is not None:
            stack = f"{stack}, {len(live.group.records)} trials"
        elif stack is not None:
            stack = f"left {stack}, which died"
        return Assignment(
            trial=record.name,
            directory=str(record.directory(study.directory)),
            attempt=live.number,
            config={**self._targets.named_in(config), "number": number},
            checkpoint_seconds=spec.checkpoint_seconds,
            data_digest=study.recorded.data_digest,
            resources={"cpu": live.resources.cpu, "gpu": live.resources.gpu},
            metrics=tuple(objective.metric for objective in spec.objectives),
            step_seconds=max(STEP_SECONDS, slots / REPORTS_A_SECOND),
            seconds_limit=self._limit,
            rung=None if early is None else early.epoch(spec.epochs),
            costs=() if early is None else early.by,
            extension_files=dict(self._extensions),
            weights=study.recorded.weights or {},
            study_file=str(study.directory / "study.yaml"),
            ended=record.name not in live.rows,
            stack=stack,
        )
