"""What commands write where a user says: files whole, pipes and devices written into, and
no formulas in a CSV."""

import csv
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from study.schema.printable import csv_text
from study.store.study import StudyFolder
from tests.study.command_line import here
from tests.study.made import made_study, random_predictions

pytestmark = pytest.mark.timeout(60)  # a pipe that nobody reads is waited for
WRITES = {
    "pareto --csv": ("pareto", "--csv"),
    "pareto --figure": ("pareto", "--figure"),
    "trials": ("trials", "--csv"),
    "page": ("report", "--bootstrap", 0, "--output"),
    "table": ("report", "--format", "md", "--bootstrap", 0, "--output"),
}


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    trial = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])
    return made_study(
        tmp_path, "small", {"focal": [trial]}, predictions=lambda *_: random_predictions(0)
    )


def words_of(kind: str, study: StudyFolder, output: Path) -> tuple[Any, ...]:
    name, *options = WRITES[kind]
    return name, "small", "--storage", study.directory.parent, *options, output


@pytest.mark.parametrize("kind", WRITES)
def test_a_pipe_is_written_into_and_a_linked_file_replaced(
    study: StudyFolder, tmp_path: Path, kind: str
) -> None:
    """The pipe was replaced by a file, as /dev/full was; the link stays."""
    pipe, file, link = (tmp_path / f"{name}.png" for name in ("pipe", "file", "link"))
    os.mkfifo(pipe)
    file.write_text("before")
    link.symlink_to(file)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    here(*words_of(kind, study, pipe))
    assert pipe.is_fifo()
    reader.join(30)
    here(*words_of(kind, study, link))
    assert link.is_symlink() and not file.read_bytes().startswith(b"before")
    assert len(read) == 1 and read[0][:20] == file.read_bytes()[:20] and len(read[0]) > 20


@pytest.mark.parametrize("kind", WRITES)
def test_a_device_stays_one(study: StudyFolder, tmp_path: Path, kind: str) -> None:
    """Through a link, which is not replaced either: a test must not harm /dev."""
    link = tmp_path / "link.png"
    link.symlink_to("/dev/null")
    here(*words_of(kind, study, link))
    assert link.is_symlink() and Path("/dev/null").is_char_device()


@pytest.mark.parametrize("kind", WRITES)
def test_a_folder_is_one_line(study: StudyFolder, tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder.png").mkdir()
    said = here(*words_of(kind, study, tmp_path / "folder.png"), check=2)
    assert said.count("\n") == 1 and "is a directory" in said
    assert not list((tmp_path / "folder.png").iterdir())


def test_figures_go_into_a_folder(study: StudyFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    said = here("figures", "small", "--storage", tmp_path, "--output", tmp_path / "file", check=2)
    assert (
        "is a file" in said and said.count("\n") == 1 and (tmp_path / "file").read_text() == "mine"
    )


def test_a_report_does_not_bring_a_deleted_study_back(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted_meanwhile(*_: Any) -> dict[str, Any]:
        shutil.rmtree(study.directory)
        return {"studies": []}

    monkeypatch.setattr("study.report.page_data.gather_page", deleted_meanwhile)
    said = here("report", "small", "--storage", study.directory.parent, "--bootstrap", 0, check=2)
    assert (
        "was the study deleted?" in said and said.count("\n") == 1 and not study.directory.exists()
    )


def test_nor_does_one_that_is_rewritten(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "study.commands.report.time.sleep", lambda _: shutil.rmtree(study.directory)
    )
    monkeypatch.setattr("study.store.study.StudyFolder.planned", 5)  # so that trials are lacking
    said = here(
        "report",
        "small",
        "--storage",
        study.directory.parent,
        "--bootstrap",
        0,
        "--every",
        1,
        check=2,
    )
    assert "no study at" in said and not study.directory.exists()


def test_no_cell_of_a_csv_is_a_formula() -> None:
    """OWASP, "CSV Injection": a text that begins with = + - @, a tab or a new line gets
    a quote; numbers stay."""
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx"]
    columns = [*map(str, range(7)), "=cmd", "number", "plain", "none"]
    row = {
        **dict(zip(columns, hostile, strict=False)),
        "=cmd": "a=b",
        "number": -0.5,
        "plain": "focal",
        "none": None,
    }
    header, cells = csv.reader(csv_text(columns, [row]).splitlines(keepends=True))
    assert header[7] == "'=cmd" and all(cell.startswith("'") for cell in cells[:7])
    assert cells[:4] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)"] and cells[7:] == [
        "a=b",
        "-0.5",
        "focal",
        "",
    ]


def test_a_reason_is_no_formula(tmp_path: Path) -> None:
    made_study(tmp_path, "small", {"focal": [({}, [])]})
    ledger = tmp_path / "small" / "ledger.log"
    ledger.write_text(ledger.read_text().replace("loss is nan", "=HYPERLINK(1)"))
    here("trials", "small", "--csv", tmp_path / "t.csv", "--storage", tmp_path)
    assert ",'=HYPERLINK(1)" in (tmp_path / "t.csv").read_text()
