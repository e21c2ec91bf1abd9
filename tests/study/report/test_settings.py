"""Figures look the same whatever the user's settings of matplotlib are."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import matplotlib
import pytest

from study.report.front_figure import draw_front, write_figure
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from tests.patience import patient

OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
HOSTILE = {
    "text.usetex": True,
    "savefig.facecolor": "red",
    "font.size": 40.0,
    "axes.facecolor": "black",
}


def drawn(path: Path) -> bytes:
    pairs = ((0.98, 0.10), (0.93, 0.01))
    trials = [
        TrialRecord("focal", number, "complete", {}, {"accuracy": accuracy, "ece": ece})
        for number, (accuracy, ece) in enumerate(pairs)
    ]
    write_figure(path, partial(draw_front, trials, OBJECTIVES, "digits"))
    return path.read_bytes()


def test_a_program_s_own_settings_change_no_figure_and_stay(tmp_path: Path) -> None:
    plain = drawn(tmp_path / "plain.png")
    with matplotlib.rc_context(HOSTILE):
        assert drawn(tmp_path / "set.png") == plain
        assert matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["font.size"] == 40.0


@pytest.mark.slow
def test_no_matplotlibrc_is_opened(tmp_path: Path) -> None:
    """That of the working directory may be a pipe, which would never end."""
    os.mkfifo(tmp_path / "matplotlibrc")
    (tmp_path / "broken").write_bytes(b"text.usetex: True \xff\n")
    environment = {**os.environ, "MATPLOTLIBRC": str(tmp_path / "broken")}
    script = (
        "import os, study.report.style, matplotlib; print(os.getcwd(),"
        " matplotlib.rcParams['text.usetex'])"
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=patient(60)
    )
    assert (done.stdout.split(), done.stderr) == ([str(tmp_path), "False"], "")
