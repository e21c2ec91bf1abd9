"""Plain values: what YAML and JSON hold, before it is read into a type or after it is written."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | None
Plain: TypeAlias = Value | Sequence["Plain"] | Mapping[str, "Plain"]
