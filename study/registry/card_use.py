"""How a registered model is asked, and its classes, on its card; and what the registry shows of it.

Each line is complete: MLflow refuses arrays of other types than a signature's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainables.kinds import NOUNS

Facts = Mapping[str, Any]  # what a version's record holds: plain values
MOST_CLASSES = 100  # on the card
LONGEST_DESCRIPTION = 5000  # characters the registry keeps
REST = "\n\nThe rest is in the version's file `calstudy/card.md`."
LONGEST_METADATA = 100_000  # characters of class names


def metadata(facts: Facts) -> dict[str, Any]:
    """What a loaded model says of itself: its classes, in the order of the probabilities.

    None where they are too long for a description that every loader reads.
    """
    classes = list(facts["classes"])
    if len(json.dumps(classes)) > LONGEST_METADATA:
        return {"num_classes": len(classes)}
    return {"classes": classes, "num_classes": len(classes)}


def use_section(facts: Facts, name: str) -> list[str]:
    """From Python, and from a server."""
    uri = f"models:/{name}/VERSION"
    needs = []
    if facts.get("columns"):
        asked = _of_rows(facts["columns"])
    elif "keep" in facts:
        asked = _of_texts(facts, uri)
        needs = ["From texts to probabilities. `encode` needs calstudy to be installed:"]
    else:
        asked = _of_arrays(facts)
    return [
        "## Use",
        *needs,
        "```python",
        "import mlflow",
        'mlflow.set_tracking_uri("...")  # of the server, or sqlite:///STORAGE/mlflow.db',
        f'model = mlflow.pyfunc.load_model("{uri}", model_config={{"device": "cpu"}})',
        *asked,
        "```",
        "From a server, which takes that file:",
        "```sh",
        "export MLFLOW_TRACKING_URI=... MLFLOW_DEFAULT_PREDICTION_DEVICE=cpu",
        f"mlflow models serve -m {uri} --env-manager local -p 5051 &",
        "# once it says that it runs, which can take half a minute:",
        (
            "curl -s http://127.0.0.1:5051/invocations -H 'Content-Type: application/json'"
            " -d @request.json"
        ),
        "```",
        f"Verify: `calstudy verify {uri}`.",
        "",
    ]


def _of_arrays(facts: Facts) -> list[str]:
    """Of a model of one array, of float32 or of numbers of words."""
    noun = NOUNS[facts.get("kind", "image")]
    shape = ", ".join(str(size) for size in facts["input_shape"])
    pixels = []
    if facts.get("marked"):
        pixels = ["masks = probs.argmax(axis=1)  # [N, H, W], the number of each pixel's class"]
    kind = ("int32", "int()") if "vocabulary_sha256" in facts else ("float32", "float()")
    return [
        f'probs = model.predict({noun}.astype("{kind[0]}"))  # NumPy, [N, {shape}]',
        f"probs = model.predict({noun}.{kind[1]}.cpu().numpy())  # torch",
        *pixels,
        "import json",
        f'json.dump({{"inputs": {noun}.tolist()}}, open("request.json", "w"))',
    ]


def _of_texts(facts: Facts, uri: str) -> list[str]:
    """Of a model of the numbers of words, which are those of its vocabulary."""
    return [
        "from study import encode",
        f'folder = mlflow.artifacts.download_artifacts("{uri}")',
        f"numbers = encode(['A new text.'], folder)  # int32 [N, {facts['input_shape'][0]}]",
        "probs = model.predict(numbers)",
        "import json",
        'json.dump({"inputs": numbers.tolist()}, open("request.json", "w"))',
    ]


def _of_rows(columns: Sequence[str]) -> list[str]:
    """Of a model of named columns, of which MLflow refuses whole numbers."""
    frame = f"pd.DataFrame({{}}, columns=names)  # {{}}, [N, {len(columns)}]"
    return [
        "probs = model.predict(table.astype(float))  # a DataFrame with these columns",
        "import pandas as pd",
        "names = model.metadata.get_input_schema().input_names()",
        f"table = {frame.format('rows.astype(float)', 'NumPy')}",
        f"table = {frame.format('rows.double().cpu().numpy()', 'torch')}",
        "import json",
        ('sent = {"dataframe_split": table.astype(float).to_dict("split", index=False)}'),
        'json.dump(sent, open("request.json", "w"))',
    ]


def classes_section(facts: Facts) -> list[str]:
    """The classes in the order of the probabilities; of many, the first."""
    classes = facts["classes"]
    text = ", ".join(classes[:MOST_CLASSES])
    if len(classes) > MOST_CLASSES:
        text += f" and {len(classes) - MOST_CLASSES:,} more"
    where = '`model.metadata.metadata["classes"]`'
    if "classes" not in metadata(facts):
        where = "`classes` in the version's file `calstudy/record.json`"
    return ["## Classes", f"In the order of the probabilities, as {where}: {text}.", ""]


def shown(card: str) -> str:
    """The card as the registry keeps it: whole lines, and where the others are."""
    if len(card) <= LONGEST_DESCRIPTION:
        return card
    return card[: LONGEST_DESCRIPTION - len(REST)].rpartition("\n")[0].rstrip() + REST
