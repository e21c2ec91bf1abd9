"""The Markdown description on a study's MLflow pages, for readers who do not know the project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from study.schema.markdown import as_code, as_sentence
from study.schema.objective import epoch_note
from study.store.confirmed import can_confirm_itself

if TYPE_CHECKING:
    from study.store.study import StudyFolder

NOTE = "mlflow.note.content"  # the tag that MLflow shows as a description
FROM = "<!-- calstudy answer -->"
TO = "<!-- calstudy answer ends -->"


def with_answer(text: str, sentences: Sequence[str], following: Sequence[tuple[str, str]]) -> str:
    """A description with the answer first, for an earlier one; a user's own text stays."""
    before, found, after = text.partition(FROM)
    if found:
        text = before + after.partition(TO)[2]
    first, *others = map(as_sentence, sentences)
    parts = [
        f"**{first}** {' '.join(others)}".strip(),
        *(f"Next: {as_code(run)} {as_sentence(does)}." for run, does in following),
    ]
    said = "\n\n".join(parts)
    return f"{FROM}\n{said}\n{TO}\n\n{text.strip()}"


def description(study: StudyFolder) -> str:
    """Description of the experiment and of the study's own run."""
    samples = study.recorded.sizes
    better = {"maximize": "higher", "minimize": "lower"}
    sought = " and ".join(f"{o.metric} ({better[o.direction]} is better)" for o in study.objectives)
    if can_confirm_itself(study) or study.confirms_itself:
        what = f"Methods of training-time calibration, without a search. Objectives: {sought}."
        trials = (
            f"The run `{study.name}` is the study; its child run `METHOD/0007` is trial 7 of a"
            " method, a seed of the same settings, with its complete configuration as params."
            " `ece`, `nll`, ... are per-epoch metrics; `final/ece` is the trial's result, as"
            f" recorded in the ledger, on the validation split ({samples['validation']:,} samples)."
            f" After `calstudy confirm {study.name}`, `test/ece` is measured on the sealed test"
            f" split ({samples['test']:,} samples), `shift/NAME/ece` on other data."
        )
        files = _files(study)
    elif study.confirms is None:
        what = f"A search over training-time calibration methods. Objectives: {sought}."
        trials = (
            f"The run `{study.name}` is the study; its child run `METHOD/0007` is trial 7 of a"
            " method, with its complete configuration as params. `ece`, `nll`, ... are per-epoch"
            " metrics; `final/ece` is the trial's result, as recorded in the ledger. All metrics"
            f" are measured on the validation split ({samples['validation']:,} samples), which the"
            " search used for selection: the best of many trials looks better than it is. Test"
            f" results are in `{study.name}-confirm` after `calstudy confirm {study.name}`."
        )
        files = _files(study)
    else:
        what = (
            f"The best trials of `{study.confirms}`, retrained with fresh seeds and measured on the"
            " test split."
        )
        trials = (
            f"The run `{study.name}` is the confirmation; its child run `focal_0007/0001` retrains"
            " `focal/0007`, `focal_default/0001` the method's default, each with its own seed."
            " `final/ece` is measured on the validation split, `test/ece` on the sealed test split"
            f" ({samples['test']:,} samples), which only `calstudy confirm` opens, `shift/NAME/ece`"
            " on other data. Nothing was selected on these."
        )
        files = f"`report.html` of the run `{study.confirms}` covers both on one page."
    parts = [what, trials]
    if note := epoch_note(study.plain.get("result", "last")):
        parts.append(f"{note.capitalize()}.")
    early = study.plain.get("early_stopping")
    if early is not None:
        from study.schema.early_stopping import EarlyStopping  # imports torch

        epoch = EarlyStopping(**early).epoch(study.plain["epochs"])
        parts.append(
            f"A KILLED trial was stopped early: it has the metrics up to epoch {epoch}, and no"
            " `final/ece`."
        )
    parts.append("`ts_` in a metric's name: after temperature scaling.")
    return "\n\n".join([*parts, files])


def _files(study: StudyFolder) -> str:
    return (
        "Artifacts: `study.yaml`, the checked study; `report.html`, the report on one page"
        f" (download it); `figures/`. `calstudy report {study.name}` and `calstudy figures"
        f" {study.name}` update them."
    )
