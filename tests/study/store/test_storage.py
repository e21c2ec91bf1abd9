"""Where studies are kept."""

from pathlib import Path

import pytest

from tests.study.command_line import here

SPEC = Path(__file__).parents[3] / "study" / "specs" / "digits.yaml"


@pytest.mark.parametrize(
    "words",
    [
        ("run", SPEC),
        ("plan", SPEC),
        ("doctor", SPEC),
        ("submit", SPEC, "--address", "http://127.0.0.1:1"),
        ("status", "digits"),
        ("pareto", "digits"),
        ("confirm", "digits"),
        ("report", "digits"),
        ("trials", "digits"),
        ("audit", "digits"),
        ("verify", "models:/digits/1"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("storage", ["s3://bucket/studies", "gs://bucket", "file:/data"])
def test_a_url_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], storage: str
) -> None:
    """It once made ./s3:/bucket and trained into it."""
    monkeypatch.chdir(tmp_path)
    shown = here(*words, "--storage", storage, check=2)
    assert "storage: is a folder, not a URL" in shown and "Mount the bucket" in shown and shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_url_in_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_STORAGE", "s3://bucket")
    assert "not a URL (s3:/...)" in here("status", "digits", check=2)
