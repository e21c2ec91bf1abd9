"""Real hosts for the tests that need them, and one visible line where there can be none."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.postgres import Postgres, missing
from benchmarks.chaos.processes import heed_signals
from tests import shared
from tests.hosts import Host, network, refusal, start_head, start_worker

os.environ.setdefault("COLUMNS", "120")  # of what commands print in this process
# Ray gives its workers a niceness of 15: beside other tests, trials would wait twenty
# times as long as they take.
os.environ.setdefault("RAY_worker_niceness", "0")
heed_signals()

# The files that take longest, longest first.
LONGEST = (
    "test_run_killed",
    "test_chaos",
    "test_slurm",
    "test_cluster_files",
    "test_run",
    "test_audit",
    "test_old",
    "test_run_failures",
    "test_run_stopped",
    "test_run_database",
    "test_submit",
    "test_jobs",
    "test_confirm",
    "test_run_to_model",
    "test_at_once",
    "test_newcomer",
    "test_targets",
    "test_projection",
    "test_hosts",
    "test_doctor",
    "test_s3",
    "test_moved",
    "test_page",
    "test_export",
)
FIRST = {f"{name}.py": place for place, name in enumerate(LONGEST)}


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster of three hosts."""

    head: Host
    workers: tuple[Host, Host]
    shared: Path  # a folder all of them see


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of long tests first: where files run side by side, none of them is
    left over at the end."""
    items.sort(
        key=lambda item: (FIRST.get(item.path.name, len(FIRST)), "slow" not in item.keywords)
    )


@pytest.fixture(scope="session", autouse=True)
def shared_by_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where tests/shared.py keeps what is made once."""
    shared.FOLDER[:] = [shared.folder_of(tmp_path_factory.getbasetemp())]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How long a user would have waited for a line."""
    with contextlib.suppress(AttributeError):  # nothing asked for a temporary folder
        base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        if line := shared.longest_silence(shared.folder_of(base)):
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def own_token_mode() -> Iterator[None]:
    """A command that asks a job server in pytest's process sets it, and a later Ray would start
    with it."""
    before = os.environ.get("RAY_AUTH_MODE")
    yield
    os.environ.pop("RAY_AUTH_MODE", None)
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture(autouse=True)
def no_ray_in_this_process() -> Iterator[None]:
    """A test that leaves one fails. Where such a Ray is lost, maybe minutes later, its C++ code
    ends this process without a word."""
    yield
    ray = sys.modules.get("ray")
    assert ray is None or not ray.is_initialized()


@pytest.fixture(scope="session")
def hosts_allowed() -> None:
    """Skip where this machine lets no hosts be raised: all these tests together are one
    line of pytest's summary."""
    if why := refusal():
        pytest.skip(f"no multi-node tests: {why}")


@pytest.fixture(scope="session")
def timm_there() -> None:
    """Skip where timm is not installed: all these tests together are one line of pytest's
    summary."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("no tests with timm: pip install 'calstudy[timm]'")


@pytest.fixture(scope="session")
def cluster(hosts_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Head and two workers with two CPUs each, shared by the tests of a session: leave it whole."""
    shared = tmp_path_factory.mktemp("shared")
    with network(3, shared) as (head, *workers):
        # A job that is stopped is killed after this much; Ray's own 3 s are too
        # few on a busy machine.
        start_head(head, cpus=2, env={"RAY_JOB_STOP_WAIT_TIME_S": "60"})
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: start_worker(worker, head, cpus=2), workers))
        yield Cluster(head, (workers[0], workers[1]), shared)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that answers, shared by the tests of a session: leave it so."""
    if why := missing():
        pytest.skip(f"no tests with PostgreSQL: {why}")
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database, for one test."""
    url = postgres.create_database(f"test_{os.urandom(4).hex()}")
    yield url
    postgres.query(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)", database="postgres")
