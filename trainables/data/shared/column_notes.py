"""What to look at before training on a table: columns that give the label away, or lose digits."""

from collections.abc import Callable, Sequence

import numpy as np

ROWS = 10  # fewer say nothing; and the mean number of rows a value has, where it is a group of rows
NARROW = 1e-4  # spread of a column by its size, below which float32 loses much of it
SHOWN = 3  # columns of each note


class Spread:
    """Mean and deviation of each column in float64, before its values become float32."""

    def __init__(self, columns: int) -> None:
        self._rows = 0
        self._first = np.zeros(columns)
        self._total = np.zeros(columns)
        self._squares = np.zeros(columns)

    def add(self, values: np.ndarray) -> None:
        """values: [n, D]."""
        if not len(values):
            return
        if not self._rows:
            self._first = values[0].astype(np.float64)
        apart = values - self._first  # of numbers that are large and close, little is lost
        self._rows += len(values)
        self._total += apart.sum(axis=0)
        self._squares += np.einsum("nd,nd->d", apart, apart)

    @property
    def mean(self) -> np.ndarray:
        found: np.ndarray = self._first + self._total / self._rows
        return found

    @property
    def std(self) -> np.ndarray:
        shift = self._total / self._rows
        found: np.ndarray = np.sqrt(np.maximum(self._squares / self._rows - shift**2, 0))
        return found


def notes(
    values: np.ndarray,
    labels: np.ndarray,
    rows: Sequence[np.ndarray],
    spread: Spread,
    called: Callable[[int], str],
) -> tuple[str, ...]:
    """Warnings about the columns of train, in their order.

    values: float32 [N, D]. rows: ways to number the N rows from 0. called: a column by its place.
    """
    counts = [found + start for found in rows for start in (0, 1)]
    numbered = []
    telling = []
    for place in range(values.shape[1]):
        column = values[:, place]
        if _is_row_number(column, counts):
            numbered.append(f"{called(place)} is the row number: leave it out")
        elif np.array_equal(column, labels):
            telling.append(f"{called(place)} is the label itself: leave it out")
        elif _fixes(column, labels):
            found = f"{called(place)} alone fixes the label"
            telling.append(f"{found}: leave it out, unless it is known before the label is")
    mean = spread.mean
    std = spread.std
    narrow = []
    for place in np.flatnonzero((std > 0) & (std < NARROW * np.abs(mean))).tolist():
        kept = len(np.unique(values[:, place]))
        found = f"{called(place)} varies by {std[place]:.3g} around {mean[place]:.3g}"
        narrow.append(
            f"{found}: float32 keeps {kept:,} of its values apart; subtract its mean first"
        )
    return (*_first(numbered), *_first(telling), *_first(narrow))


def _is_row_number(column: np.ndarray, counts: Sequence[np.ndarray]) -> bool:
    """It counts the rows from 0 or 1, in one of the ways to number them."""
    enough = len(column) >= ROWS
    return enough and any(column[0] == row[0] and np.array_equal(column, row) for row in counts)


def _fixes(column: np.ndarray, labels: np.ndarray) -> bool:
    """Each value has one label; and few values have many rows, so that this is no chance."""
    most = len(column) // ROWS
    if len(np.unique(column[: 2 * most])) > most:  # measurements: not all of them are sorted
        return False
    values, places = np.unique(column, return_inverse=True)
    counts = np.bincount(labels)
    pairs = np.unique(places * len(counts) + labels)
    of_class = np.bincount(pairs % len(counts), minlength=len(counts))
    return len(pairs) == len(values) and bool((ROWS * of_class <= counts).all())


def _first(found: list[str]) -> list[str]:
    more = len(found) - SHOWN
    return [*found[:SHOWN], f"{more:,} more columns like the last"] if more > 0 else found
