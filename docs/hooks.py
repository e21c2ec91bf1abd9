"""For MkDocs: a link to a file beside docs/ is its path, since the site holds docs/ alone."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **rest: object) -> str:
    def shown(link: re.Match[str]) -> str:
        folder = posixpath.dirname(page.file.src_uri)
        path = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if path.startswith("docs/"):
            return link[0]
        return f"{link[1]} (`{path}`)"

    return LINK.sub(shown, markdown)
