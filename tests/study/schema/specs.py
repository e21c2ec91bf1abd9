"""The small study that tests of the schema are of."""

from typing import Any

from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec

SMALL: dict[str, Any] = {
    "name": "small",
    "data": "digits",
    "model": "mlp",
    "methods": [
        "cross_entropy",
        "focal",
        "mbls",
        {"label": "sece_on_focal", "name": "sece", "base": "focal"},
    ],
}
SHIFT = {"far": {"name": "parquet", "path": "far.parquet", "ood": True}}
RATE = {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}}


def small(**keys: Any) -> StudySpec:
    return spec_from_mapping({**SMALL, **keys}, "study.yaml")
