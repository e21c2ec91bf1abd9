"""Texts in the cache against a slow definition: the vocabulary is counted on train alone, by hand;
and vectors of words, shift sets, and what is refused."""

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.texts import made_texts
from trainables.data.shared.words import words_of
from trainables.data.text import Text
from trainables.dataset import RawData, RawSplit, Words
from trainables.inputs import Inputs
from trainables.loading import vocabulary as module
from trainables.loading.cache import Prepared, load_split, open_prepared, prepare
from trainables.loading.shift import ShiftSet, check_header, unknown_words, unseen_shift
from trainables.loading.vocabulary import check_words, read_vocabulary, vectors_of, write_vocabulary
from trainables.problems import FieldError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


def texts(folder: Path, frame: pd.DataFrame | None = None, name: str = "a", **options: Any) -> Text:
    path = folder / f"{name}.parquet"
    (made_texts(200) if frame is None else frame).to_parquet(path, index=False)
    return Text(**{"path": str(path), "label": "y", "length": 8, "vocabulary": 15, **options})


def said(prepared: Prepared, split: str) -> list[str]:
    words = ["", "?", *read_vocabulary(prepared.directory / "vocabulary.txt")]
    samples = np.load(prepared.directory / f"{split}.npy")
    assert samples.dtype == np.int32
    return [" ".join(words[number] for number in row if number) for row in samples]


def encoded(text: str, known: list[str], length: int) -> str:
    words = [word if word in known else "?" for word in words_of(text)[:length]]
    return " ".join(words or ["?"])


def test_the_vocabulary_is_of_train_and_samples_are_numbered_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    frame = made_texts(200)
    frame.loc[3, "text"] = "   "
    data = texts(tmp_path, frame)
    prepared = prepare(data, 0)
    known = read_vocabulary(prepared.directory / "vocabulary.txt")
    # Of each text of train the first eight words count; the most frequent first, then by word.
    plain = frame["text"].map(words_of)
    of_split = {}
    for split in ("train", "validation", "test"):
        found = said(prepared, split)
        assert len(found) == prepared.sizes[split]
        of_split[split] = found
    encoded_all = Counter(encoded(text, known, 8) for text in frame["text"])
    assert Counter(chain.from_iterable(of_split.values())) == encoded_all
    in_test = frame["split"] == "test"
    assert Counter(of_split["test"]) == Counter(
        encoded(text, known, 8) for text in frame["text"][in_test]
    )
    # Which rows were drawn for train is told by their rare words, with all words known.
    whole = prepare(texts(tmp_path, frame, vocabulary=100_000), 0)
    drawn = {" ".join(words[:8]): words[:8] for words in plain}
    counts: Counter[str] = Counter()
    for text in said(whole, "train"):
        counts.update(drawn[text] if text != "?" else [])
    by_hand = sorted(counts, key=lambda word: (-counts[word], word))
    assert known == by_hand[:15] and len(by_hand) > 100
    assert read_vocabulary(whole.directory / "vocabulary.txt") == by_hand
    # Rare words of validation and test are in no vocabulary.
    assert any("?" in text for text in said(whole, "validation"))
    shares = prepared.texts["unknown_train"]
    total = sum(len(text.split()) for text in of_split["train"])
    assert shares == sum(text.split().count("?") for text in of_split["train"]) / total
    assert (prepared.texts["cut"], prepared.texts["empty"]) == (199, 1)
    assert "unknown_test" not in prepared.texts


def test_what_is_prepared_says_what_its_samples_are(tmp_path: Path) -> None:
    prepared = prepare(texts(tmp_path), 0)
    inputs = prepared.input_shape
    assert (tuple(inputs), inputs.kind, inputs.words, inputs.vectors) == ((8,), "words", 17, 0)
    assert (inputs.noun, inputs.shown, inputs.size) == ("texts", "texts of up to 8 words", 32)
    again = open_prepared(prepared.directory)
    assert again == prepared and again.input_shape.words == 17 and again.vocabulary
    assert (again.mean, again.std) == ((0.0,), (1.0,))
    file = prepared.directory / "vocabulary.txt"
    file.write_text(file.read_text().replace("the", "thy"))
    with pytest.raises(ValueError, match=r"vocabulary\.txt is damaged; prepare it again"):
        open_prepared(prepared.directory)


def test_words_like_ends_of_lines_are_lines_of_the_file(tmp_path: Path) -> None:
    words = ["a", "\u0085x", "\x0bb", "é", "\u2028"]
    write_vocabulary(tmp_path / "v.txt", words)
    assert read_vocabulary(tmp_path / "v.txt") == words


# ---- vectors -------------------------------------------------------------------------------------


def test_vectors_are_of_the_words_needed(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("film 0.5 -1\n. . 9.0 9.0\nof 1e-3 2 \nnever 1 1\r\nthe 3.25 4\nthe 7 7\n\n")
    words = ["the", "of", "plot", "film"]
    zero = [0.0, 0.0]
    expected = np.array([zero, zero, [3.25, 4], [1e-3, 2], zero, [0.5, -1]], dtype=np.float32)
    found = vectors_of(file, words)
    assert found.dtype == np.float32 and np.array_equal(found, expected)
    file.write_text("3 2\nfilm 0.5 -1\n")  # as word2vec begins
    assert vectors_of(file, words)[5].tolist() == [0.5, -1]
    prepared = prepare(texts(tmp_path, vectors=str(file)), 0)
    assert prepared.input_shape.vectors == 2
    known = read_vocabulary(prepared.directory / "vocabulary.txt")
    kept = np.load(prepared.directory / "vectors.npy")
    assert kept.shape == (17, 2) and kept[known.index("film") + 2].tolist() == [0.5, -1]
    assert np.count_nonzero(kept.any(axis=1)) == 1


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("film 0.5 1.5\nthe 0.5\n", "line 2 has 1 numbers, those before have 2. Is it whole?"),
        ("film 0.5 1.5\nthe 0.5 1.5 2.5\n", "line 2 has 3 numbers, those before have 2"),
        ("film\nthe\n", "line 1 has no numbers"),
        ("film 0.5 x\n", "line 1: the vector of 'film' has a value that is no finite number"),
        ("film 0.5 nan\n", "line 1: the vector of 'film' has a value that is no finite number"),
        ("Film 0.5 1.5\n", "has no word of train's vocabulary"),
        ("", "has no word of train's vocabulary"),
    ],
)
def test_vectors_that_cannot_be_used(tmp_path: Path, lines: str, problem: str) -> None:
    file = tmp_path / "v.txt"
    file.write_text(lines)
    with pytest.raises(FieldError) as caught:
        vectors_of(file, ["film", "the"])
    assert caught.value.path == "vectors" and problem in str(caught.value)
    assert str(file) in str(caught.value)


def test_vectors_that_memory_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.txt").write_text("film 0.5 1.5\n")
    monkeypatch.setattr(module, "memory", lambda: 31)
    with pytest.raises(FieldError, match=r"take .* memory has .*Lower `vocabulary`"):
        vectors_of(tmp_path / "v.txt", ["film", "the"])


# ---- bad texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a"] * 20, "the texts of train have one word alone, 'a'"),
        ([""] * 20, "the texts of train have no word"),
        (["a b", "c", "d", "e", "f", *[" "] * 15], "15 of 20 texts have no word"),
    ],
)
def test_a_column_that_has_no_texts(tmp_path: Path, words: list[str], problem: str) -> None:
    frame = pd.DataFrame({"text": words, "y": [0, 1] * 10})
    with pytest.raises(FieldError) as caught:
        prepare(texts(tmp_path, frame), 1)
    assert caught.value.path == "text" and problem in str(caught.value)


def test_samples_without_words_and_numbers_beyond_them() -> None:
    samples = np.array([[2, 3], [4, 0]], dtype=np.int32)
    split = RawSplit(samples, np.array([0, 1]))
    inputs = Inputs.of(samples)
    with pytest.raises(FieldError, match="without words"):
        check_words(RawData(("a", "b"), split), inputs)
    with pytest.raises(FieldError, match="numbers from 0 to 4, its words are numbered 0 to 3"):
        check_words(RawData(("a", "b"), split, words=Words(("x", "y"), 9)), inputs)
    check_words(RawData(("a", "b"), split, words=Words(("x", "y", "z"), 9)), inputs)


# ---- shift sets ----------------------------------------------------------------------------------


def shift_of_texts(folder: Path, **options: Any) -> ShiftSet:
    rows = {"text": ["the new film", "a plot of zebras", "the actor"], "y": [1, 0, 0]}
    pd.DataFrame(rows).to_parquet(folder / "later.parquet", index=False)
    plain = {"name": "text", "path": str(folder / "later.parquet"), "label": "y", "length": 8}
    return ShiftSet.read({**plain, **options})


def test_a_shift_set_is_numbered_by_the_vocabulary_of_the_study(tmp_path: Path) -> None:
    prepared = prepare(texts(tmp_path), 0)
    known = read_vocabulary(prepared.directory / "vocabulary.txt")
    shift_set = shift_of_texts(tmp_path)
    for _ in range(2):  # decoded, then from the cache
        found = unseen_shift(shift_set, {}, prepared)
        names = ["", "?", *known]
        told = [" ".join(names[number] for number in row if number) for row in found.images]
        assert told == ["the ? film", "a plot of ?", "the actor"]
        assert found.images.dtype == load_split(prepared, "train").images.dtype
        assert found.labels.tolist() == [1, 0, 0] and not found.ood
    assert unknown_words(shift_set, prepared) == 2 / 9


def test_a_shift_set_of_other_samples_or_lengths_is_refused(tmp_path: Path) -> None:
    prepared = prepare(texts(tmp_path), 0)
    classes, inputs = prepared.classes, prepared.input_shape
    with pytest.raises(FieldError, match="its texts are of 9 words, the study's of 8") as caught:
        check_header(shift_of_texts(tmp_path, length=9), {}, classes, inputs)
    assert caught.value.path == "length" and "Write length: 8." in str(caught.value)
    with pytest.raises(FieldError, match="has images, the study texts"):
        check_header(ShiftSet.read("digits"), {}, classes, inputs)
    with pytest.raises(FieldError, match="has texts, the study rows"):
        check_header(shift_of_texts(tmp_path), {}, classes, Inputs((8,), "features"))


def test_a_cache_of_other_samples_says_nothing_of_words(tmp_path: Path) -> None:
    from trainables.data.digits import Digits

    prepared = prepare(Digits(), 0)
    meta = json.loads((prepared.directory / "meta.json").read_text())
    assert not {"words", "vectors", "texts"} & meta.keys()
    assert (prepared.input_shape.words, prepared.texts, prepared.vocabulary) == (0, {}, None)
