"""The rows of a Pareto front: a DataFrame that a notebook shows beside its figure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pandas

from study.analysis.frames import front_frame
from study.store.study import StudyFolder
from trainables.problems import FieldError

COLUMNS = 6  # shown
RESAMPLES = 1000  # of the intervals in the figure
MEASURES = ("accuracy", "ece", "ts_ece", "nll", "ts_nll", "brier")  # after the objectives


class Front(pandas.DataFrame):
    """What is taken from it is a plain DataFrame."""

    _study: StudyFolder | None = None

    @classmethod
    def of(cls, study: StudyFolder) -> Front:
        rows = front_frame(study)
        found = cls(rows)
        found.attrs |= rows.attrs
        found._study = study
        return found

    def _repr_html_(self) -> Any:
        study = self._study
        if study is None or self.empty or "trial" not in self:
            return super()._repr_html_()
        objectives = [one.metric for one in study.objectives]
        wanted = dict.fromkeys(["trial", *objectives, *MEASURES])
        shown = [name for name in wanted if name in self][:COLUMNS]
        table = pandas.DataFrame(self)[shown].to_html(index=False, border=0, float_format="%.4f")
        others = len(self.columns) - len(shown)
        return f"{table}<p>{others} more columns: <code>.columns</code></p>{_picture(study)}"


def _picture(study: StudyFolder) -> str:
    """The figure of the front; empty where it cannot be drawn."""
    from study.report.figure_set import FIGURES, Gallery
    from study.report.style import InlineFigure

    try:
        ((_, figure),) = FIGURES["front"](Gallery(study, study.records(), None, RESAMPLES))
    except FieldError:
        return ""
    assert isinstance(figure, InlineFigure)
    data = b64encode(figure.png()).decode()
    return f'<img alt="Pareto front" width="504" src="data:image/png;base64,{data}">'
