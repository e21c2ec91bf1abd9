"""The Markdown description on a study's MLflow pages, for readers who do not know the project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from study.schema.early_stopping import EarlyStopping
from study.schema.objective import epoch_note

if TYPE_CHECKING:
    from study.store.study import Study

NOTE = "mlflow.note.content"  # the tag that MLflow shows as a description
FROM, TO = "<!-- calstudy answer -->", "<!-- calstudy answer ends -->"


def with_answer(text: str, sentences: Sequence[str], following: Sequence[tuple[str, str]]) -> str:
    """A description with the answer first, instead of an earlier one; the rest may be a user's and stays."""
    before, found, after = text.partition(FROM)
    rest = before + after.partition(TO)[2] if found else text
    first, *others = sentences
    parts = [
        f"**{first}** {' '.join(others)}".strip(),
        *(f"Next: `{run}` {does}." for run, does in following),
    ]
    said = "\n\n".join(parts)
    return f"{FROM}\n{said}\n{TO}\n\n{rest.strip()}"


def description(study: Study) -> str:
    """Description of the experiment and of the study's own run."""
    samples, early = study.recorded["sizes"], study.plain.get("early_stopping")
    better = {"maximize": "higher", "minimize": "lower"}
    sought = " and ".join(f"{o.metric} ({better[o.direction]} is better)" for o in study.objectives)
    note = epoch_note(study.plain.get("result", "last"))
    if study.confirms is None:
        what = f"A search over training-time calibration methods. Objectives: {sought}."
        trials = (
            f"The run `{study.name}` is the study; its child run `METHOD/0007` is trial 7 of a method, with its"
            " complete configuration as params. `ece`, `nll`, ... are per-epoch metrics; `final/ece` is the trial's"
            f" result, as recorded in the ledger. All metrics are measured on the validation split"
            f" ({samples['validation']:,} samples), which the search used for selection: the best of many trials looks"
            f" better than it is. Test results are in `{study.name}-confirm` after `calstudy confirm {study.name}`."
        )
    else:
        what = f"The best trials of `{study.confirms}`, retrained with fresh seeds and measured on the test split."
        trials = (
            f"The run `{study.name}` is the confirmation; its child run `focal_0007/0001` retrains `focal/0007`,"
            " `focal_default/0001` the method's default, each with its own seed. `final/ece` is measured on"
            f" the validation split, `test/ece` on the sealed test split ({samples['test']:,} samples), which only"
            " `calstudy confirm` opens, `shift/NAME/ece` on other data. Nothing was selected on these."
        )
    after = "`ts_` in a metric's name: after temperature scaling."
    files = (
        "Artifacts: `study.yaml`, the checked study; `report.html`, the report on one page (download it); `figures/`."
        f" `calstudy report {study.name}` and `calstudy figures {study.name}` update them."
        if study.confirms is None
        else f"`report.html` of the run `{study.confirms}` covers both on one page."
    )
    chosen = [f"{note.capitalize()}."] if note else []
    if early is not None:
        epoch = EarlyStopping(**early).epoch(study.plain["epochs"])
        chosen.append(
            f"A KILLED trial was stopped early: it has the metrics up to epoch {epoch}, and no `final/ece`."
        )
    return "\n\n".join([what, trials, *chosen, after, files])
