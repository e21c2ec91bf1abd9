"""Post-hoc calibrators on test: those that a confirmation recorded before its first opening.

From stored predictions: nothing is opened again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from study.answer.confirmation import Confirmation, moments
from study.schema.objective import TEMPERATURE
from study.store.files import stored_predictions
from study.store.openings import predictions_of
from study.store.trials import TrialRecord
from study.uncertainty.calibrators import NONE, REFERENCE, Rows, compared
from trainables.machine import one_torch_thread
from trainables.metrics.shared.post_hoc import FITS, TEMPERATURES
from trainables.metrics.shared.structured import MATRIX, MOST_CLASSES, VECTOR
from trainables.problems import FieldError, nearest

# {model: {calibrator: {metric: its mean and standard deviation over seeds}}}
Scores = dict[str, dict[str, dict[str, dict[str, float | None]]]]


def check_names(names: Sequence[str], classes: int) -> None:
    """Raise FieldError for what is no calibrator, or none of so many classes."""
    known = [name for name in FITS if name not in TEMPERATURES]
    for name in names:
        if name not in known:
            raise FieldError("--calibrators", f"there is no '{name}'", nearest(name, known))
        if name == MATRIX and classes > MOST_CLASSES:
            found = f"{MATRIX} is for at most {MOST_CLASSES} classes, these are {classes:,}"
            raise FieldError("--calibrators", found, f"Take {VECTOR}.")


def on_test(found: Confirmation) -> Scores:
    """The scores of `compared` on test, less the model as deployed; the fit is on validation.

    Raises FieldError if predictions are missing or altered.
    """
    names = found.search.recorded.calibrators_at_opening or []
    scores: Scores = {}
    for row in found.rows if names else ():
        tested = [one for one in row.records if one.number in found.tested[row.label]]
        with one_torch_thread():
            seeds = [_seed(found, record, names) for record in tested]
        scores[row.name] = {}
        for name in names if seeds else ():
            over = moments([seed[name] for seed in seeds])
            scores[row.name][name] = {
                metric: {"mean": of.mean, "std": None if math.isnan(of.std) else of.std}
                for metric, of in over.items()
            }
    return scores


def _seed(found: Confirmation, record: TrialRecord, names: Sequence[str]) -> Rows:
    """The scores of one network, with the temperature that its opening recorded."""
    tested = found.tested[record.label][record.number]
    validation = stored_predictions(found.study, record)
    test = predictions_of(found.study, record, tested)
    logits = {NONE: test.logits, REFERENCE: test.logits.double() / tested.temperature}
    for name in names:
        logits[name] = FITS[name](validation.logits, validation.labels)(test.logits)
    reference = REFERENCE if found.search.serves == TEMPERATURE else NONE
    return compared(test, logits, resamples=0, reference=reference)
