"""Blocks of code of a page, for the tests that run them."""

import re
from pathlib import Path


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
