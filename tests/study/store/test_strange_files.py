"""A study with pipes for files, lines of others in its ledger, NUL in its paths, wild dates:
one line, and no wait."""

import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from search_spaces import strict_yaml
from study.cli import main
from study.engine import run
from tests.study.command_line import here, trained_here, write_spec
from tests.study.made import made_study

D = "9999-06-01T00:00:00+00:00"
COMMANDS: dict[str, tuple[Any, ...]] = {
    **{name: () for name in ("status", "audit", "trials", "pareto", "answer", "sync")},
    "report": ("--bootstrap", 0),
    "export": ("--name", "m"),
    "confirm": ("--top", 1, "--seeds", 1),
    "delete": ("--yes",),
}


def said_of(storage: Path, *words: object) -> tuple[int, str]:
    """Exit code and output; any exception but the exit is the test's."""
    shown = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(run, "_tune", trained_here))
        stack.enter_context(redirect_stdout(shown))
        stack.enter_context(redirect_stderr(shown))
        ended = stack.enter_context(pytest.raises(SystemExit))
        main([*map(str, words), "--storage", str(storage)])
    assert isinstance(ended.value.code, int)
    return ended.value.code, shown.getvalue()


# ---- pipes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained study. Each test puts back what it breaks."""
    folder = tmp_path_factory.mktemp("storage")
    here(
        "run",
        write_spec(folder / "small.yaml", methods=["focal"], trials=1, epochs=1),
        "--storage",
        folder,
    )
    return folder


@pytest.fixture
def small(storage: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(storage / "small", tmp_path / "small")
    yield storage / "small"
    for left in (
        *storage.glob("small-confirm"),
        *storage.glob("small*.deleting"),
        storage / "small",
    ):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(tmp_path / "small", storage / "small")


ATTEMPT = "trials/focal/0000/attempt-1"
ONLY_READ = (f"{ATTEMPT}/log", "report.html")  # by people
PIPES = {  # and which commands cannot do without the files
    ONLY_READ: (),
    (f"{ATTEMPT}/history.json",): (),
    (f"{ATTEMPT}/predictions.npz",): ("export",),
    (f"{ATTEMPT}/model.pt",): ("export",),
}


READ_FILES = ("audit", "answer", "export")  # each file of an attempt is read by one of them


@pytest.mark.slow
@pytest.mark.timeout(120)  # it would wait for ever
@pytest.mark.parametrize(
    ("files", "commands"),
    [
        *((files, READ_FILES) for files in PIPES),
        (tuple(file for files in PIPES for file in files), tuple(COMMANDS)),
    ],
    ids=[*(Path(files[0]).name for files in PIPES), "all of them"],
)
def test_no_command_waits_for_a_pipe(
    small: Path, files: tuple[str, ...], commands: tuple[str, ...]
) -> None:
    cannot = {name for file, names in PIPES.items() if {*file} <= {*files} for name in names}
    for name in commands:
        for file in files:
            (small / file).unlink(missing_ok=True)
            os.mkfifo(small / file)
        code, said = said_of(small.parent, name, "small", *COMMANDS[name])
        assert "Traceback" not in said
        if name in cannot:
            *steps, _ = said.splitlines()  # a busy machine's, such as `computing the answer`
            assert code == 2 and not any(":" in step for step in steps), (name, said)
        elif name == "audit":
            assert code == (0 if files == ONLY_READ else 1), said
            assert "is a pipe, not a file" in said or code == 0, said
        else:
            assert code == 0, (name, said)
    assert small.exists() == ("delete" not in commands)


# ---- lines of others -----------------------------------------------------------------------------


def line(op_code: Any, **facts: Any) -> dict[str, Any]:
    return {"op_code": op_code, "worker_id": "stranger", **facts}


def failed(digests: dict[str, str]) -> dict[str, Any]:
    return line(8, trial_id=1, user_attr={"outcome": {"state": "failed", "digests": digests}})


TRIAL = {"study_id": 0, "datetime_start": "2026-01-01T00:00:00+00:00"}
LINES: dict[str, tuple[list[Any], str | None]] = {  # and what is said; None: it is ignored
    "a trial in the year 9999": (
        [line(4, **{**TRIAL, "datetime_start": D})],
        "a date of focal/0001 is not as",
    ),
    "a trial that ends then": (
        [line(4, **TRIAL), line(6, trial_id=1, state=3, values=None, datetime_complete=D)],
        "a date of focal/0001 is not as",
    ),
    "a trial before computers": (
        [line(4, **{**TRIAL, "datetime_start": "1960-01-01T00:00:00+00:00"})],
        "a date of focal",
    ),
    "a result on test": (
        [line(2, study_id=0, user_attr={"tests/0": True})],
        "'tests/0' of 'small/focal' is not as",
    ),
    "a result on test, of no trial": (
        [line(2, study_id=0, user_attr={"tests/x": {}})],
        "'tests/x' of 'small/focal'",
    ),
    "openings that are none": (
        [line(2, study_id=0, user_attr={"openings": 1e400})],
        "'openings' of 'small/focal'",
    ),
    "a fact without a name": (
        [line(2, study_id=0, user_attr=[[7, 8]])],
        "'7' of 'small/focal' is not as",
    ),
    "an outcome outside": (
        [line(4, **TRIAL), failed({"/dev/zero": ""})],
        "`digests` in the outcome of focal/0001",
    ),
    "a NUL in a file's name": (
        [line(4, **TRIAL), failed({"a\0": ""})],
        "`digests` in the outcome of focal/0001",
    ),
    "a study of another user's": (
        [
            line(0, study_name="theirs", directions=[1]),
            line(4, **{**TRIAL, "study_id": 1, "datetime_start": D}),
        ],
        None,
    ),
    "no trial of ours": ([line(8, trial_id=77, user_attr={"outcome": 5})], None),
    "an operation of later": ([line(10, study_id=0, trial_ids=[0])], None),
}


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("kind", LINES)
def test_lines_that_others_appended(tmp_path: Path, kind: str, at_end: bool) -> None:
    """Each is a record of Optuna's, so it is neither cut nor named by its line."""
    trial = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])
    log = made_study(tmp_path, "small", {"focal": [trial]}).directory / "ledger.log"
    own = log.read_bytes().splitlines(keepends=True)
    lines, problem = LINES[kind]
    added = [json.dumps(each).encode() + b"\n" for each in lines]
    last = (
        [json.dumps(line(3, study_id=0, system_attr={"last": 1})).encode() + b"\n"]
        if not at_end
        else []
    )
    log.write_bytes(b"".join([*own, *added, *last]))
    content = log.read_bytes()
    for words in (
        ["status"],
        ["audit"],
        ["pareto"],
        ["trials", "--csv", tmp_path / "t.csv"],
        ["sync"],
    ):
        code, said = said_of(tmp_path, words[0], "small", *words[1:])
        if problem is None:
            assert code in (0, 1) and "Traceback" not in said, (words, said)
        else:
            assert code == 2 and problem in said and said.count("\n") == 1, (words, said)
    assert log.read_bytes() == content


# ---- paths and dates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"data": {"name": "parquet", "path": "/a\0b"}}, "data.path"),
        ({"ledger": "/a\0b"}, "ledger"),
        ({"storage": "/a\0b"}, "storage"),
        ({"extensions": "a\0b"}, "extensions"),
        ({"tracking": "sqlite:////a\0b"}, "tracking"),
        ({"methods": [{"name": "focal", "base": ["x", "a\0b"]}]}, "methods[0].base[1]"),
    ],
)
def test_a_nul_in_a_spec_is_named(tmp_path: Path, keys: dict[str, Any], where: str) -> None:
    spec = write_spec(tmp_path / "small.yaml", **keys)
    for command in ("plan", "run", "status"):
        said = here(command, spec, check=2)
        assert said == f"small.yaml: {where}: has a NUL character. Remove it.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("status", "a\0b"),
        ("status", "small", "--storage", "a\0b"),
        ("report", "small", "--output", "a\0b"),
        ("pareto", "small", "--figure", "a\0b.png"),
        ("evaluate", "a\0b.npz"),
        ("run", "a\0b.yaml"),
    ],
)
def test_a_nul_in_an_argument_is_named(words: tuple[str, ...]) -> None:
    """No shell passes one on; `main` can be called from Python."""
    said = here(*words, check=2)
    assert (
        "a path or a name has no control character" in said
        and said.count("\n") == 1
        and "\0" not in said
    )


@pytest.mark.parametrize(
    "created", [D, "9999-12-31T23:59:59", "0001-01-01T00:00:00", "3000-01-02T00:00:00+00:00"]
)
def test_a_study_was_made_at_a_time_that_can_be_shown(tmp_path: Path, created: str) -> None:
    file = made_study(tmp_path, "small", {"focal": []}).directory / "study.yaml"
    plain = strict_yaml.read(file)
    file.write_text(
        strict_yaml.dump({**plain, "recorded": {**plain["recorded"], "created": created}})
    )
    for command in ("status", "audit", "report", "sync"):
        code, said = said_of(tmp_path, command, "small")
        assert (
            code == 2
            and "recorded.created: must be a date and time, got" in said
            and said.count("\n") == 1
        )
