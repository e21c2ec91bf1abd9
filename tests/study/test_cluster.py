"""Joining Ray: what cannot be joined is one clear line, at once."""

import socket
import time

import pytest

from study.cluster import ClusterError, joined, slots
from study.spec import Resources


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_address_where_nothing_listens_is_said_at_once() -> None:
    address, started = f"127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(ClusterError, match=f"no Ray head at {address}"), joined(address, Resources()):
        pass
    assert time.monotonic() - started < 10  # Ray's own patience is minutes


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:port", "127.0.0.1:99999"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ClusterError, match="--address"), joined(address, Resources()):
        pass


@pytest.mark.parametrize(
    ("cluster", "resources", "expected"),
    [
        ({"CPU": 8.0}, Resources(), 8),
        ({"CPU": 8.0}, Resources(cpu=3), 2),
        ({"CPU": 64.0, "GPU": 4.0}, Resources(cpu=2, gpu=1), 4),
        ({"CPU": 64.0, "GPU": 4.0}, Resources(cpu=2, gpu=0.25), 16),
        ({"CPU": 4.0, "GPU": 4.0}, Resources(cpu=2, gpu=1), 2),
    ],
)
def test_as_many_trials_at_once_as_the_scarcer_resource_allows(
    cluster: dict[str, float], resources: Resources, expected: int
) -> None:
    assert slots(cluster, resources) == expected


def test_a_trial_that_needs_more_than_there_is() -> None:
    with pytest.raises(ClusterError, match=r"resources.gpu: a trial needs 1, the cluster has 0"):
        slots({"CPU": 8.0}, Resources(gpu=1))
