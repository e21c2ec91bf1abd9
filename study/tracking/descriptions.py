"""What MLflow's pages say of a study in words, in Markdown: to someone who came by a link and knows none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from study.store.study import Study

NOTE = "mlflow.note.content"  # the tag that MLflow shows as a description


def description(study: Study) -> str:
    """Of the experiment and of the study's own run."""
    spec, samples = study.spec, study.recorded["sizes"]
    better = {"maximize": "higher", "minimize": "lower"}
    sought = " and ".join(f"{o.metric} ({better[o.direction]} is better)" for o in spec.objectives)
    if spec.confirms is None:
        what = f"A search over methods of training-time calibration, for {sought}."
        trials = (
            f"The run `{spec.name}` is the whole study; below it `METHOD/0007` is trial 7 of a method. Its params are"
            " all that it was trained with. `ece`, `nll`, ... are of each epoch; `final/ece` is of its result, as the"
            f" ledger has it. All are of the validation split ({samples['validation']:,} samples), on which the search"
            f" chose: the best of many looks better than it is. What they are worth on test is in `{spec.name}-confirm`"
            f" once `calstudy confirm {spec.name}` has run."
        )
    else:
        what = f"What the best of `{spec.confirms}` are worth: retrained from fresh seeds, and measured on test."
        trials = (
            f"The run `{spec.name}` is the whole confirmation; below it `focal_0007/0001` is a retraining of"
            " `focal/0007`, and `focal_default/0001` of the method's published settings, each from a seed of its own."
            " `final/ece` is of the validation split, `test/ece` of the sealed test split"
            f" ({samples['test']:,} samples), which only `calstudy confirm` opens; `shift/NAME/ece` of other data."
            " Nothing was chosen by them."
        )
    after = "`ts_` in a name: after temperature scaling."
    files = (
        "Artifacts: `study.yaml`, the study as checked; `report.html`, all of it on one page (download it), and"
        f" `figures/`, as `calstudy report {spec.name}` and `calstudy figures {spec.name}` made them last."
        if spec.confirms is None
        else f"`report.html` of the run `{spec.confirms}` tells of both on one page."
    )
    return "\n\n".join([what, trials, after, files])
