"""Which commands import a study's extensions, as docs/security.md lists them."""

from pathlib import Path

import pytest
import yaml

from tests.study.command_line import here, write_spec
from trainables.plugins import use_extensions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LISTED = "The commands that import a study's extensions: "
COMMANDS = {
    "status": (),
    "trials": (),
    "pareto": (),
    "answer": (),
    "sync": (),
    "figures": (),
    "report": (),
    "audit": (),
    "slim": ("--yes",),
    "export": ("--name", "m"),
    "delete": ("--yes",),
}


def test_they_are_those_listed(tmp_path: Path) -> None:
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1)
    storage, trail = tmp_path / "studies", tmp_path / "trail"
    here("run", tmp_path / "small.yaml", "--storage", storage)
    methods = storage / "small" / "extensions" / "methods"
    methods.mkdir(parents=True)
    (methods / "canary.py").write_text(f"open({str(trail)!r}, 'a').write('imported')\n")
    file = storage / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**plain, "extensions": "extensions"}))
    importing = set()
    for command, words in COMMANDS.items():
        use_extensions(None)  # as in a process of its own, none is imported yet
        here(command, "small", "--storage", storage, *words, check=None)
        if trail.exists():
            trail.unlink()
            importing.add(command)
    use_extensions(None)
    text = " ".join((ROOT / "docs" / "security.md").read_text().split())
    listed = text.partition(LISTED)[2].partition(".")[0]
    named = {word.strip("` ") for word in listed.replace(" and ", ",").split(",")}
    assert importing == named & set(COMMANDS)
