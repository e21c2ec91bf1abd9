"""What `plan` says of texts, and what it refuses."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.study.command_line import here, here_json, write_spec
from tests.texts import made_texts
from trainables.data.shared.words import words_of

SAMPLES = "texts of up to 8 words"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    frame = made_texts(200)
    frame.loc[[1, 2], "text"] = ["", " \n"]
    frame.to_csv(tmp_path / "reviews.csv", index=False, na_rep="")
    frame.fillna("").to_parquet(tmp_path / "reviews.parquet", index=False)
    (tmp_path / "vectors.txt").write_text("film 0.5 1.5 2.5\n")
    later = pd.DataFrame({"text": ["the new film", "a plot of zebras"], "y": [0, 1]})
    later.to_parquet(tmp_path / "later.parquet", index=False)


def spec_of(folder: Path, data: dict[str, Any] | None = None, **keys: Any) -> Path:
    texts = {"name": "text", "path": "reviews.parquet", "label": "y", "length": 8, "vocabulary": 20}
    usual = {"model": "bag_of_words", "search_space": {}, "batch_size": 16}
    return write_spec(folder / "small.yaml", **{"data": {**texts, **(data or {})}, **usual, **keys})


def test_plan_says_what_vocabulary_and_length_leave_out(tmp_path: Path) -> None:
    shift = {"later": {"name": "text", "path": "later.parquet", "label": "y", "length": 8}}
    spec = spec_of(tmp_path, shift=shift, methods=["cross_entropy"])
    shown = here("plan", spec, "--storage", tmp_path)
    assert f"data: 2 classes of {SAMPLES}; " in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("words: "))
    facts = here_json("plan", spec, "--storage", tmp_path)["data"]
    assert (facts["kind"], facts["shape"]) == ("words", [8])
    known = sum(len(words_of(text)) > 8 for text in made_texts(200)["text"])
    assert facts["texts"]["cut"] == known - 2 and facts["texts"]["empty"] == 2
    unknown = [f"{facts['texts'][f'unknown_{name}']:.1%}" for name in ("train", "validation")]
    assert line == (
        f"words: the vocabulary has the 20 most frequent of train; {known - 2} of 200 texts are cut"
        f" to 8; {unknown[0]} of the words of train and {unknown[1]} of the words of validation are"
        " outside it; 2 texts without a word, one unknown word each"
    )
    assert "words of shift.later: 28.6% are outside the vocabulary\n" in shown  # new, zebras: of 7


@pytest.mark.parametrize(
    ("data", "keys", "said"),
    [
        (
            {},
            {"methods": ["focal", "mixup"]},
            f"methods.mixup: mixup mixes samples, the data are {SAMPLES}. Leave it out",
        ),
        (
            {},
            {"methods": [{"name": "mmce", "base": {"name": "mixup"}}]},
            f"methods.mmce: mmce mixes samples, the data are {SAMPLES}. Leave it out",
        ),
        ({"augment": "flip"}, {}, "data.augment: flip is for images, the data are"),
        (
            {},
            {"model": "mlp"},
            f"model: mlp takes images or rows, the data are {SAMPLES}. Write model: bag_of_words",
        ),
        (
            {},
            {"model": {"name": "bag_of_words", "train_vectors": False}},
            "model.train_vectors: false needs vectors of words, the data have none. Name their",
        ),
        ({"vectors": "vectors.txt"}, {}, "model.width: 100 is not the width of the data's vectors"),
        (
            {},
            {"model": "global_pooling_cnn"},
            "model: global_pooling_cnn takes texts of at least 21 words, got 8. Raise data.length.",
        ),
        ({"vectors": "reviews.csv"}, {}, "data.vectors: "),
        (
            {},
            {"shift": {"drawn": "digits"}},
            "shift.drawn: has images, the study texts.",
        ),
    ],
)
def test_what_does_not_fit_texts_is_refused(
    tmp_path: Path, data: dict[str, Any], keys: dict[str, Any], said: str
) -> None:
    shown = here("plan", spec_of(tmp_path, data, **keys), "--storage", tmp_path, check=2)
    assert shown.startswith(f"small.yaml: {said}") and shown.count("\n") == 1, shown


def test_texts_need_a_network_of_texts_alone(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", data="digits", model="bag_of_words")
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert "model: bag_of_words takes texts or trees, the data are 1x8x8 images." in shown


def test_vectors_of_a_file_are_the_first_of_the_network(tmp_path: Path) -> None:
    model = {"name": "bag_of_words", "width": 3, "train_vectors": False}
    spec = spec_of(tmp_path, {"vectors": "vectors.txt"}, model=model, methods=["cross_entropy"])
    assert "the vocabulary has the 20 most frequent" in here("plan", spec, "--storage", tmp_path)
