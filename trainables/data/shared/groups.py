"""Which samples belong together: read from a column of numbers or text, or a csv of files."""

import hashlib
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainables.data.shared.columns import CsvColumns, check_column, whole
from trainables.kinds import count_of
from trainables.machine import memory
from trainables.problems import FieldError, nearest

FILE = "file"
GROUP = "group"
FILL = "Fill it, or remove the row."
KINDS = "Write whole numbers or text."
GAP = f"{KINDS} A gap turns whole numbers into floats: fill it."
FLOAT = r"^\s*[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?\s*$"


class Grouped(NamedTuple):
    """Groups as numbers that are the same in every file."""

    numbers: np.ndarray  # int64 [N]
    names: dict[int, str]  # of the numbers that are not the text


def check_group(group: str, taken: Mapping[str, str]) -> None:
    """Raise FieldError if the column already is something else. taken: what others are, by name."""
    if group in taken:
        raise FieldError("group", f"'{group}' is {taken[group]}", "Name another column.")


def check_group_kind(file: Path, column: str, kind: Any) -> None:
    """Raise FieldError unless a column of this type holds whole numbers or text."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(plain) or _is_text(plain):
        return
    mend = GAP if pa.types.is_floating(plain) else KINDS
    found = f"{file}: column '{column}' has type {kind}"
    raise FieldError("group", f"{found}, not whole numbers or text", mend)


def group_column(file: Path, column: Any, fill: str = FILL) -> Any:
    """The column in one piece, of whole numbers or text. Raises FieldError if one is missing.

    fill: what to do about that.
    """
    column = whole("group", "group", fill, file, column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = column.cast(pa.large_string())
        blank = pc.index(pc.equal(pc.utf8_trim_whitespace(column), ""), True).as_py()
        if blank >= 0:
            raise FieldError("group", f"{file}, row {blank}: the group is missing", fill)
        row = pc.index(pc.match_substring_regex(column, FLOAT), True).as_py()
        if row >= 0:
            found = f"{file}, row {row}: the group is {column[row].as_py()}"
            raise FieldError("group", f"{found}, neither a whole number nor text", GAP)
    return column


def numbered(source: str, columns: Sequence[Any]) -> Grouped:
    """The groups of all rows. columns: those of `group_column`, of each file of the source.

    Whole numbers are themselves, also as text ("3", not "007"); other text is the start of its
    digest. Raises FieldError if texts differ by spaces alone.
    """
    kinds = {column.type for column in columns}
    if all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in kinds):
        return Grouped(np.concatenate([column.to_numpy() for column in columns]).astype("i8"), {})
    texts = pa.concat_arrays([column.cast(pa.large_string()) for column in columns])
    texts = texts.dictionary_encode()
    words = texts.dictionary.to_pylist()
    known = set(words)
    for word in words:
        if word != (bare := word.strip()) and bare in known:
            found = f"'{word}' and '{bare}' differ by spaces alone"
            raise FieldError("group", f"{source}: {found}", "Make them one.")
    numbers = [_number(word) for word in words]
    names = {number: word for number, word in zip(numbers, words, strict=True)}
    names = {number: word for number, word in names.items() if str(number) != word}
    return Grouped(np.array(numbers, dtype=np.int64)[texts.indices.to_numpy()], names)


def numbered_parts(
    texts: Mapping[str, np.ndarray | None],
) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """The groups of each split as numbers, if there are any, and their names. texts: [N] each."""
    there = {name: found for name, found in texts.items() if found is not None}
    if not there:
        return {}, {}
    whole = numbered("", [pa.array(np.concatenate(list(there.values())).tolist())])
    ends = np.cumsum([len(found) for found in there.values()])
    return dict(zip(there, np.split(whole.numbers, ends[:-1]), strict=True)), whole.names


def check_several(source: str, found: Grouped, rows: np.ndarray) -> None:
    """Raise FieldError if these rows are all of one group."""
    groups = found.numbers[rows]
    if len(groups) and (groups == groups[0]).all():
        number = int(groups[0])
        name = found.names.get(number, str(number))
        mend = "Give several, or leave `group` out."
        raise FieldError("group", f"all samples of {source} are of one group, '{name}'", mend)


def groups_of_files(csv: str, root: str, files: Sequence[str]) -> np.ndarray:
    """[N] text: the group of each file, from a csv with `file` and `group`.

    files: all that are used, as paths below `root`. Raises FieldError if the csv does not name each
    of them once.
    """
    try:
        names, groups = _file_groups(Path(csv))
    except FieldError as error:
        raise error.at("group") from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        found = f"{csv} names {count_of(len(twice), 'files')} more than once, e.g. {twice[0]}"
        raise FieldError("group", found, "Keep one row of each.")
    group_of = dict(zip(names, groups, strict=True))
    lacking = [file for file in files if file not in group_of]
    used = set(files)
    absent = [name for name in names if name not in used and not (Path(root) / name).exists()]
    problems = []
    mends = []
    if lacking:
        problems.append(f"lacks {len(lacking):,} of {len(files):,} files, e.g. {lacking[0]}")
        mends.append(f"Give each file a row with its path below {root}.")
    if absent:
        count = count_of(len(absent), "files")
        problems.append(f"names {count} not in {root}, e.g. {absent[0]}")
        mends.append("Remove the rows of files that are not there, or correct them.")
    if problems:
        raise FieldError("group", f"{csv} {' and '.join(problems)}", " ".join(mends))
    texts = [group_of[file] for file in files]
    check_several(csv, numbered(csv, [pa.array(texts)]), np.arange(len(texts)))
    return np.array(texts)


def _file_groups(csv: Path) -> tuple[list[str], list[str]]:
    """The files that a csv names, and their groups."""
    if csv.is_dir():
        raise FieldError("group", f"{csv} is a folder", "Give a csv with `file` and `group`.")
    if not csv.exists():
        near = sorted(other.name for other in csv.parent.glob("*.csv"))
        raise FieldError("group", f"there is no {csv}", nearest(csv.name, near) if near else "")
    columns = CsvColumns(csv, memory(), text=(FILE, GROUP))
    names = columns.schema().names
    for column in (FILE, GROUP):
        check_column("group", csv, column, names)
    table = columns.read([FILE, GROUP])
    files = whole("group", FILE, FILL, csv, table[FILE]).to_pylist()
    groups = group_column(csv, table[GROUP], "Fill it.").to_pylist()
    return list(map(posixpath.normpath, files)), groups


def _number(word: str) -> int:
    """The number of a text, the same in every file."""
    digits = word.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 20:
        number = int(word)
        if str(number) == word and -(2**63) <= number < 2**63:
            return number
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _is_text(kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)
