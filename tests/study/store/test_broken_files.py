"""A ledger or a study.yaml that a disk or an editor broke: one line that names the place,
and nothing is changed."""

import io
import random
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from search_spaces import strict_yaml
from study.cli import main
from study.engine import run
from study.store.journal import PatientJournal
from study.store.ledger import open_storage
from study.store.ledger_reader import LedgerReader
from study.store.study import open_study
from tests.study.store.mutations import change_value, mutated_lines
from tests.study.trained import copy_of, digits
from trainables.problems import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods of two trials. Each test puts back what it breaks."""
    return copy_of(digits(), tmp_path_factory.mktemp("storage"))


@pytest.fixture
def log(storage: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(storage / "small", tmp_path / "small")
    yield storage / "small" / "ledger.log"
    shutil.rmtree(storage / "small")  # of another inode then, at the same path
    shutil.copytree(tmp_path / "small", storage / "small")


def said_of(storage: Path, *words: object) -> tuple[int, str]:
    """Exit code and output of a command that trains nothing; any exception but
    the exit is the test's."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown), redirect_stderr(shown):
        patch.setattr(run, "_tune", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words), "--storage", str(storage)])
    assert isinstance(ended.value.code, int)
    return ended.value.code, shown.getvalue()


def opened(storage: Path) -> str:
    """What every command does first; the one line of its refusal, or nothing. Any other exception
    is the test's."""
    try:
        study = open_study("small", str(storage))
        study.records()
        study.reader.notes()
        assert study.spec
    except UserError as error:
        return str(error)
    return ""


def one_of(storage: Path, number: int) -> list[Any]:
    return [
        ["status", "small"],
        ["audit", "small"],
        ["pareto", "small"],
        ["run", storage / "small.yaml"],
    ][number % 4]


# ---- the ledger ----------------------------------------------------------------------------------

GARBAGE = {
    "noise": b"\x93\x17\xff garbage",
    "zeros": b"\0" * 4096,
    "half a line": b'{"op_code":4,"worker_id":"x","stu',
    "no log": b"{}",
    "no object": b"17",
    "an unknown operation": b'{"op_code":77,"worker_id":"x"}',
    "a study without a name": b'{"op_code":0,"worker_id":"x","directions":[1]}',
    "brackets": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_whole_garbage_last_line_is_cut_before_the_first_append(
    storage: Path, log: Path, kind: str
) -> None:
    """Readers leave it out, as they do an incomplete one. What is cut is kept."""
    whole, line = log.read_bytes(), GARBAGE[kind] + b"\n"
    before = open_study("small", str(storage)).records()
    log.write_bytes(whole + line)
    assert open_study("small", str(storage)).records() == before
    assert log.read_bytes() == whole + line
    open_storage(log.parent, None)
    assert log.read_bytes() == whole and log.with_name("ledger.log.cut-1").read_bytes() == line
    assert open_study("small", str(storage)).records() == before


def test_a_run_says_once_what_it_cut(storage: Path, log: Path) -> None:
    """It goes on, and what is cut later lies beside what was cut first."""
    whole, line = log.read_bytes(), GARBAGE["noise"] + b"\n"
    log.write_bytes(whole + line)
    assert said_of(storage, "status", "small")[0] == 0 and log.read_bytes() == whole + line
    code, said = said_of(storage, "run", storage / "small.yaml")
    kept = (
        f"ledger: removed a broken last line of {len(line)} bytes from ledger.log and kept it in"
        " ledger.log.cut-1.\n"
    )
    assert code == 0 and said.count(kept) == 1
    assert log.read_bytes() == whole and log.with_name("ledger.log.cut-1").read_bytes() == line
    log.write_bytes(whole + line)
    assert "ledger.log.cut-2." in said_of(storage, "run", storage / "small.yaml")[1]
    code, said = said_of(storage, "audit", "small")
    assert code == 0 and "small: clean" in said


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_the_middle_is_named_by_its_line(storage: Path, log: Path, kind: str) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    at = len(lines) // 2
    log.write_bytes(b"".join([*lines[:at], GARBAGE[kind] + b"\n", *lines[at:]]))
    before = {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()}
    expected = (
        f"ledger: line {at + 1} of {log} is no record of Optuna's. Restore the file from a"
        " backup.\n"
    )
    for words in (
        ["status", "small"],
        ["pareto", "small"],
        ["audit", "small"],
        ["run", storage / "small.yaml"],
    ):
        assert said_of(storage, *words) == (2, expected)
    assert {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()} == before


def test_a_good_ledger_is_read_once(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a broken line costs only who has one."""
    journals: list[PatientJournal] = []
    whole = PatientJournal.read_logs
    monkeypatch.setattr(
        PatientJournal, "read_logs", lambda self, n: journals.append(self) or whole(self, n)
    )
    assert len(LedgerReader(storage / "small", None, "small", ["focal"]).records().of("focal")) == 2
    assert len(set(journals)) == 1


def test_no_mutation_of_a_line_gives_a_traceback(storage: Path, log: Path) -> None:
    """100 of them, by seed, are opened; a command is run on each twentieth."""
    whole, yaml = log.read_bytes(), log.with_name("study.yaml").read_bytes()
    refused = 0
    for seed in range(100):
        log.write_bytes(mutated_lines(whole, seed))
        refusal = opened(storage)
        assert "\n" not in refusal, (seed, refusal)
        refused += refusal != ""
        if seed % 20 == 0:
            words = one_of(storage, seed // 20)
            code, said = said_of(storage, *words)
            one_line = said.count("\n") == 1 or words[0] == "run"
            assert code in (0, 1) or (code == 2 and one_line), (seed, words, said)
            log.with_name("study.yaml").write_bytes(yaml)
    assert 25 < refused < 100  # they reach what is behind the first check too


# ---- study.yaml ----------------------------------------------------------------------------------

EDITED = {
    "id: 3": ("recorded.id", "must be text, got 3"),
    "recorded: []": ("recorded", "must be a mapping, got []"),
    "no meaning": ("recorded.meaning", "is missing"),
    "no recorded": ("", "this is a spec, not the record"),
    "sizes": (
        "recorded.sizes",
        "must be the number of samples of train, validation and test, got {train: many}",
    ),
    "created": ("recorded.created", "must be a date and time, got yesterday"),
    "home": ("recorded.home", "must be a path and an inode, got /data"),
    "majority": ("recorded.majority", "must be a fraction, got half"),
    "methods": ("methods", "must be a list of methods, got focal"),
    "a label upwards": (
        "methods",
        "must be a list of methods, got [{label: ../../.., name: focal}]",
    ),
    "no trials": ("trials", "is missing"),
    "ledger": ("ledger", "must be a path or null, got 7"),
}


def edited(plain: dict[str, Any], kind: str) -> None:
    recorded = plain["recorded"]
    field = EDITED[kind][0].removeprefix("recorded.")
    values = {
        "id: 3": 3, "sizes": {"train": "many"}, "created": "yesterday", "home": "/data",
        "majority": "half",
        "methods": "focal", "a label upwards": [{"label": "../../..", "name": "focal"}],
        "ledger": 7,
    }  # fmt: skip
    if kind in ("no meaning", "no trials", "no recorded"):
        del (recorded if kind == "no meaning" else plain)[field or "recorded"]
    elif kind == "recorded: []":
        plain["recorded"] = []
    else:
        (recorded if EDITED[kind][0].startswith("recorded.") else plain)[field] = values[kind]


def every_command(storage: Path) -> list[list[Any]]:
    named = [
        "status",
        "pareto",
        "answer",
        "trials",
        "report",
        "figures",
        "audit",
        "confirm",
        "sync",
        "slim",
    ]
    every: list[list[Any]] = [[name, "small"] for name in named]
    return [
        *every,
        ["export", "small", "--name", "m"],
        ["delete", "small", "--yes"],
        ["run", storage / "small.yaml"],
    ]


@pytest.mark.parametrize("kind", EDITED)
def test_an_edited_field_is_named(storage: Path, log: Path, kind: str) -> None:
    file = log.with_name("study.yaml")
    plain = strict_yaml.read(file)
    edited(plain, kind)
    file.write_text(strict_yaml.dump(plain))
    field, problem = EDITED[kind]
    expected = ": ".join(part for part in (str(file), field, problem) if part)
    before = {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()}
    for words in (
        every_command(storage)
        if kind == "id: 3"
        else [["status", "small"], ["run", storage / "small.yaml"]]
    ):
        code, said = said_of(storage, *words)
        assert code == 2 and said.startswith(expected) and said.count("\n") == 1, (words, said)
    assert {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfename: small\n", "is not UTF-8 text"),
        (b"name: small\n\tepochs: 3\n", "is not YAML"),
        (b"- name: small\n", "this is a spec, not the record"),
        (b"", "this is a spec, not the record"),
        (b"recorded: " + b"[" * 200 + b"]" * 200, "is nested more than 100 levels deep"),
    ],
    ids=["not UTF-8", "a tab", "a list", "empty", "deep"],
)
def test_what_is_no_study_file_is_named(
    storage: Path, log: Path, content: bytes, problem: str
) -> None:
    file = log.with_name("study.yaml")
    file.write_bytes(content)
    for words in (
        ["status", "small"],
        ["run", storage / "small.yaml"],
        ["delete", "small", "--yes"],
    ):
        code, said = said_of(storage, *words)
        assert (
            code == 2 and said.startswith(f"{file}: ") and problem in said and said.count("\n") == 1
        ), (words, said)


def test_no_mutation_of_study_yaml_gives_a_traceback(storage: Path, log: Path) -> None:
    """60 of them, by seed, are opened; a command is run on each fifteenth."""
    file = log.with_name("study.yaml")
    text, refused = file.read_text(), 0
    for seed in range(60):
        chance, plain = random.Random(seed), strict_yaml.parse(text)
        change_value(plain["recorded"] if chance.random() < 0.5 else plain, chance)
        file.write_text(strict_yaml.dump(plain))
        refusal = opened(storage)
        assert "\n" not in refusal, (seed, refusal)
        refused += refusal != ""
        if seed % 15 == 0:
            words = one_of(storage, seed // 15)
            code, said = said_of(storage, *words)
            assert code in (0, 1, 2), (seed, words, said)
    assert 12 < refused < 60
