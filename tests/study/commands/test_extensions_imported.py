"""Which commands import a study's extensions, as docs/why/security.md lists them."""

from pathlib import Path

import pytest
import yaml

from tests.study.command_line import here, write_spec
from tests.study.reproduction.tables import write_table
from trainables.plugins import use_extensions

pytestmark = [pytest.mark.slow, pytest.mark.platform]

ROOT = Path(__file__).resolve().parents[3]
LISTED = "The commands that import a study's extensions: "
METRICS = "Files in its `metrics/` are run by "
COMMANDS = {
    "status": (),
    "trials": (),
    "pareto": (),
    "answer": (),
    "compare": ("other",),
    "sync": (),
    "figures": (),
    "report": (),
    "audit": (),
    "slim": ("--yes",),
    "export": ("--name", "m"),
    "delete": ("--yes",),
}
OF_A_SPEC = ("plan", "doctor", "init")


def page() -> str:
    return " ".join((ROOT / "docs" / "why" / "security.md").read_text().split())


def named(text: str, before: str) -> set[str]:
    """The commands of a list in a sentence that begins so."""
    assert before in text
    listed = text.partition(before)[2].partition(".")[0].partition(" only")[0]
    return {word.strip("` ") for word in listed.replace(" and ", ",").split(",")}


CANARIES = {
    "methods": """
from dataclasses import dataclass
from trainables.methods.focal import Focal

@dataclass(frozen=True)
class Canary(Focal):
    pass
""",
    "metrics": """
METRICS = {"canary": {"better": "lower", "kind": "fraction", "matters": 0.02}}

def canary(logits, labels):
    return logits.softmax(dim=-1).max(dim=-1).values.mean()
""",
}


def write_canaries(folder: Path, trail: Path) -> None:
    for kind, code in CANARIES.items():
        (folder / kind).mkdir(parents=True)
        tell = f"open({str(trail)!r}, 'a').write('{kind} ')\n"
        (folder / kind / "canary.py").write_text(tell + code)


def test_they_are_those_listed(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1)
    other = write_spec(tmp_path / "other.yaml", name="other", methods=["focal"], trials=1)
    storage, trail = tmp_path / "studies", tmp_path / "trail"
    for each in (spec, other):
        here("run", each, "--storage", storage)
    write_canaries(storage / "small" / "extensions", trail)
    for command in ("run", "report", "audit"):  # the folder alone is nothing
        here(command, "small", "--storage", storage)
        assert not trail.exists()
    file = storage / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**plain, "extensions": "extensions"}))
    imported: dict[str, str] = {}

    def tell(command: str, *words: object) -> None:
        use_extensions(None)  # as in a process of its own, none is imported yet
        here(command, *words, "--storage", storage, check=None)
        if trail.exists():
            imported[command] = trail.read_text()
            trail.unlink()

    for command, words in COMMANDS.items():
        tell(command, "small", *words)
    write_canaries(tmp_path / "own", trail)
    objectives = [{"metric": "canary", "direction": "minimize"}]
    write_spec(spec, methods=["canary"], trials=1, extensions="own", objectives=objectives)
    for command in OF_A_SPEC:
        to = ("slurm", spec, "--output", tmp_path / "sbatch") if command == "init" else (spec,)
        tell(command, *to)
    use_extensions(None)
    text = page()
    assert {*imported} == named(text, LISTED) & {*COMMANDS, *OF_A_SPEC}
    ran = {command for command, kinds in imported.items() if "metrics" in kinds}
    assert ran == named(text, METRICS) & {*COMMANDS, *OF_A_SPEC}


def test_reproduce_is_one_of_them(tmp_path: Path) -> None:
    write_canaries(tmp_path / "own", tmp_path / "trail")
    table = write_table(tmp_path, extensions="own")
    here("reproduce", table, "--storage", tmp_path / "s", "--address", "nowhere", check=2)
    use_extensions(None)
    assert (tmp_path / "trail").exists() == ("reproduce" in named(page(), LISTED))
