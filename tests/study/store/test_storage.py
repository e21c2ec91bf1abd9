"""Where studies are kept: a folder, in every command."""

from pathlib import Path

import click
import pytest

from study.cli import calstudy, main
from tests.study.command_line import here, write_spec

# What a command cannot do without, besides its SPEC or STUDY.
NEEDED = {
    "export": ("--name", "m"),
    "compare": ("other",),
    "delete": ("--yes",),
}


def commands(*arguments: str) -> list[str]:
    """Every command that takes --storage and one of these arguments."""
    assert isinstance(calstudy, click.Group)
    context = click.Context(calstudy)
    found = {name: calstudy.get_command(context, name) for name in calstudy.list_commands(context)}
    return [
        name
        for name, command in found.items()
        if command is not None
        and "storage" in (names := {param.name for param in command.params})
        and names & {*arguments}
    ]


WITH_SPEC, WITH_STUDY, ALL = commands("spec"), commands("study", "studies"), commands("storage")


def refused(words: tuple[object, ...], where: str) -> None:
    """One line that names the field, a mount and MLflow's artifacts; and nothing is made in
    the working directory."""
    before = sorted(Path().iterdir())
    name, *rest = words
    kind = ["slurm"] if name == "init" else []
    shown = here(name, *kind, *rest, *NEEDED.get(str(name), ()), check=2)
    assert shown.startswith(f"{where}: is a folder, not a URL (") and shown.count("\n") == 1
    assert "Mount the bucket" in shown and "MLflow can keep its artifacts at a URL" in shown
    assert sorted(Path().iterdir()) == before


def words_of(name: str, spec: Path) -> tuple[object, ...]:
    others = {"verify": "models:/small/1", "reproduce": "claims_fashion", "list": "studies"}
    return (name, spec if name in WITH_SPEC else others.get(name, "small"))


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALSTUDY_STORAGE", raising=False)
    return write_spec(tmp_path / "small.yaml")


def test_every_command_that_takes_a_storage_is_tried() -> None:
    assert set(ALL) == {*WITH_SPEC, *WITH_STUDY, "verify", "reproduce", "list"} and len(ALL) >= 17


@pytest.mark.parametrize("name", ALL)
def test_a_url_is_no_folder(spec: Path, name: str) -> None:
    """It once made ./s3:/bucket and trained into it."""
    for storage in ("s3://bucket/studies", "gs://bucket", "file:/data"):
        refused((*words_of(name, spec), "--storage", storage), "--storage")


@pytest.mark.parametrize("name", ALL)
def test_a_url_in_the_environment_too(
    spec: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("CALSTUDY_STORAGE", "s3://bucket")
    refused(words_of(name, spec), "$CALSTUDY_STORAGE")


@pytest.mark.parametrize("name", [*WITH_SPEC, *WITH_STUDY])
def test_a_url_in_the_spec_too(spec: Path, name: str) -> None:
    """A STUDY may be named by its spec."""
    refused((name, write_spec(spec, storage="s3://bucket/studies")), "storage")


@pytest.mark.parametrize("name", WITH_STUDY)
def test_a_url_next_to_a_study_named_by_its_folder(spec: Path, name: str) -> None:
    """Named so, a study is found without the storage; what was given is still wrong."""
    folder = spec.parent / "studies" / "small"
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text("name: small\nrecorded: {}\n")
    refused((name, folder, "--storage", "s3://bucket"), "--storage")


def test_doctor_of_no_study_says_so(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It once said that all is well."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--storage", "s3://bucket/x", "--json"])
    shown = capsys.readouterr()
    assert ended.value.code == 2 and shown.out == ""
    assert shown.err.startswith("--storage: is a folder, not a URL") and shown.err.count("\n") == 1
