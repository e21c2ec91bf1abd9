"""The documentation: generated pages are fresh, links lead somewhere, sentences are short."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = {DOCS / "reference" / name for name in ("python.md",)}
# Found by the markers of `make reference`.
MADE |= {page for page in DOCS.glob("reference/*.md") if "`make reference`" in page.read_text()}
WRITTEN = sorted(
    {
        *DOCS.rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        ROOT / "benchmarks" / "RESULTS.md",
    }
    - MADE
)
LONGEST = 30  # words of a sentence
# A value with its interval is one number: `.018 [.007, .030]`.
NUMBER = re.compile(r"(?<![\w./-])[+-]?\d*[.,]?\d[\d,.]*(?:%| \[[^\]]*\])?(?![\w-])")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def sentences(text: str) -> Iterator[str]:
    """Those outside code, tables, headings and what a script has filled in."""
    text = re.sub(r"<!-- (?!end)[^>]*-->.*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<[^>]*>", "", text, flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=[|#])|(?<=\|)\n", text)
    for block in blocks:
        block = re.sub(r"^\s*(?:[-*]|\d+\.|>) ", "", block.strip())
        if not block or block[0] in "|#!" or block.startswith(":::"):
            continue
        plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", block)
        plain = re.sub(r"`[^`]*`", "CODE", plain)
        yield from re.split(r"(?<=[.!?])[*_)\"]*\s+(?=[A-Z*\"(\[])", " ".join(plain.split()))


@pytest.mark.parametrize("page", WRITTEN, ids=names(WRITTEN))
def test_a_sentence_is_read_once(page: Path) -> None:
    long = []
    for each in sentences(page.read_text()):
        numbers = NUMBER.findall(each)
        if len(each.split()) > LONGEST or len(numbers) > 2:
            long.append(f"{len(each.split())} words, {len(numbers)} numbers: {each}")
    assert not long


def test_all_pages_are_short_enough_to_finish() -> None:
    """22,000 words, without what a script fills in."""
    made = r"<!-- (?!end)[^>]*-->.*?<!-- end -->"
    counts = {
        name: len(re.sub(made, "", page.read_text(), flags=re.DOTALL).split())
        for name, page in zip(names(WRITTEN), WRITTEN, strict=True)
    }
    assert sum(counts.values()) <= 22_000 and counts["README.md"] <= 900
    assert all(count <= 700 for name, count in counts.items() if name.startswith("docs/start/"))
    assert all(count <= 500 for name, count in counts.items() if name.startswith("docs/how-to/"))


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"])
def test_a_link_leads_to_a_file(page: Path) -> None:
    """`make docs` checks the headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", text)
    paths = [one or other for one, other in links if "://" not in (one or other)]
    assert [path for path in paths if not (page.parent / path).exists()] == []


def test_the_reference_is_what_the_code_says() -> None:
    """Else: `make reference`."""
    generated = runpy.run_path(str(DOCS / "generate.py"))["pages"]()
    assert {DOCS / "reference" / name for name in generated} == MADE - {
        DOCS / "reference" / "python.md"
    }
    stale = [
        name for name, text in generated.items() if (DOCS / "reference" / name).read_text() != text
    ]
    assert stale == []
