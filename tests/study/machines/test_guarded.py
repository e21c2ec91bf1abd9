"""A process compares its node with the study before anything of the study's is imported there."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from study.machines import guarded as guarded_module
from study.machines import node_facts
from study.machines.guarded import NodeUnfit, Unfit, guarded, unfit_node
from study.machines.nodes import send_as_source
from trainables.files import atomic
from trainables.machine import TRAINING_LIBRARIES, versions

NUMPY = importlib.metadata.version("numpy")


class Echo:
    """Stands for CalibrationTrainable."""

    def setup(self, config: dict[str, str]) -> None:
        self.config = config

    def reset_config(self, config: dict[str, str]) -> bool:
        self.setup(config)
        return True

    def prepared(self) -> dict[str, Any]:
        return {"report": "prepared", "done": False}

    def step(self) -> dict[str, Any]:
        if self.config["assignment"] == "unfit":
            raise type("NodeUnfit", (Exception,), {})("has no GPU that torch can use.")
        if self.config["assignment"] == "failing":
            raise ValueError("of the trial")
        return {"report": self.config["assignment"], "done": False}


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "run.token"
    file.write_text("abc")
    return file


def unfit(token: Path, **changes: Any) -> Any:
    """What this machine says, asked for what it has but for the changes."""
    own = node_facts.code(packages=node_facts.TRAINS)["code"]
    asked = {"text": "abc", "digest": own, "wanted": versions(TRAINING_LIBRARIES), **changes}
    return node_facts.unfit((str(token), asked["text"]), asked["digest"], asked["wanted"])["unfit"]


def test_a_node_that_is_as_the_study_needs_it(token: Path) -> None:
    assert unfit(token) is None
    assert unfit(token, wanted={"numpy": f"{NUMPY}+cu128"}) is None  # a head without GPUs


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"text": "abd"}, r"does not see .*run.token \(another folder is mounted there\)"),
        ({"digest": "0" * 64}, r"has other code in .* than the study was started with"),
        ({"wanted": {"numpy": "1.0.0"}}, rf"has numpy {NUMPY} \(the study's is 1.0.0\)"),
        ({"wanted": {"nosuch": "2"}}, r"has nosuch missing \(the study's is 2\)"),
    ],
)
def test_a_node_that_is_not(token: Path, changes: dict[str, Any], found: str) -> None:
    assert re.fullmatch(found, unfit(token, **changes)[0])


def test_a_node_without_the_storage(tmp_path: Path) -> None:
    found, mend = unfit(tmp_path / "run.token")
    assert found.endswith("run.token (No such file or directory)") and mend.startswith("Mount")


# ---- the process that trains ---------------------------------------------------------------------


@pytest.fixture
def on_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "_node_id", lambda: "7d39")
    monkeypatch.setattr(atomic, "on_full", atomic.on_full)  # what it sets there asks Ray


def made(token: Path, text: str = "abc") -> Any:
    own = node_facts.code(packages=node_facts.TRAINS)["code"]
    cls = guarded(Echo, (node_facts.unfit, ((str(token), text), own, {})))
    actor = cls.__new__(cls)
    actor.setup({"assignment": "one"})
    return actor


@pytest.mark.usefixtures("on_node")
def test_on_a_fit_node_it_is_the_trainable(token: Path) -> None:
    actor = made(token)
    assert type(actor).__name__ == "Echo"
    assert actor.step() == {"report": "prepared", "done": False}
    assert actor.step() == {"report": "one", "done": False}
    token.unlink()  # asked once
    assert actor.reset_config({"assignment": "two"}) and actor.step()["report"] == "two"
    actor.reset_config({"assignment": "failing"})
    with pytest.raises(ValueError, match="of the trial"):
        actor.step()


@pytest.mark.usefixtures("on_node")
def test_what_the_process_and_the_trial_find_of_the_node_is_told_alike(token: Path) -> None:
    with pytest.raises(NodeUnfit) as ended:
        made(token, "abd").step()
    told = unfit_node(f"Traceback\n  File ...\nstudy.machines.guarded.NodeUnfit: {ended.value}\n")
    assert told is not None and told.node == "7d39" and "does not see" in told.because
    actor = made(token)
    actor.step()
    actor.reset_config({"assignment": "unfit"})
    with pytest.raises(NodeUnfit) as ended:
        actor.step()
    assert json.loads(str(ended.value))["because"] == "has no GPU that torch can use."


def test_of_other_deaths_nothing_is_told() -> None:
    assert unfit_node("The actor died: NodeUnfit") is None
    told = 'NodeUnfit: {"node": "1", "because": "is old."}, said it'
    assert unfit_node(told) == Unfit("1", "is old.")
    told = 'NodeUnfit: {"node": "1", "because": "is old.", "nowhere": true}'
    assert unfit_node(told) == Unfit("1", "is old.", nowhere=True)


LACKING = """
import importlib.util, pickle, sys

OURS = ("study", "trainables", "search_spaces")
known = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in OURS else known(name)

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OURS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuses())
cls = pickle.loads(sys.stdin.buffer.read())
made = cls.__new__(cls)
made.setup({"assignment": "one"})
try:
    made._begun()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_node_without_our_code_can_say_so(token: Path) -> None:
    """Ray sends the class pickled; it needs nothing of ours until the node is fit."""
    send_as_source()
    question = (node_facts.unfit, ((str(token), "abc"), "0" * 64, {}))
    sent = cloudpickle.dumps(guarded(Echo, question))  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-P", "-c", LACKING], input=sent, capture_output=True, check=True
    )
    assert done.stdout.decode().startswith("NodeUnfit has other code in nowhere than the study")
