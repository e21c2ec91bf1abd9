"""What others wrote is shown, and never obeyed by the terminal: a reason, a message, a value."""

import csv
import io
import re
import unicodedata
from pathlib import Path

import pytest
from rich.text import Text

from search_spaces import strict_yaml
from study.schema.printable import printable
from study.store.ledger import Ledger, open_storage
from study.store.trials import Trials
from study.terminal.console import SafeConsole
from study.terminal.layout import Table
from study.terminal.progress import Progress
from tests.study.command_line import _here, here
from tests.study.made import OBJECTIVES, asked, made_study
from trainables.outputs.outcome import Outcome

# Sets the window's title, clears the screen (7-bit and 8-bit), rings, goes back, reorders the line.
HOSTILE = "OSError: \x1b]0;owned\x07\x1b[2J\x9b2J\x7f\b\u202e[red]gnp.exe\u2069"
SHOWN = r"OSError: \x1b]0;owned\x07\x1b[2J\x9b2J\x7f\x08\u202e[red]gnp.exe\u2069"
DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])


def obeyed(text: str) -> set[str]:
    """By Unicode's own categories: controls, formats (which reorder), surrogates;
    not the ends of lines."""
    return {
        char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    } - {"\n"}


def test_what_is_escaped_and_what_is_not() -> None:
    assert printable(HOSTILE) == SHOWN and not obeyed(printable(HOSTILE))
    for number in (*range(0x20), *range(0x7F, 0xA0)):
        assert (printable(chr(number)) == chr(number)) == (chr(number) in "\t\n")
    assert printable("Zürich 0.5 ± 0.1 → 東京 [x]\n\tend") == "Zürich 0.5 ± 0.1 → 東京 [x]\n\tend"
    assert printable(b"caf\xe9".decode(errors="surrogateescape")).encode() == rb"caf\udce9"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Of a study with one trial that failed with a hostile reason, as an older ledger holds it."""
    study = made_study(tmp_path, "small", {"focal": [DONE]}, planned=2)
    ledger = Ledger(open_storage(study.directory, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    number = asked(ledger, "focal").number
    ledger.begin_attempt("focal", number)
    failed = Outcome(attempt=1, state="failed", reason=HOSTILE)
    ledger.tell("focal", number, failed, OBJECTIVES)
    file = study.directory / "study.yaml"
    plain = strict_yaml.read(file)
    plain["recorded"]["meaning"] = study.spec.meaning()
    file.write_text(strict_yaml.dump(plain))
    return tmp_path


def test_a_reason_reaches_no_terminal_as_it_is(storage: Path) -> None:
    for command in (["status"], ["trials"], ["audit"], ["pareto"], ["report", "--bootstrap", 0]):
        shown = "".join(
            _here([*command, "small", "--storage", storage], 1 if command == ["audit"] else 0)
        )
        assert not obeyed(shown), command
    assert SHOWN in here("status", "small", "--storage", storage)
    assert not obeyed((storage / "small" / "report.html").read_text().replace("\t", ""))
    here("trials", "small", "--storage", storage, "--csv", storage / "trials.csv")
    assert not obeyed((storage / "trials.csv").read_text())
    with (storage / "trials.csv").open(newline="") as file:
        assert [row["reason"] for row in csv.DictReader(file)] == ["", SHOWN]


def test_an_error_reaches_no_terminal_as_it_is(tmp_path: Path) -> None:
    """The one line of a user's mistake: here of a spec and of a name."""
    spec = tmp_path / "small.yaml"
    spec.write_text('{name: small, data: digits, "model": "\\e[2Jmlp\\u202e", methods: [focal]}')
    said = "".join(_here(["plan", spec], 2)) + "".join(
        _here(["status", "\x1b[2J", "--storage", tmp_path], 2)
    )
    assert not obeyed(said) and said.count(r"\x1b[2J") >= 2 and "Traceback" not in said


def test_the_live_view_shows_it_too(storage: Path) -> None:
    from study.store.study import open_study

    study = open_study("small", str(storage))
    written = io.StringIO()
    console = SafeConsole(
        file=written, force_terminal=True, width=100, height=30, color_system=None, markup=False
    )
    with Progress(study.spec, Trials({"focal": []}), console) as progress:
        for record in study.records().of("focal"):
            progress.started(record)
            progress.finished(record)
    # Rich's own: up, cursor, erase line.
    codes = re.sub(r"\x1b\[[?\d]*[AhlK]|\r", "", written.getvalue())
    assert not obeyed(codes) and SHOWN in codes.replace("\n", "")


def test_a_table_is_as_wide_as_what_it_shows() -> None:
    console = SafeConsole(file=io.StringIO(), width=80)
    table = Table("name", "reason", ">n")
    for cell in (HOSTILE, "plain"):
        table.add_row("a", cell, "1")
    console.print(table)
    console.print(Text(HOSTILE), HOSTILE)
    _, one, other, *rest = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert SHOWN in one and len(one) == len(other) and (one[-3:], other[-3:]) == ("  1", "  1")
    assert not obeyed("".join([one, other, *rest]))
