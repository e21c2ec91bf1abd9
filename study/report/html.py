"""The report page: template, style, script and data in one self-contained file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from trainables.files.atomic import write_whole
from trainables.problems import FieldError

# The scripts of the page, in their order.
SCRIPTS = (
    "dom.js",
    "share.js",
    "glossary.js",
    "front.js",
    "reliability.js",
    "tables.js",
    "confirmation.js",
    "page.js",
)

FIRST = "first_screen.css"
# What is HTML already.
MADE = ("first", "drawings")
LONGEST = 2_000_000  # characters of JSON; a page of 10,000 trials has about 19 million


def render(page: Mapping[str, Any]) -> str:
    """The HTML of what `page_data.gather_page` returned. A study's `first` is its first screen and
    its `drawings` are its figures, both HTML.

    The policy admits only the page's own style and script, by digest. Study content is data in a
    block that never runs; the script inserts it as text.
    """
    script = "\n".join(['"use strict";', *(_part(name) for name in SCRIPTS)])
    style = _part(FIRST) + _part("page.css")
    names = ", ".join(study["name"] for study in page["studies"])
    made = "".join(_made(study, f"study-{place}") for place, study in enumerate(page["studies"], 1))
    # Of maps, which are in the data, and of figures of many points.
    with_images = any(study.get("maps") for study in page["studies"]) or "<image " in made
    images = " img-src data:;" if with_images else ""
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}';{images}"
        " base-uri 'none'; form-action 'none'"
    )
    page = {**page, "studies": [{**study, **dict.fromkeys(MADE)} for study in page["studies"]]}
    parts = {
        "made": made,
        "title": html.escape(f"{names}: study report"),
        "policy": policy,
        "style": style,
        "script": script,
        **_data(json.dumps(page, allow_nan=False, separators=(",", ":"))),
    }
    # One pass: inserted text is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


def alone(screen: str) -> str:
    """A first screen outside the page, in a notebook's output: with its style."""
    return f"<style>{_part(FIRST)}{_part('notebook.css')}</style>{screen}"


def write_page(
    file: Path, page: Mapping[str, Any], write: Callable[[Path, bytes], object] = write_whole
) -> None:
    """Write `render`. Raises FieldError if its folder is gone: a study that was deleted stays so.

    write: `write_output` for a file that a user named.
    """
    text = render(page)
    if not file.parent.is_dir():
        raise FieldError(str(file), "its folder is no longer there; was the study deleted?")
    write(file, text.encode())


def _made(study: Mapping[str, Any], page_id: str) -> str:
    """What of a study is HTML; the script puts it into its places."""
    sections = "".join(
        f'<section id="{page_id}-{part}" aria-label="{heading}"><h3>{heading}</h3>'
        f'<figure class="drawn">{svg}</figure></section>'
        for part, heading, svg in study.get("drawings") or ()
    )
    first = f'<div id="{page_id}-first">{study["first"]}</div>' if study.get("first") else ""
    return f'{first}<div id="{page_id}-drawings">{sections}</div>'


def _data(text: str) -> dict[str, str]:
    """The block of the page's data and its type: compressed if it is longer than `LONGEST`."""
    if len(text) > LONGEST:
        packed = gzip.compress(text.encode(), 6, mtime=0)
        return {"type": "application/gzip", "data": base64.b64encode(packed).decode()}
    # In JSON a `<` is only inside strings; escaped, no `</script>` or `<!--` takes effect.
    return {"type": "application/json", "data": text.replace("<", "\\u003c")}


def _part(name: str) -> str:
    return (resources.files("study.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The text's digest, in Content-Security-Policy syntax."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
