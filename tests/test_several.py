"""`python -m calstudy.several`: each line is a command; the first that fails ends them all."""

import subprocess
import sys


def several(*lines: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "calstudy.several", *lines]
    return subprocess.run(words, capture_output=True, text=True)


def test_commands_run_in_order_until_one_fails() -> None:
    done = several("--version", "list metrics", "list nonsense", "list methods")
    assert done.returncode == 2
    first, *rest = done.stdout.splitlines()
    assert first.startswith("calstudy") and any("ece" in line for line in rest)
    assert not any("mbls" in line for line in rest)
    assert "nonsense" in done.stderr
