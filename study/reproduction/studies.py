"""The studies of a table, as asked: which network, how many seeds, whose data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.reproduction.claims import FEWEST_PAIRS
from study.reproduction.table import PaperTable, StudyEntry
from study.schema.errors import SpecError, located
from study.schema.reading import ParsedSpec, parse_mapping
from study.store.study import StudyFolder, reopened
from trainables.plain import Plain
from trainables.problems import FieldError, nearest

# Of the studies' own data, what other data keep.
KEPT = ("validation", "meta", "augment", "padding", "limit")
# Data sets whose name does not say which data they are: another path is other data.
OF_ANY_DATA = ("image_folder", "parquet", "table")


@dataclass(frozen=True)
class Asked:
    """How a table's studies are to be run.

    network: None where the table has none, and in a short form that keeps its own. option: of the
    table. data: in place of the studies' own.
    """

    table: PaperTable
    network: str | None = None
    short: bool = False
    option: str | None = None
    data: Mapping[str, Plain] | None = None
    seeds: int | None = None

    @classmethod
    def of(
        cls,
        table: PaperTable,
        network: str | None = None,
        short: bool = False,
        option: str | None = None,
        data: str | None = None,
        seeds: int | None = None,
    ) -> Asked:
        """What a user's words ask. Raises FieldError for a name that the table does not have."""
        if network is not None and network not in table.networks:
            raise _unknown("--network", network, table.networks, table)
        if network is None and table.networks and not short:
            network = next(iter(table.networks))
        if option is not None and option not in table.options:
            raise _unknown("--option", option, table.options, table)
        if short and not table.has_short:
            found = f"{table.name} has no short form"
            raise FieldError("--short", found, "Leave it out: the table takes minutes as it is.")
        given = None if data is None else _data_from(data)
        return cls(table, network, short, option, given, seeds)

    @property
    def published_network(self) -> str | None:
        """The network whose published numbers stand beside ours."""
        return self.network or next(iter(self.table.networks), None)

    def name_of(self, study: str) -> str:
        """The name under which a study is run: what is not as in its file is in it."""
        parts = [study]
        is_first = self.network is not None and self.network == next(iter(self.table.networks))
        if self.network is not None and (self.short or not is_first):
            parts.append(self.network)
        if self.option is not None:
            parts.append(self.option)
        if self.data is not None:
            parts.append(f"on_{_stem(self.data)}")
        if self.short:
            parts.append("short")
        return "_".join(parts)

    def parsed(self, entry: StudyEntry, root: Path) -> ParsedSpec:
        """One of the table's studies. root: the storage. Raises SpecError."""
        file = self.table.spec_file(entry.name, self.short)
        with located(file.name):
            plain = strict_yaml.read(file)
            if not isinstance(plain, dict):
                raise FieldError("", "must be a study", "See `calstudy plan --explain`.")
            plain = _renamed(plain, self._names())
            plain["name"] = self.name_of(entry.name)
            if self.network is not None and entry.seeds is None:
                plain["model"] = self.table.networks[self.network].model
            if self.option is not None:
                for path, value in self.table.options[self.option].values.items():
                    _set(plain, path, value)
            plain["data"] = self._data(plain.get("data"))
            stored = reopened(root / plain["name"], None)
            plain["trials"] = self._seeds(entry, plain, stored)
            # Seeds that are added are then those of all at once, to the bit.
            plain.setdefault("stack", "off")
        return parse_mapping(plain, file.name, file.parent)

    def _names(self) -> dict[str, str]:
        """The names that a spec's targets may begin with, and what these studies are called now."""
        found = {}
        for entry in self.table.studies:
            written = f"{entry.name}_short" if self.short else entry.name
            found[written] = self.name_of(entry.name)
        return found

    def _seeds(
        self, entry: StudyEntry, plain: Mapping[str, Any], stored: StudyFolder | None
    ) -> int:
        """As asked, else enough to judge a claim; never fewer than the study has."""
        if entry.seeds is not None:
            return entry.seeds
        own = int(plain.get("trials", 1))
        usual = own if self.short else max(own, FEWEST_PAIRS)
        return max(self.seeds or usual, 0 if stored is None else stored.planned)

    @cached_property
    def other_data(self) -> str | None:
        """What was given in place of the studies' own data; None: their own, maybe elsewhere."""
        file = self.table.spec_file(self.table.studies[-1].name, self.short)
        with located(file.name):
            own = _settings(strict_yaml.read(file).get("data"))
        now = _settings(self._data(dict(own)))
        is_elsewhere = now.get("path") != own.get("path")
        if now["name"] != own["name"] or (is_elsewhere and now["name"] in OF_ANY_DATA):
            return Path(str(now.get("path") or now["name"])).name
        changed = {key: now[key] for key in now if key != "path" and now[key] != own.get(key)}
        if not changed:
            return None
        return ", ".join([str(now["name"]), *(f"{key}: {changed[key]}" for key in changed)])

    def _data(self, own: Plain) -> Plain:
        """The data of a study: its own, maybe elsewhere, or others, which keep its splits and what
        it does with images."""
        if self.data is None:
            return own
        settings = _settings(own)
        name = self.data.get("name") or _kind_of(str(self.data["path"]), settings)
        if name == settings["name"]:
            return {**settings, **self.data, "name": name}
        kept = {key: value for key, value in settings.items() if key in KEPT}
        return {**kept, **self.data, "name": name}


@contextmanager
def located_data(asked: Asked, entry: StudyEntry) -> Iterator[None]:
    """Errors of the data name --data if that was given, else say how to get what is missing."""
    try:
        yield
    except SpecError as error:
        first, _, rest = error.path.partition(".")
        if asked.data is not None and first == "data":
            raise SpecError("--data", rest, error.found, error.mend) from None
        if asked.data is not None and first == "model":
            raise SpecError("--data", "", error.found, "Give data of the paper's kind.") from None
        if error.path != "data.path":
            raise
        head = f"How to get the data: {asked.table.spec_file(entry.name, short=False)}."
        mend = f"{error.mend} {head} If they are elsewhere, give --data PATH.".strip()
        raise SpecError(error.file_name, error.path, error.found, mend) from None


def check_classes(asked: Asked, classes: int) -> None:
    """Raise FieldError if the data have another number of classes than the paper's."""
    wanted = asked.table.classes
    if wanted is not None and classes != wanted:
        if asked.data is None:
            found = f"is {wanted}, and the data have {classes}"
            raise SpecError(asked.table.file.name, "classes", found, f"Write {classes}.")
        found = f"has {classes} classes, and the table is of {wanted}"
        raise FieldError("--data", found, "Give data with as many.")


def _unknown(field: str, found: str, known: Mapping[str, object], table: PaperTable) -> FieldError:
    if not known:
        return FieldError(field, f"{table.name} has none", "Leave it out.")
    return FieldError(field, f"{table.name} has no '{found}'", nearest(found, known))


# ---- other data ----------------------------------------------------------------------------------


def _data_from(text: str) -> dict[str, Plain]:
    """A path, or settings as in a study: `{name: parquet, path: FILE}`."""
    if not text.lstrip().startswith("{"):
        return {"path": str(Path(text).expanduser().absolute())}
    with located("--data"):
        plain = strict_yaml.parse(text)
    if not isinstance(plain, dict) or "name" not in plain:
        found = "has no `name`" if isinstance(plain, dict) else "is no mapping"
        raise SpecError("--data", "", found, "Write {name: parquet, path: FILE}, or a path.")
    if isinstance(path := plain.get("path"), str):
        plain["path"] = str(Path(path).expanduser().absolute())
    return plain


def _settings(data: Plain) -> Mapping[str, Plain]:
    return data if isinstance(data, Mapping) else {"name": data}


def _kind_of(path: str, own: Mapping[str, Plain]) -> Plain:
    """The data set of a path: a folder is that of the study; a file is rows, or images."""
    if not Path(path).suffix or Path(path).is_dir():
        return own["name"]
    return "table" if own["name"] == "table" or not path.endswith(".parquet") else "parquet"


def _stem(data: Mapping[str, Plain]) -> str:
    """A word for other data, in a study's name; settings of their own make another."""
    source = str(data.get("path") or data["name"])
    stem = re.sub(r"[^a-z0-9]+", "_", Path(source).stem.lower()).strip("_")
    if data.keys() <= {"name", "path"}:
        return stem
    settings = json.dumps(data, sort_keys=True, default=str)
    return f"{stem}_{hashlib.sha256(settings.encode()).hexdigest()[:6]}"


# ---- plain values --------------------------------------------------------------------------------


def _renamed(plain: Any, names: Mapping[str, str]) -> Any:
    """The values with `STUDY/LABEL/NUMBER` of the table's studies under their present names."""
    if isinstance(plain, dict):
        return {key: _renamed(value, names) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_renamed(value, names) for value in plain]
    if isinstance(plain, str) and "/" in plain:
        study, _, trial = plain.partition("/")
        return f"{names.get(study, study)}/{trial}"
    return plain


def _set(plain: dict[str, Any], path: str, value: Plain) -> None:
    """Write a value at a path such as `optimizer.steps`."""
    *above, last = path.split(".")
    for key in above:
        plain = plain.setdefault(key, {})
    plain[last] = value
