"""Exports of one trial at once, and exports killed at any step: one version in the end."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from study.answer.choice import Choice
from study.answer.confirmation import results_of
from study.registry import upload
from study.registry.export import export
from study.store.study import open_study
from study.tracking.registered import unfinished
from tests.study.audit.test_audit import audited, off
from tests.study.audit.test_audit import finished as finished  # fixture
from tests.study.trained import copy_of

pytestmark = pytest.mark.slow

# Each process is forked from one that has imported what an export needs.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        __name__,
        "mlflow.pytorch",
        "mlflow.store.model_registry.sqlalchemy_store",
        "mlflow.store.tracking.sqlalchemy_store",
        "torch.export._trace",
    ]
)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """The imports take seconds, once: they are no test's."""
    process = PROCESSES.Process(target=os.getpid)
    process.start()
    process.join()


@pytest.fixture
def storage(finished: Path, tmp_path: Path) -> Path:
    return copy_of(finished, tmp_path / "storage")


@contextmanager
def no_lock(directory: Path) -> Iterator[bool]:
    yield False


def exporting(storage: Path, name: str, dies_at: str | None = None, locks: bool = True) -> None:
    study = results_of(open_study("small", str(storage))).study
    record = study.records().named("focal/0000", "--trial")
    with pytest.MonkeyPatch.context() as patch:
        if not locks:
            patch.setattr(upload, "export_lock", no_lock)
        if dies_at is not None:
            of = upload if dies_at == "upload" else MlflowClient
            patch.setattr(of, dies_at, lambda *words, **named: os.kill(os.getpid(), signal.SIGKILL))
        export(Choice(study, record), name, "champion", study.tracking(None))


def at_once(count: int, *words: object) -> list[int | None]:
    """The exit codes of as many exports."""
    running = [PROCESSES.Process(target=exporting, args=words) for _ in range(count)]
    for process in running:
        process.start()
    for process in running:
        process.join(240)
    return [process.exitcode for process in running]


def registry(storage: Path, name: str) -> tuple[list[str], int]:
    """The versions' numbers, and how many models no version has."""
    client = MlflowClient(
        f"sqlite:///{storage / 'mlflow.db'}", f"sqlite:///{storage / 'mlflow.db'}"
    )
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    left = unfinished(client, experiment.experiment_id, open_study("small", str(storage)).id)
    return [version.version for version in client.search_model_versions(f"name='{name}'")], len(
        left
    )


@pytest.mark.platform
def test_ten_exports_at_once_give_one_version(storage: Path) -> None:
    assert at_once(10, storage, "m") == [0] * 10
    assert registry(storage, "m") == ([1], 0)
    assert off(audited(storage)) == {}


def test_so_they_do_where_their_mounts_share_no_locks(storage: Path) -> None:
    assert at_once(2, storage, "m", None, False) == [0] * 2
    versions, left = registry(storage, "m")
    assert len(versions) == 1 and left == 0
    assert off(audited(storage)) == {}


@pytest.mark.parametrize("step", ["upload", "finalize_logged_model", "create_model_version"])
def test_what_a_killed_export_leaves_is_finished_by_the_next(storage: Path, step: str) -> None:
    assert at_once(1, storage, "m", step) == [-signal.SIGKILL]
    versions, left = registry(storage, "m")
    assert (versions, left) == ([], 1)
    exporting(storage, "m")
    assert registry(storage, "m") == ([1], 0)


def test_an_export_killed_before_its_alias_is_finished_by_the_next(storage: Path) -> None:
    assert at_once(1, storage, "m", "set_registered_model_alias") == [-signal.SIGKILL]
    assert registry(storage, "m") == ([1], 0)
    exporting(storage, "m")
    client = MlflowClient(
        f"sqlite:///{storage / 'mlflow.db'}", f"sqlite:///{storage / 'mlflow.db'}"
    )
    assert client.get_model_version_by_alias("m", "champion").version == 1


def test_a_version_that_a_user_made_keeps_its_model(storage: Path) -> None:
    """It has neither our tags nor a run; what deletes models goes by the files that versions
    have."""
    exporting(storage, "m")
    client = MlflowClient(
        f"sqlite:///{storage / 'mlflow.db'}", f"sqlite:///{storage / 'mlflow.db'}"
    )
    (version,) = client.search_model_versions("name='m'")
    client.create_registered_model("production")
    client.create_model_version("production", version.source)
    client.delete_model_version("m", version.version)
    assert registry(storage, "production") == ([1], 0)
    exporting(storage, "m")  # another version, of files of its own
    assert registry(storage, "m") == ([2], 0)
    assert off(audited(storage)) == {}
    # A deleted version leaves a model, which is no fault.
    client.delete_model_version("m", "2")
    assert registry(storage, "m") == ([], 1)
    assert off(audited(storage)) == {}
