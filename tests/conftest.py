"""Real hosts for the tests that need them, and one visible line where there can be none."""

import atexit
import contextlib
import gc
import os
import sqlite3
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from benchmarks.chaos.processes import heed_signals
from tests import approval, shared, tiers
from tests.hosts import Host, network, refusal, start_head, start_worker
from trainables import plugins

os.environ.setdefault("COLUMNS", "120")  # of what commands print in this process
# Ray gives its workers a niceness of 15: beside other tests, trials would wait twenty
# times as long as they take.
os.environ.setdefault("RAY_worker_niceness", "0")
# For the first driver of a cluster Ray starts a process a CPU, a second of CPU each, which no actor
# of Tune's takes; a run on this machine alone does without anyway.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
# Without the internet a thread of MLflow's takes back a variable while a request reads them all.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
heed_signals()
tiers.watch_starts()
# What is written in this process need not outlast a power failure: a disk takes milliseconds for
# each commit, of which a trial has eight in MLflow.
os.fsync = lambda file: None


@event.listens_for(Engine, "connect")
def hurry(connection: Any, record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous=off")
        shared.copied_tables()


# The files that take longest, longest first.
LONGEST = (
    "test_whole_line",
    "test_old",
    "test_slurm",
    "test_ray_job",
    "test_hosts",
    "test_run_stopped",
    "test_reproduce",
    "test_chaos",
    "test_run_killed",
    "test_cluster_files",
    "test_autoscaler",
    "test_examples",
    "test_waiting",
    "test_working_directory",
    "test_any_user",
    "test_run_failures",
    "test_doctor",
    "test_audit",
    "test_watching",
    "test_probe",
    "test_deaths",
    "test_gpu",
    "test_ray_compat",
    "test_confirm",
    "test_stacked_runs",
    "test_audited",
    "test_unusable_gpu",
    "test_own_confirmation",
    "test_run",
    "test_early_stopping",
    "test_bootstrap",
    "test_projection",
    "test_at_once",
    "test_run_to_model",
    "test_newcomer",
    "test_targets",
    "test_hostile",
    "test_ray_session",
    "test_program",
    "test_s3",
    "test_moved",
    "test_page",
    "test_confirmed",
    "test_export",
)
FIRST = {f"{name}.py": place for place, name in enumerate(LONGEST)}
# The files whose tests share a cluster, or MLflow's server: one process runs them all.
OF_CLUSTER = {"test_ray_job.py", "test_hosts.py"}
OF_SERVER = {"test_audited.py", "test_projection.py", "test_reader.py"}
TOGETHER = {**dict.fromkeys(OF_CLUSTER, "cluster"), **dict.fromkeys(OF_SERVER, "server")}


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster of three hosts."""

    head: Host
    workers: tuple[Host, Host]
    shared: Path  # a folder all of them see


class SharedCluster:
    """The cluster of the tests of OF_CLUSTER, while they run."""

    def __init__(self) -> None:
        self._raised = contextlib.ExitStack()
        self._cluster: Cluster | None = None

    def get(self, shared: Path) -> Cluster:
        if self._cluster is None:
            self._cluster = self._raised.enter_context(raised_cluster(shared))
        return self._cluster

    def end(self) -> None:
        self._cluster = None
        self._raised.close()


@contextlib.contextmanager
def raised_cluster(shared: Path) -> Iterator[Cluster]:
    with network(3, shared) as (head, *workers):
        start_head(head, cpus=2, jobs=True)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: start_worker(worker, head, cpus=2), workers))
        yield Cluster(head, (workers[0], workers[1]), shared)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write the approved wordings anew")


def pytest_configure(config: pytest.Config) -> None:
    """The fixture `approved`, and what it needs."""
    config.pluginmanager.register(approval.Approvals(config))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, with the files of TOGETHER as one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(Path(file).name, file)

        def _reschedule(self, node: Any) -> None:
            """A process gets its next file when one test is left of its own, not two: a file does
            not wait behind a long test while another process has nothing to do."""
            if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True: of a file without a test of the chosen tier."""
    only_platform = config.getoption("markexpr") == "platform" and collection_path.is_file()
    return True if only_platform and tiers.has_none(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is imported and collected stays to the end: nobody looks through it for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        # To free one by one what it collected takes a process seconds.
        atexit.register(os._exit, 0)
    else:
        gc.unfreeze()  # libraries tell of what is left over when Python ends


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of long tests first: where files run side by side, none of them is
    left over at the end."""
    tiers.mark(items)
    items.sort(
        key=lambda item: (FIRST.get(item.path.name, len(FIRST)), "slow" not in item.keywords)
    )


@pytest.fixture(scope="session", autouse=True)
def shared_by_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where tests/shared.py keeps what is made once."""
    shared.FOLDER[:] = [shared.folder_of(tmp_path_factory.getbasetemp())]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How long a user would have waited for a line, and what this machine left out."""
    if line := tiers.left_out(terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line)
    with contextlib.suppress(AttributeError):  # nothing asked for a temporary folder
        base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        if line := shared.longest_silence(shared.folder_of(base)):
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from tiers.kept(request)


@pytest.fixture(scope="module", autouse=True)
def code_of_no_study() -> Iterator[None]:
    """A study that was opened in pytest's process gives the metrics of its folder names until that
    ends; one whose spec was read, its methods, networks and data too."""
    yield
    plugins.use_extensions(None)
    plugins._opened.clear()
    plugins._metrics_read += 1


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
def shared_cluster() -> Iterator[SharedCluster]:
    made = SharedCluster()
    yield made
    made.end()


@pytest.fixture(scope="module", autouse=True)
def no_idle_cluster(request: pytest.FixtureRequest, shared_cluster: SharedCluster) -> None:
    """Its processes take a sixteenth of a CPU while nobody uses them."""
    if request.path.name not in OF_CLUSTER:
        shared_cluster.end()


@pytest.fixture(scope="module")
def cluster(
    hosts_allowed: None, shared_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Cluster:
    """Head and two workers with two CPUs each, shared by the files of OF_CLUSTER: leave it
    whole."""
    return shared_cluster.get(tmp_path_factory.mktemp("shared"))
