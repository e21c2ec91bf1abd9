"""The page's figures that a reader only looks at: those of `calstudy figures`, as SVG."""

from __future__ import annotations

import html
import io
import re
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from study.report.figure_set import FIGURES, Gallery
from study.report.style import DPI, lay_out, our_settings
from trainables.problems import FieldError

# Of each figure its section on the page and that section's heading.
SECTIONS = {
    "hypervolume": ("growth", "Hypervolume"),
    "learning": ("learning", "Learning curves"),
    "entropy": ("entropy", "Entropy of correct and wrong samples"),
    "norms": ("norms", "Norms"),
    "gamma": ("gamma", "Gamma"),
    "hyperparameters": ("searched", "Searched values"),
}
# matplotlib's colours, and the page's own for them: black follows from the text.
PAGE_COLOURS = {
    "#000000": "currentColor",
    "#ffffff": "none",
    "#e6e6e6": "var(--rule)",
    "#bfbfbf": "var(--count)",
    "#4c4c4c": "var(--soft)",
}


class Drawing(NamedTuple):
    """A section of the page. svg: its figures, one SVG element after another."""

    part: str
    heading: str
    svg: str


@our_settings()
def drawings(gallery: Gallery) -> tuple[list[Drawing], list[str]]:
    """The figures that the study allows, and notes on what is left out of them."""
    made = []
    for name, (part, heading) in SECTIONS.items():
        try:
            found = "".join(inlined(figure) for _, figure in FIGURES[name](gallery))
        except FieldError:  # it has none of these
            continue
        made.append(Drawing(part, heading, found))
    return made, [f"No learning curve: {reason}" for reason in gallery.absent]


def inlined(figure: Figure | bytes) -> str:
    """A figure as an SVG element: in the page's colours and font, without style attributes, which
    its policy refuses, and with those ids alone that it refers to."""
    assert isinstance(figure, Figure)
    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "page"}):
        lay_out(figure)
        figure.savefig(drawn, dpi=DPI, format="svg", metadata={"Date": None})
    whole = drawn.getvalue()
    body = whole[whole.index("</defs>") + len("</defs>") :]  # the first holds a style element
    body = re.sub(r'style="([^"]*)"', lambda found: _attributes(found[1]), body)
    used = set(re.findall(r"#(\w+)", body))
    body = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", body)
    body = re.sub(r' (?:x|y|d)="[^"]*"', lambda found: _to_hundredths(found[0]), body)
    body = re.sub(r"\s+", " ", body).replace("xlink:href", "href")
    label = html.escape(" ".join(figure.get_supxlabel().split()))
    (box,) = re.findall(r'viewBox="[^"]*"', whole)
    return (
        f'<svg class="fixed" {box} role="img" aria-label="{label}" fill="currentColor"'
        f' stroke-linejoin="round">{body}'
    )


def _to_hundredths(places: str) -> str:
    """Of a point: a page of ten thousand trials is a megabyte shorter."""
    return re.sub(r"(\.\d\d)\d+", r"\1", places)


def _attributes(style: str) -> str:
    """`fill: #ffffff; stroke-width: 2` as attributes; the font's name is the page's affair."""
    settings = (setting.partition(": ") for setting in style.split("; "))
    return " ".join(
        f'{name}="{PAGE_COLOURS.get(value, value)}"'
        for name, _, value in settings
        if name != "font-family"
    )
