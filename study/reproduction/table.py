"""A paper's table: which label of which study is which row, and what the paper printed.

A file `NAME.table.yaml` beside its studies. Reading one checks it, but imports no torch: what needs
the studies themselves is `check_labels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import strict_yaml
from study.reproduction.plain_values import (
    check_name,
    list_of,
    mapping_at,
    mapping_of,
    number_at,
    number_of,
    record_of,
    words_of,
)
from study.schema.errors import check_keys, located, under
from trainables.fields import Settings, check_value, choice, number, setting
from trainables.metrics import described
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    from study.schema.spec import StudySpec

FOLDER = Path(__file__).parents[1] / "specs" / "papers"
ENDING = ".table.yaml"
AFTER = ("nll", "ece_grid")
# What a temperature has none of before it is fitted.
OF_A_TEMPERATURE = ("temperature", "temperature_distance")
OF_WRONG_AND_RIGHT = ("nll_wrong", "nll_right")
RULE_OF_TATA = "sample_prioritization"  # of ECE, in their released code
EVERY_NETWORK = "all"  # the key of `published` in a table without networks


@dataclass(frozen=True)
class StudyEntry(Settings):
    """A study that the table needs."""

    name: str = setting(doc="of the spec beside the table's file")
    seeds: int | None = number(None, low=1, doc="fixes their number; such a study has no rows")


@dataclass(frozen=True)
class NetworkEntry(Settings):
    """A network of the table: in place of the studies' own."""

    model: str | dict[str, Any] = setting(doc="as in a study")
    hours: float | None = number(
        None, above=0, doc="estimate: of one H100, for one seed of all rows"
    )


@dataclass(frozen=True)
class Option(Settings):
    """Values of the studies that differ if the option is given."""

    what: str = setting(doc="what it changes, in words")
    values: dict[str, Any] = setting(doc="values by path")


@dataclass(frozen=True)
class Column(Settings):
    """A column: what is measured, and how it is printed."""

    name: str = setting()
    metric: str = setting(doc="a metric, a public rule of one, or a value of a temperature")
    after: str | None = choice(None, *AFTER, doc="after which temperature; null: as trained")
    percent: bool = setting(False, doc="printed in percent")
    digits: int = number(2, low=0, doc="printed decimals, of the table's unit")
    step: float | None = number(None, above=0, doc="of a grid that values lie on")


@dataclass(frozen=True)
class Row(Settings):
    """A row: a label of a study."""

    name: str = setting()
    label: str = setting()
    study: str = setting()
    after: str | None = choice(
        None, *AFTER, doc="the temperature of columns that are as trained elsewhere"
    )


@dataclass(frozen=True)
class Claim(Settings):
    """A sentence of the paper as a direction: a row's column lies below, or above, another."""

    says: str = setting(doc="the sentence")
    column: str = setting()
    than: str | float = setting(doc="a row, or a number in the unit of the metric")
    lower: str | None = setting(None, doc="the row that is lower")
    higher: str | None = setting(None, doc="the row that is higher")

    @property
    def row(self) -> str:
        """The row that the sentence is about."""
        return self.lower or self.higher or ""


@dataclass(frozen=True)
class PaperTable:
    """A table file, checked. published: by network (or `all`), row and column, as printed."""

    name: str
    file: Path
    title: str
    source: str
    studies: tuple[StudyEntry, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    networks: dict[str, NetworkEntry] = field(default_factory=dict)
    hours: float | None = None
    classes: int | None = None
    runs: int | None = None
    options: dict[str, Option] = field(default_factory=dict)
    published: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()

    def published_at(self, network: str | None, row: str, column: str) -> float | None:
        """What the paper printed, in the table's unit; None if nothing."""
        of_rows = self.published.get(network or EVERY_NETWORK, {})
        return of_rows.get(row, {}).get(column)

    def spec_file(self, study: str, short: bool) -> Path:
        """The file of a study of the table, or of its short form."""
        return self.file.parent / f"{study}{'_short' if short else ''}.yaml"

    @property
    def has_short(self) -> bool:
        """Whether each of its studies has a short form."""
        return all(self.spec_file(study.name, True).is_file() for study in self.studies)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def hours_of(self, network: str | None) -> float | None:
        """The estimate for one seed of all rows, in hours of one H100."""
        return self.networks[network].hours if network else self.hours


KEYS = [spec.name for spec in fields(PaperTable) if spec.name not in ("name", "file")]
REMOVED = {"uncertain", "unknown"}
REQUIRED = ("title", "source", "studies", "columns", "rows")


# ---- which tables there are ----------------------------------------------------------------------


def packaged_tables() -> dict[str, Path]:
    """The files of calstudy's own tables, by name."""
    return {name_of(file): file for file in sorted(FOLDER.glob(f"*{ENDING}"))}


def name_of(file: Path) -> str:
    """A table's name, from its file's."""
    return file.name.removesuffix(ENDING) if file.name.endswith(ENDING) else file.stem


def trainings_of(table: PaperTable) -> int:
    """How many networks are trained for one seed."""
    return sum(
        len(strict_yaml.read(table.spec_file(study.name, short=False))["methods"])
        for study in table.studies
    )


def find_table(reference: str) -> Path:
    """The file of a table: one of calstudy's by name, or a path. Raises FieldError."""
    packaged = packaged_tables()
    if reference in packaged:
        return packaged[reference]
    path = Path(reference).expanduser()
    if path.suffix in (".yaml", ".yml") or path.name != reference:
        if path.is_dir():
            raise FieldError("", f"{reference} is a folder", f"Name a file in it, NAME{ENDING}.")
        if not path.is_file():
            mend = "`calstudy reproduce` lists the tables of the papers."
            raise FieldError("", f"there is no file {reference}", mend)
        return path
    mend = nearest(reference, packaged)
    if Path(f"{reference}{ENDING}").is_file():
        mend = f"For your own, write {reference}{ENDING}."
    raise FieldError("", f"there is no table '{reference}'", mend)


# ---- reading one ---------------------------------------------------------------------------------


def read_table(file: Path) -> PaperTable:
    """The table in a file. Raises SpecError for any mistake but those of `check_labels`."""
    with located(file.name):
        plain = strict_yaml.read(file)
        if isinstance(plain, Mapping):
            for key in REMOVED & plain.keys():
                raise FieldError(key, "is no key any more", "Write it as a sentence under `notes`.")
        check_keys(plain, "table", KEYS, REQUIRED)
        return _parsed(plain, file)


def _parsed(plain: Mapping[str, Any], file: Path) -> PaperTable:
    networks = {
        name: record_of(NetworkEntry, entry, f"networks.{name}")
        for name, entry in mapping_of(plain, "networks").items()
    }
    hours = number_of(plain, "hours", float)
    if networks and hours is not None:
        mend = "Write the hours of each network."
        raise FieldError("hours", "is given together with `networks`", mend)
    studies = _studies(plain, file)
    columns = tuple(
        _column(name, entry) for name, entry in mapping_of(plain, "columns", least=1).items()
    )
    rows = _rows(plain, studies)
    known = Known(
        tuple(networks),
        tuple(row.name for row in rows),
        tuple(column.name for column in columns),
    )
    return PaperTable(
        name=name_of(file),
        file=file,
        title=words_of(plain, "title"),
        source=words_of(plain, "source"),
        studies=studies,
        columns=columns,
        rows=rows,
        networks=networks,
        hours=hours,
        classes=number_of(plain, "classes", int),
        runs=number_of(plain, "runs", int),
        options={
            name: record_of(Option, entry, f"options.{name}")
            for name, entry in mapping_of(plain, "options").items()
        },
        published=_published(plain, known),
        notes=tuple(_notes(plain)),
        claims=tuple(_claims(plain, known)),
    )


@dataclass(frozen=True)
class Known:
    """The names that other parts of the file may use."""

    networks: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def _studies(plain: Mapping[str, Any], file: Path) -> tuple[StudyEntry, ...]:
    found: list[StudyEntry] = []
    for place, entry in enumerate(list_of(plain, "studies", least=1)):
        where = f"studies[{place}]"
        study = record_of(StudyEntry, entry, where)
        if study.name in [other.name for other in found]:
            raise FieldError(f"{where}.name", f"'{study.name}' is listed twice", "Remove one.")
        if not (file.parent / f"{study.name}.yaml").is_file():
            raise FieldError(
                f"{where}.name",
                f"there is no {study.name}.yaml next to this file",
                "A table lies in the folder of its studies.",
            )
        found.append(study)
    return tuple(found)


def _column(name: str, entry: object) -> Column:
    column = record_of(Column, entry, f"columns.{name}", name=name)
    if column.metric in OF_A_TEMPERATURE and column.after is None:
        raise FieldError(
            f"columns.{name}.after",
            f"is missing: {column.metric} is of a temperature",
            f"Write {' or '.join(AFTER)}.",
        )
    return column


def _rows(plain: Mapping[str, Any], studies: tuple[StudyEntry, ...]) -> tuple[Row, ...]:
    of_rows = [study.name for study in studies if study.seeds is None]
    found: list[Row] = []
    for place, entry in enumerate(list_of(plain, "rows", least=1)):
        where = f"rows[{place}]"
        if isinstance(entry, Mapping) and "study" not in entry and len(of_rows) == 1:
            entry = {**entry, "study": of_rows[0]}
        row = record_of(Row, entry, where)
        if row.name in [other.name for other in found]:
            raise FieldError(f"{where}.name", f"there are two rows '{row.name}'", "Rename one.")
        if row.study not in of_rows:
            found_at = f"'{row.study}' is no study of rows"
            raise FieldError(f"{where}.study", found_at, nearest(row.study, of_rows))
        found.append(row)
    return tuple(found)


def _published(plain: Mapping[str, Any], known: Known) -> dict[str, dict[str, dict[str, float]]]:
    networks = known.networks or (EVERY_NETWORK,)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for network, of_rows in mapping_of(plain, "published").items():
        where = f"published.{network}"
        if network in known.rows and not known.networks:
            mend = f"Without networks, list rows under `{EVERY_NETWORK}:`."
            raise FieldError(where, f"'{network}' is a row", mend)
        check_name(where, network, networks, "network")
        found[network] = {}
        for row, cells in mapping_at(where, of_rows).items():
            at = f"{where}.{row}"
            check_name(at, row, known.rows, "row")
            found[network][row] = {}
            for column, value in mapping_at(at, cells).items():
                check_name(f"{at}.{column}", column, known.columns, "column")
                found[network][row][column] = number_at(f"{at}.{column}", value)
    return found


def _claims(plain: Mapping[str, Any], known: Known) -> Iterator[Claim]:
    for place, entry in enumerate(list_of(plain, "claims")):
        where = f"claims[{place}]"
        claim = record_of(Claim, entry, where)
        if (claim.lower is None) == (claim.higher is None):
            raise FieldError(where, "needs one of `lower` and `higher`", "Name a row there.")
        side = "lower" if claim.lower is not None else "higher"
        check_name(f"{where}.{side}", claim.row, known.rows, "row")
        check_name(f"{where}.column", claim.column, known.columns, "column")
        if isinstance(claim.than, str):
            check_name(f"{where}.than", claim.than, known.rows, "row")
        if claim.than == claim.row:
            raise FieldError(f"{where}.than", f"is '{claim.than}' itself", "Name another row.")
        yield claim


def _notes(plain: Mapping[str, Any]) -> Iterator[str]:
    for place, note in enumerate(list_of(plain, "notes")):
        if not isinstance(note, str):
            raise FieldError(f"notes[{place}]", f"must be text, got {note!r}")
        yield note


# ---- against the studies -------------------------------------------------------------------------


def check_labels(table: PaperTable, specs: Mapping[str, StudySpec]) -> None:
    """What needs the studies: labels of rows, metrics, networks, and paths of options.

    specs: by name in the table. Imports torch. Raises SpecError of the table's file.
    """
    from trainables.config import build
    from trainables.model import Model

    metrics = [*described(), *OF_A_TEMPERATURE, *OF_WRONG_AND_RIGHT, RULE_OF_TATA]
    with located(table.file.name):
        for place, row in enumerate(table.rows):
            labels = [variant.label for variant in specs[row.study].variants]
            check_name(f"rows[{place}].label", row.label, labels, "label")
        for column in table.columns:
            check_name(f"columns.{column.name}.metric", column.metric, metrics, "metric")
        for name, network in table.networks.items():
            with under(f"networks.{name}.model"):
                build(Model, network.model)
        for name, option in table.options.items():
            with under(f"options.{name}.values"):
                _check_option(option, specs.values())


def _check_option(option: Option, specs: Iterable[StudySpec]) -> None:
    """Each of its values is one of every study's trials."""
    from trainables.config import owner_of

    for spec in specs:
        trial = spec.trial(spec.variants[0].label)
        for path, value in option.values.items():
            owner, of = owner_of(trial, path)
            with under(path.rpartition(".")[0]):
                check_value(type(owner), of, value)
