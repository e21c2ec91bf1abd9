"""One small fault in a text file, by seed: of a byte, a line, or a value."""

import json
import random
from collections.abc import Callable
from typing import Any

# What stands for another value: of every type of JSON, empty, huge, of no number.
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 3, 99, 0.5, 10**400, 10**18, -(10**18), 1e400, float("nan"), "",
    "x", "../..", "\n", "2026-11-22T00:00:00", "9" * 5000, [], [[]], [1, "x"], {}, {"x": 1},
    {"name": "FloatDistribution"},
]  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside nested mappings and lists."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, item in inner for place in [(*path, key), *_places(item, (*path, key))]]


def _parent(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        value = value[key]
    return value


def change_value(plain: Any, random: random.Random) -> None:
    """Put another value in one place, or remove it, or rename its key."""
    place = random.choice(_places(plain))
    parent, key = _parent(plain, place), place[-1]
    how = random.random()
    if how < 0.25:
        del parent[key]
    elif how < 0.35 and isinstance(parent, dict):
        parent[random.choice(["x", "", "0"])] = parent.pop(key)
    else:
        parent[key] = random.choice(STRANGE)


def _flip(line: bytes, random: random.Random) -> bytes:
    at = random.randrange(len(line))
    return line[:at] + bytes([line[at] ^ (1 << random.randrange(8))]) + line[at + 1 :]


def _cut(line: bytes, random: random.Random) -> bytes:
    return line[: random.randrange(len(line))]


def _double(line: bytes, random: random.Random) -> bytes:
    return line + random.choice([b"", b"\n"]) + line


def _noise(line: bytes, random: random.Random) -> bytes:
    return random.choice(
        [random.randbytes(40), b"\0" * 512, b"[" * 5000, b"{}", b"7", b"null", b'"x"', b""]
    )


def _other_value(line: bytes, random: random.Random) -> bytes:
    plain = json.loads(line)
    change_value(plain, random)
    return json.dumps(plain, separators=(",", ":")).encode()


HOW: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _cut,
    _double,
    _noise,
    *[_other_value] * 6,
]


def mutated_lines(content: bytes, seed: int) -> bytes:
    """The lines with one of them changed; each is JSON."""
    chance = random.Random(seed)
    lines = content.splitlines()
    at = len(lines) - 1 if chance.random() < 0.2 else chance.randrange(len(lines))
    lines[at] = chance.choice(HOW)(lines[at], chance)
    return b"\n".join(lines) + b"\n"
