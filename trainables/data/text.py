"""Texts, as the numbers of their words: in a column of parquet or csv files, or in folders.

A file with a column of split names; a folder with one file per split (`train.csv`); or a folder per
class, in one per split or without, with a file per text.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from trainables.data.shared.columns import check_column
from trainables.data.shared.listing import Content, Listing
from trainables.data.shared.named_rows import NamedRows
from trainables.data.shared.text_folder import folder_listing
from trainables.data.shared.words import laid_out, words_of
from trainables.dataset import Header, Progress, Words, nothing
from trainables.fields import choice, number, path_text
from trainables.fields import text as words
from trainables.files.data_files import MOST_WORDS, bytes_of, digest_of
from trainables.files.digest import known_digest
from trainables.kinds import NOUNS
from trainables.machine import memory
from trainables.plain import Value
from trainables.problems import FieldError

SLICE = 1024  # texts of a batch


@dataclass(frozen=True, kw_only=True)
class Text(NamedRows):
    """A sample is int32 [length]: the words that it keeps, by their place in the vocabulary.

    Words are letters with apostrophes inside, numbers, and single signs, in lower case. 1 is a word
    outside the vocabulary. 0 pads: behind the first words, in front of the last ones.
    """

    noun: ClassVar[str] = NOUNS["words"]
    picks: ClassVar[str] = "the text"

    path: str = path_text(
        doc="a .parquet or .csv file, a folder of them, or one with a folder per class"
    )
    label: str = words("label", doc="column of class numbers or words")
    text: str = words("text", doc="column of texts")
    vocabulary: int = number(20_000, low=2, doc="words that are known: the most frequent of train")
    length: int = number(400, low=1, doc="words of a sample")
    keep: str = choice("first", "last", doc="which words of a longer text are kept")
    vectors: str | None = path_text(
        None, doc="file with vectors of words, as GloVe has: a line for each, word and numbers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("label", "split_column"):
            if self.text == getattr(self, option):
                what = option.removesuffix("_column")
                raise FieldError("text", f"'{self.text}' is the {what}", "Name another column.")

    @property
    def _picked(self) -> str:
        return self.text

    @property
    def _others(self) -> list[str]:
        return [*super()._others, self.text]

    @property
    def _further(self) -> dict[str, Any]:
        found = {"vocabulary": self.vocabulary, "length": self.length, "keep": self.keep}
        if self.vectors is None:
            return found
        return {**found, "vectors": digest_of("vectors", Path(self.vectors), known_digest)}

    @property
    def _in_folders(self) -> bool:
        """Whether there is a file for each text."""
        path = Path(self.path)
        return path.is_dir() and not self._inside(path)

    def _files(self) -> list[Path]:
        return self._listing().files if self._in_folders else super()._files()

    def _listing(self) -> Listing:
        if not self._in_folders:
            return super()._listing()
        if self.group is not None:
            found = f"{self.path} has a file for each text, and no columns"
            raise FieldError("group", found, "Write the texts into a csv with such a column.")
        return folder_listing(Path(self.path), self.splits)

    def _where(self, listing: Listing, where: dict[str, Value]) -> np.ndarray:
        if not listing.schemas and where:
            self._refuse_where(where)
        return super()._where(listing, where)

    def _check_schema(self, file: Path, schema: Any) -> None:
        check_column("text", file, self.text, schema.names)
        super()._check_schema(file, schema)
        kind = schema.field(self.text).type
        if not pa.types.is_string(kind):
            named = [field.name for field in schema if pa.types.is_string(field.type)]
            mend = f"Columns of text: {', '.join(named)}." if named else ""
            raise FieldError("text", f"{file}: column '{self.text}' has type {kind}", mend)

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        return super().samples_header(where)._replace(kind="words")

    def _described(
        self, listing: Listing, rows: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        return (self.length,), ()

    def _content(
        self, listing: Listing, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> Content:
        """For each split int32 [N, length], in row order. Raises FieldError."""
        wanted = np.concatenate(list(rows.values()))
        self._check_memory(len(wanted))
        order = np.argsort(wanted)
        samples = np.empty((len(wanted), self.length), dtype=np.int32)
        numbers: dict[str, int] = {}
        done = cut = 0
        with closing(self._texts(listing, wanted[order])) as texts:
            for done, found in enumerate(texts, 1):
                there = words_of(found)
                cut += len(there) > self.length
                kept = there[: self.length] if self.keep == "first" else there[-self.length :]
                places = [numbers.setdefault(word, len(numbers) + 2) for word in kept]
                samples[order[done - 1]] = laid_out(places, self.length, self.keep)
                if done % SLICE == 0:
                    progress(done, len(wanted))
        progress(done, len(wanted))
        ends = np.cumsum([len(taken) for taken in rows.values()])
        arrays = dict(zip(rows, np.split(samples, ends[:-1]), strict=True))
        vectors = None if self.vectors is None else Path(self.vectors)
        return Content(arrays, words=Words(tuple(numbers), self.vocabulary, vectors, cut))

    def _texts(self, listing: Listing, wanted: np.ndarray) -> Generator[str, None, None]:
        """The texts of these rows, which are in order."""
        if not listing.schemas:
            for row in wanted:
                try:
                    yield bytes_of("text", listing.files[row], MOST_WORDS).decode()
                except UnicodeDecodeError as error:
                    self._refuse(f"{listing.files[row]}", f"is not UTF-8 at byte {error.start}")
            return
        for _, rows, batch in self._parts(listing, wanted, [self.text], SLICE):
            for row, value in zip(rows, batch.column(0), strict=True):
                try:
                    found = value.as_py()
                except UnicodeDecodeError:
                    self._refuse(listing.place(row), "the text is not UTF-8")
                if found is None:
                    self._refuse(listing.place(row), "the text is missing")
                if len(found) > MOST_WORDS:
                    self._refuse(listing.place(row), f"the text has {len(found):,} signs")
                yield found

    def _refuse(self, place: str, found: str) -> NoReturn:
        raise FieldError("text", f"{place}: {found}", "Mend it, or remove it.")

    def _check_memory(self, texts: int) -> None:
        needed = texts * self.length * np.dtype(np.int32).itemsize
        if needed > (limit := memory()):
            found = f"{texts:,} texts of {self.length:,} words take {needed / 1e9:,.1f} GB"
            there = f"this machine's memory has {limit / 1e9:,.1f} GB"
            raise FieldError("length", f"{found}, {there}", "Lower it, or set `limit`.")
