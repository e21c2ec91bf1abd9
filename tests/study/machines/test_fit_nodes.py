"""Which nodes may train: by a clock that the test turns, on nodes that it names."""

from collections.abc import Callable, Sequence

import pytest

from study.machines import fit_nodes
from study.machines.admission import Answers
from study.machines.fit_nodes import ASK_SECONDS, LOOK_SECONDS, PATIENCE, FitNodes
from study.machines.guarded import Unfit
from study.machines.ray_session import ClusterUnready, Node
from study.schema.errors import TryAgain
from study.schema.resources import Resources

OLD = "has numpy 1.0.0 (the study's is 2.4.6). Install the same version there."


class Cluster:
    """Nodes of two CPUs each, that answer what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, is_here: bool = False) -> None:
        self.names = list(names)
        self.now = 1000.0
        self.lines: list[str] = []
        self.asked: list[list[str]] = []
        self.answers: Answers = {}
        monkeypatch.setattr(fit_nodes, "ray_nodes", self._alive)
        monkeypatch.setattr(fit_nodes.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(fit_nodes.threading, "Thread", AtOnce)
        self.nodes = FitNodes([Resources()], self._ask, self.lines.append, is_here)
        self.nodes.look()

    def _alive(self) -> list[Node]:
        return [
            {
                "Alive": True,
                "NodeID": name,
                "NodeManagerAddress": f"10.0.0.{name}",
                "Resources": {"CPU": 2.0},
            }
            for name in self.names
        ]

    def _ask(self, nodes: Sequence[Node]) -> Answers:
        self.asked.append([node["NodeID"] for node in nodes])
        return self.answers

    def wait(self, seconds: float) -> None:
        """As the driver does: it looks several times a second, here every few."""
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_SECONDS
            self.nodes.look()


class AtOnce:
    """A thread that is over when it has started."""

    def __init__(self, target: Callable[[], None], **options: object) -> None:
        self.start = target


def test_a_node_that_is_not_fit_is_passed_over_asked_again_and_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, "1", "2")
    assert cluster.nodes.slots() == 4 and cluster.nodes.passed_over == frozenset()
    cluster.nodes.pass_over(Unfit("2", OLD))
    cluster.nodes.pass_over(Unfit("2", OLD))  # its other process
    assert cluster.nodes.slots() == 2 and cluster.nodes.passed_over == {"2"}
    assert cluster.lines == [
        f"node 10.0.0.2 is passed over: it {OLD} It is asked again every minute."
    ]
    cluster.answers = {"2": OLD}
    cluster.wait(ASK_SECONDS - LOOK_SECONDS)
    assert cluster.asked == []
    cluster.wait(4 * ASK_SECONDS)
    assert len(cluster.asked) in (3, 4) and cluster.asked[0] == ["2"] and len(cluster.lines) == 1
    cluster.answers = {"2": None}
    cluster.wait(2 * ASK_SECONDS)
    assert cluster.lines[1:] == ["node 10.0.0.2 is used again."]
    assert cluster.nodes.slots() == 4 and cluster.nodes.passed_over == frozenset()


def test_another_reason_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "1", "2")
    cluster.nodes.pass_over(Unfit("2", OLD))
    cluster.nodes.pass_over(Unfit("2", "has other code."))
    assert "it has other code." in cluster.lines[1]


def test_a_node_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "1", "2")
    cluster.nodes.pass_over(Unfit("2", OLD))
    cluster.names = ["1"]
    cluster.wait(2 * LOOK_SECONDS)
    assert cluster.lines[1:] == ["node 10.0.0.2 is gone; its trials go on elsewhere."]
    assert cluster.nodes.passed_over == frozenset()
    cluster.names = []
    cluster.wait(2 * LOOK_SECONDS)
    cluster.wait(2 * LOOK_SECONDS)
    assert cluster.lines[2:] == [
        "node 10.0.0.1 is gone; its trials go on once another node joins.",
        "nothing is fit to train on; waiting up to 10 minutes.",
    ]
    cluster.names = ["3"]  # the same machine again, by another id
    cluster.wait(2 * LOOK_SECONDS)
    assert cluster.nodes.slots() == 2 and len(cluster.lines) == 4


@pytest.mark.parametrize("names", [(), ("1",), ("1", "2")])
def test_without_a_fit_node_for_ten_minutes_the_run_ends_and_may_be_run_again(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    cluster = Cluster(monkeypatch, *names)
    for name in names:
        cluster.nodes.pass_over(Unfit(name, OLD))
    cluster.answers = dict.fromkeys(names, OLD)
    cluster.wait(PATIENCE - 2 * LOOK_SECONDS)
    with pytest.raises(ClusterUnready) as ended:
        cluster.wait(4 * LOOK_SECONDS)
    assert isinstance(ended.value, TryAgain)  # exit code 75
    assert str(ended.value) == (
        f"nothing was fit to train on for 10 minutes: node 10.0.0.1 {OLD} Then run again: the study"
        " goes on."
        if names
        else "there was no node to train on for 10 minutes. Start one, and run again."
    )


def test_a_fit_node_that_trains_nothing_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first epoch may be long, or others use it."""
    cluster = Cluster(monkeypatch, "1", "2")
    cluster.nodes.pass_over(Unfit("2", OLD))
    cluster.answers = {"2": OLD}
    cluster.wait(3 * PATIENCE)


def test_an_answer_that_its_trials_contradict_saves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked, the node is fit; each process that begins there is not."""
    cluster = Cluster(monkeypatch, "1")
    cluster.answers = {"1": None}

    def begin_again() -> None:
        for _ in range(400):
            if not cluster.nodes.passed_over:
                cluster.nodes.pass_over(Unfit("1", OLD))
            cluster.wait(LOOK_SECONDS)

    with pytest.raises(ClusterUnready, match=r"for 10 minutes: node 10.0.0.1 has numpy"):
        begin_again()


def test_a_report_proves_that_a_node_used_again_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "1")
    cluster.nodes.pass_over(Unfit("1", OLD))
    cluster.answers = {"1": None}
    cluster.wait(2 * ASK_SECONDS)
    assert cluster.lines[-1] == "node 10.0.0.1 is used again."
    cluster.wait(3 * PATIENCE)  # in its first epoch
    cluster.nodes.trained()
    cluster.nodes.pass_over(Unfit("1", OLD))
    cluster.answers = {"1": OLD}
    cluster.wait(PATIENCE - 2 * LOOK_SECONDS)


def test_a_question_that_is_not_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "1", "2")
    cluster.nodes.pass_over(Unfit("2", OLD))
    cluster.wait(4 * ASK_SECONDS)
    assert len(cluster.asked) == 3 and cluster.nodes.passed_over == {"2"}


def test_a_ray_of_this_machine_has_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "1", is_here=True)
    cluster.nodes.pass_over(Unfit("1", OLD))
    assert cluster.lines[0].startswith("this machine is passed over: it has numpy")
    cluster.names = []  # its Ray is lost: that is said elsewhere
    cluster.wait(2 * LOOK_SECONDS)
    assert len(cluster.lines) == 1
