"""What only reads imports no torch, Ray or MLflow client, which only an upload of figures needs:
looked at after each command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.study.answer.test_sizes import confirmed
from tests.study.made import made_study, random_predictions

ROOT = Path(__file__).parents[3]
COMMANDS = (
    *("list methods", "status small", "trials small", "pareto small"),
    *("pareto small --bootstrap 100", "answer small --why", "compare small other"),
)
LOOK = """
import contextlib, os, sys
from study.cli import main
for words in sys.argv[1:]:
    sys.argv = ["calstudy", *words.split()]
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        try:
            main()
        except SystemExit as end:
            assert not end.code, words
    slow = {"torch", "ray", "mlflow", "scipy.stats"}
    if words.split()[0] in ("list", "status", "trials"):
        slow.add("scipy")
    if words.split()[0] == "figures":
        slow = {"torch", "ray"}
    loaded = sorted(slow & set(sys.modules))
    print(words.partition(" --storage")[0], *loaded)
"""


@pytest.mark.slow
def test_what_only_reads_imports_nothing_that_trains(tmp_path: Path) -> None:
    confirmed(tmp_path, 287, 200)
    other = random_predictions(3, 287)
    trials = {"focal": [(other.evaluate(), [])]}
    made_study(tmp_path, "other", trials, predictions=lambda *_: other)
    commands = [*COMMANDS, f"figures small --output {tmp_path / 'figures'}"]
    words = [f"{command} --storage {tmp_path}" for command in commands[1:]]
    done = subprocess.run(
        [sys.executable, "-c", LOOK, commands[0], *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout.splitlines() == commands, done.stderr
