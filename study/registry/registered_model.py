"""Load a registered model without running code of its own, and ask it for probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from study.registry.program import FILE, ProgramError, check_program
from study.registry.verification import NotVerified
from trainables.outputs.classifier import predicted
from trainables.positions import Positions

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.pyfunc import PyFuncModel

DATA = "data"  # MLflow's folder of the program


def load_registered(directory: Path) -> PyFuncModel:
    """A saved MLflow model, on the CPU. Raises NotVerified if loading it could run code."""
    import mlflow.pyfunc

    refuse_code(directory)
    return mlflow.pyfunc.load_model(str(directory), model_config={"device": "cpu"})


def predict_registered(
    model: PyFuncModel, samples: Tensor, positions: Positions | None = None
) -> np.ndarray:
    """Probabilities [N, K] float32 for samples [N, ...]; [R, K] of the positions, if given."""
    schema: Any = model.metadata.get_input_schema()  # type: ignore[no-untyped-call]
    columns = schema.input_names() if schema.has_input_names() else ()

    def asked(batch: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(model.predict(rows_of(batch, columns))))

    return predicted(asked, samples, positions).numpy()


def rows_of(samples: Tensor, columns: Sequence[str]) -> np.ndarray | pd.DataFrame:
    """Samples as a registered model takes them: by the names of its columns, where it has them.

    In float64, which holds every float32 and is what tables mostly have.
    """
    if not columns:
        # Numbers of words stay whole.
        return (samples if samples.dtype == torch.int32 else samples.float()).numpy()
    import pandas as pd

    return pd.DataFrame(samples.double().numpy(), columns=list(columns))


def refuse_code(directory: Path) -> None:
    """Raise NotVerified unless MLflow's own loader loads it, an exported program without code."""
    from mlflow.models import Model

    flavors = Model.load(str(directory)).flavors
    own = flavors.get("python_function", {})
    loader = own.get("loader_module")
    if loader != "mlflow.pytorch" or any(flavor.get("code") for flavor in flavors.values()):
        raise NotVerified(
            f"loading it would run its own code (loader {loader}); `calstudy export` never adds"
            " code."
        )
    folder = directory / DATA
    is_named = own.get("data") == flavors.get("pytorch", {}).get("model_data") == DATA
    if not is_named or [each.name for each in folder.iterdir()] != [FILE]:
        raise NotVerified(
            f"it is not an exported program alone; `calstudy export` writes {DATA}/{FILE}."
        )
    try:
        check_program(folder / FILE)
    except ProgramError as error:
        raise NotVerified(f"its {error} It was not loaded.") from None
