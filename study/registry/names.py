"""What a registered model and its alias may be called: MLflow's rules, asked before any work."""

from __future__ import annotations

import re

from trainables.problems import UserError


class ExportError(UserError):
    """A model that was not registered: one line with the reason and the fix."""


def check_names(name: str, alias: str | None) -> None:
    """Reject early what the registry would reject after the upload."""
    is_path = name.startswith("..") or name == "."
    if not name.strip() or is_path or set(name) & set("/:@?%") or not name.isprintable():
        raise ExportError(
            f"Invalid model name {name!r}",
            "It must not be empty, be a path, or contain any of / : @ ? % or a line break.",
        )
    if alias is None:
        return
    if not re.fullmatch(r"[\w-]{1,255}", alias):
        raise ExportError(
            f"Invalid alias '{alias}'", "Use at most 255 letters, digits, '_' and '-'."
        )
    if re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise ExportError(
            f"Invalid alias '{alias}'", "MLflow reserves 'latest' and names such as 'v1'."
        )
