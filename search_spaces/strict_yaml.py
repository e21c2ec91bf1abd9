"""Strict YAML: the core schema of YAML 1.2, without duplicate keys.

YAML 1.1 reads `1e-3` as text, `010` as eight and `no` as false, and of a duplicate key silently
drops the first.
"""

import os
import re
import stat
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from trainables.files.nearest_file import nearest_file, no_such_file
from trainables.problems import FieldError

# A handwritten file is far below these; a study's own may name twenty thousand classes.
MOST_BYTES = 2_000_000
MOST_VALUES = 100_000  # with aliases expanded, which can multiply without bound
MOST_LEVELS = 100
ENDINGS = (".yaml", ".yml")
LARGEST_INTEGER = 2**63
# Of a tab or a question mark within a word, a tag, a byte order mark and a comment right behind a
# text block's sign the two parsers make different things.
UNLIKE = ("\t", "?", "!", "\ufeff", "|#", ">#")

_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = {
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?[0-9]+", [*"-+0123456789"]),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    "merge": (r"<<", ["<"]),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's own parser: its messages are the clearer ones."""


class _QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's parser, where PyYAML has it: seven times as fast."""


class _Dumper(yaml.SafeDumper):
    """It writes every character as it is."""


class _QuickDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's: six times as fast."""


for _class in (_Loader, _QuickLoader, _Dumper, _QuickDumper):
    _class.yaml_implicit_resolvers = {}
    for _kind, (_pattern, _first) in _CORE_SCHEMA.items():
        _class.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$"), _first)
# Words that a reader of YAML 1.1 would take for true or false are quoted.
for _writer in (_Dumper, _QuickDumper):
    _writer.add_implicit_resolver(
        f"{_TAG}bool", re.compile(r"^(?:yes|no|on|off)$", re.IGNORECASE), [*"yYnNoO"]
    )


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    number = int(loader.construct_scalar(node))
    if abs(number) >= LARGEST_INTEGER:
        raise ValueError("an integer of more than 63 bits")
    return number


for _reader in (_Loader, _QuickLoader):
    _reader.add_constructor(f"{_TAG}int", _integer)


def read(path: Path) -> Any:
    """The plain values in a file. Raises FieldError if it is missing, no text or no YAML."""
    return parse(read_text(path))


def read_text(path: Path) -> str:
    """A file's text. Raises FieldError if it is missing, too large or no text."""
    try:
        # At once, even a pipe that nobody writes.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FieldError("", "is no regular file; a pipe or a device is not read")
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise FieldError(
                "",
                f"is larger than {MOST_BYTES / 1e6:g} MB, the limit of a YAML file",
                "Is it one?",
            )
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise FieldError("", no_such_file(path), nearest_file(path, ENDINGS)) from None
    except IsADirectoryError:
        raise FieldError("", f"{path} is a folder", "Give the file.") from None
    except UnicodeDecodeError:
        raise FieldError("", "is not UTF-8 text") from None
    except OSError as error:
        raise FieldError("", f"cannot be read: {error.strerror}") from None


def parse(text: str) -> Any:
    """The plain values in a text; None if empty. Raises FieldError with the line or the key."""
    try:
        if not any(mark in text for mark in UNLIKE):
            with suppress(yaml.YAMLError):
                return _parsed(text, _QuickLoader)
        return _parsed(text, _Loader)
    except yaml.MarkedYAMLError as error:
        where = ""
        if mark := error.problem_mark:
            where = f" (line {mark.line + 1}, column {mark.column + 1})"
        raise FieldError("", f"is not YAML: {error.problem}{where}") from None
    except yaml.YAMLError:
        raise FieldError("", "is not YAML: it contains non-printable characters") from None
    except ValueError as error:
        if isinstance(error, FieldError):
            raise
        raise FieldError("", f"cannot be read: it contains {error}") from None


def _parsed(text: str, kind: type[yaml.SafeLoader]) -> Any:
    _check_size(text, kind)
    loader = kind(text)
    node = loader.get_single_node()
    if node is None:
        return None
    _check_keys(node)
    return loader.construct_document(node)


def _check_size(text: str, kind: type[yaml.SafeLoader]) -> None:
    """Refuses a file as soon as it is known to be too large: to read on may take minutes."""
    nodes = levels = 0
    for event in yaml.parse(text, Loader=kind):
        if isinstance(event, yaml.CollectionEndEvent):
            levels -= 1
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > 2 * MOST_VALUES:
                raise FieldError("", f"contains more than {MOST_VALUES} values")
            if levels == MOST_LEVELS:
                raise FieldError("", f"is nested more than {MOST_LEVELS} levels deep")
            levels += isinstance(event, yaml.CollectionStartEvent)


def dump(plain: Any, **style: Any) -> str:
    """YAML text that `parse` reads back as the same values, in key order. style: as PyYAML's."""
    style |= {"sort_keys": False, "allow_unicode": True}
    text: str = yaml.dump(plain, Dumper=_QuickDumper, **style)
    if "\\U" in text:  # libyaml's word for an emoji
        text = yaml.dump(plain, Dumper=_Dumper, **style)
    return text


def one_line(plain: Any) -> str:
    """A value as one line of YAML: `{low: 0.0, high: 5.0}`."""
    return dump(plain, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def _check_keys(root: yaml.Node) -> None:
    """Reject duplicate keys, keys that are not text, and NUL characters."""
    waiting = [("", root)]
    seen = 0
    while waiting:
        path, node = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise FieldError(
                "", f"contains more than {MOST_VALUES} values; an alias (*) may be recursive"
            )
        if isinstance(node, yaml.SequenceNode):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(node.value)]
        # Written as "\\0"; no path or name may have it.
        if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
            raise FieldError(path, "has a NUL character", "Remove it.")
        if not isinstance(node, yaml.MappingNode):
            continue
        lines: dict[Hashable, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
                raise FieldError(
                    path, f"the key in line {line} must be text; if it is, put it in quotes"
                )
            inner = f"{path}.{key.value}" if path else key.value
            if key.value in lines:
                raise FieldError(
                    inner, f"is defined twice (lines {lines[key.value]} and {line})", "Keep one."
                )
            lines[key.value] = line
            waiting.append((inner, value))
