"""Every command that README, docs and benchmarks name, in its smallest form: known, with
the options it is given.

Nothing is run but `scale.py --part ask`, which once crashed: a command line is parsed by
the real parser, then left.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from study.cli import calstudy
from tests.patience import patient

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "RESULTS.md",
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PROGRAMS = ("calstudy", "python", "make")
# What stands for a value of its own, where only some values are valid.
VALUES = {"MODEL": "cnn"}
PARSE = """
import argparse, json, runpy, sys, traceback

class Parsed(BaseException):
    pass

def parse(parser, arguments=None, namespace=None, real=argparse.ArgumentParser.parse_args):
    raise Parsed(real(parser, arguments, namespace))

argparse.ArgumentParser.parse_args = parse
for folder, kind, name, line in json.loads(sys.argv[1]):
    sys.path[0], sys.argv = folder, [name, *line]
    try:
        run = runpy.run_module if kind == "module" else runpy.run_path
        run(name, run_name="__main__")
    except Parsed:
        continue
    except BaseException:
        traceback.print_exc()
    print(name, *line, flush=True)  # it did not come to know its options
"""


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """Command lines of a page, and whether they stand in a block of code, where they are whole."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        known: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            if given := re.fullmatch(r'([A-Z]+)="(.*?)".*', line):
                known[given[1]] = given[2]
            for name, value in known.items():
                line = line.replace(f"${name}", value)
            if line.split(" ")[0] in PROGRAMS:
                yield line, True
    for span in re.findall(
        r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    ):
        line = " ".join(span.split())
        if line.split(" ")[0] in PROGRAMS and " " in line:
            yield line, False


def words(line: str) -> list[str]:
    """Without what follows it in a line or a pipe, a file it is written to, and comments."""
    return [
        VALUES.get(word, word)
        for word in shlex.split(re.split(r"; | [|>] ", line)[0], comments=True)
    ]


FOUND = sorted({(line, whole) for page in PAGES for line, whole in commands(page.read_text())})
OURS = [(line, whole) for line, whole in FOUND if line.startswith("calstudy ")]
PYTHON: dict[tuple[str, str], list[list[str]]] = {}
for found, _ in FOUND:
    if found.startswith("python "):
        _, *given = words(found)
        kind, name, rest = (
            ("module", given[1], given[2:]) if given[0] == "-m" else ("path", given[0], given[1:])
        )
        PYTHON.setdefault((kind, name), []).append(rest)


def test_the_pages_name_commands() -> None:
    """So that what is below does not pass on nothing."""
    assert len(OURS) > 60 and len(PYTHON) > 12
    assert any(whole and words(line)[1:3] == ["confirm", "mine"] for line, whole in OURS)
    assert any(line[:2] == ["--part", "ask"] for line in PYTHON["path", "benchmarks/scale.py"])


@pytest.mark.parametrize(
    ("line", "whole"), OURS, ids=lambda given: given if isinstance(given, str) else ""
)
def test_calstudy_knows_the_command_and_its_options(line: str, whole: bool) -> None:
    """A span of code in a sentence may leave out what it is about: `calstudy
    export --temperature`."""
    _, *given = words(line)
    group = calstudy.make_context("calstudy", list(given))
    with group:
        _, command, rest = calstudy.resolve_command(group, given)
        assert command is not None
        try:
            command.make_context(given[0], list(rest), parent=group)
        except click.MissingParameter:
            assert not whole


@pytest.mark.slow
def test_every_script_starts_and_knows_its_options() -> None:
    """All in one process, each with the folder in front that Python would put there."""
    given = [
        (str(ROOT if kind == "module" else (ROOT / name).parent), kind, name, line)
        for (kind, name), lines in sorted(PYTHON.items())
        for line in lines
        if "..." not in line and name not in ("pytest", "study.cli")
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE, json.dumps(given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert len(given) > 14 and done.returncode == 0 and done.stdout == "", (
        done.stdout + done.stderr[-3000:]
    )


@pytest.mark.parametrize(
    "target", sorted({words(line)[1] for line, _ in FOUND if line.startswith("make ")})
)
def test_make_has_the_target(target: str) -> None:
    assert re.search(rf"^{target}\b.*:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.platform
def test_the_ask_is_measured_for_every_sampler(tmp_path: Path) -> None:
    """Beyond the trials that `gp` begins with, 10 of five parameters, it proposes from results."""
    command = [
        sys.executable,
        "benchmarks/scale.py",
        "--part",
        "ask",
        "--asks",
        "11",
        "13",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=patient(500))
    found = json.loads((tmp_path / "result.json").read_text())
    assert set(found) == {"random", "tpe", "tpe, constrained", "gp, constrained"}
    assert all(set(costs) == {"11", "13"} and min(costs.values()) > 0 for costs in found.values())
