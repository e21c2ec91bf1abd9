"""A study's trials and epochs as pandas DataFrames, for `study.Study`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.analysis.ranking import Ranking
from study.analysis.trial_rows import trial_rows
from study.store.files import HISTORY, stored_history
from study.store.study import StudyFolder

if TYPE_CHECKING:
    import pandas


def trials_frame(study: StudyFolder) -> pandas.DataFrame:
    """One row per trial; `trial_rows` has the columns. Times are UTC."""
    import pandas

    frame = pandas.DataFrame(trial_rows(study))
    for column in ("started", "ended"):
        if column in frame:
            frame[column] = pandas.to_datetime(frame[column], unit="s", utc=True)
    return frame


def front_frame(study: StudyFolder) -> pandas.DataFrame:
    """The rows of those on the Pareto front, best by the first objective first.

    `attrs["afterwards"]`: what is said of objectives given afterwards, if they were.
    """
    names = [record.name for record in Ranking(study, study.records()).front]
    frame = trials_frame(study)
    if not frame.empty:
        frame = frame.set_index("trial", drop=False).loc[names].reset_index(drop=True)
    if study.afterwards:
        frame.attrs["afterwards"] = study.afterwards
    return frame


def epochs_frame(study: StudyFolder) -> pandas.DataFrame:
    """One row per epoch of each finished trial. Raises FieldError if a history is missing or
    altered."""
    import pandas

    rows = []
    for record in study.records():
        if HISTORY in record.digests:
            history = stored_history(study, record)
            named = {"trial": record.name, "method": record.label, "number": record.number}
            rows += [named | row for row in history]
    frame = pandas.DataFrame(rows)
    if "time" in frame:
        frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
    return frame
