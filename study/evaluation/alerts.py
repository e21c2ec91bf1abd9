"""Conditions under which `evaluate` ends with exit code 3: `ece>0.05`, or `ece.low>0.05`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from study.evaluation.evaluation import Evaluation
from study.schema.condition import Condition, read_condition
from trainables.metrics import AFTER_TEMPERATURE
from trainables.problems import FieldError

ENDS = ("low", "high")


@dataclass(frozen=True)
class Alert:
    """A condition on a metric, or on an end (`low`, `high`) of its interval."""

    condition: Condition
    end: str | None = None

    @property
    def metric(self) -> str:
        """Without `ts_`."""
        return self.condition.metric.removeprefix(AFTER_TEMPERATURE)

    def failed(self, found: Evaluation) -> str | None:
        """Why it alerts, in a sentence; None: it does not. What is not known alerts too."""
        name = self.condition.metric
        words = str(self.condition)
        if self.end is not None:
            words = words.replace(name, f"{name}.{self.end}", 1)
        value = found.metrics.get(name)
        if value is None:
            return f"--fail-if {words}: {name} is not defined on these samples."
        known = value.value
        if self.end is not None:
            if value.interval is None:
                why = found.numbers.why_none or f"{name} has none on these samples"
                return f"--fail-if {words}: there is no interval: {why}."
            known = value.interval[ENDS.index(self.end)]
        if not self.condition.holds({name: known}):
            return None
        called = name if self.end is None else f"{name}.{self.end}"
        return f"--fail-if {words}: {called} is {known:.4f}."


def read_alerts(texts: Sequence[str]) -> list[Alert]:
    """The conditions that --fail-if gives. Raises FieldError."""
    alerts = []
    for text in texts:
        found = re.match(rf"\s*(\w+)\.({'|'.join(ENDS)})\b", text)
        plain = text if found is None else found[1] + text[found.end() :]
        if "." in plain.partition(">")[0].partition("<")[0]:
            mend = "Write METRIC, METRIC.low or METRIC.high, and its limit: ece.low>0.05."
            raise FieldError("--fail-if", f"cannot parse '{text}'", mend)
        condition = read_condition("--fail-if", plain.strip())
        alerts.append(Alert(condition, None if found is None else found[2]))
    return alerts
