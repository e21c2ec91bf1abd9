"""Artifacts on S3, played by moto, behind a real MLflow server: through the server (proxied),
and past it (direct)."""

import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from study.machines import doctor
from study.schema.uris import TrackingError
from study.tracking.artifact_check import try_artifact
from tests.study.command_line import here, write_spec
from tests.study.tracking.conftest import end_server, start_server
from tests.study.tracking.line import answers, free_port
from tests.study.tracking.studies import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.platform,
    pytest.mark.skipif(
        find_spec("moto") is None, reason='no test of S3: pip install "moto[server]"'
    ),
]

KEYS = {
    "AWS_ACCESS_KEY_ID": "of-a-test",
    "AWS_SECRET_ACCESS_KEY": "hunter2-of-s3",
    "AWS_DEFAULT_REGION": "us-east-1",
}
WAYS = {
    "proxied": ("--serve-artifacts", "--artifacts-destination", "s3://studies/proxied"),
    "direct": ("--no-serve-artifacts", "--default-artifact-root", "s3://studies/direct"),
}
NO_BOTO3 = 'its artifacts are on S3, and boto3 is not installed. Run: pip install "calstudy[s3]"'
NO_KEYS = (
    "its artifacts are on S3, and there are no keys for it (Unable to locate credentials). Set"
    " AWS_ACCESS_KEY_ID"
)


@dataclass(frozen=True)
class Bucket:
    """What moto plays, its log, and the tests' own client of it."""

    endpoint: str
    log: Path
    client: Any

    def content(self) -> set[str]:
        return {
            found["Key"]
            for found in self.client.list_objects_v2(Bucket="studies").get("Contents", [])
        }


@dataclass(frozen=True)
class Place:
    """A server, and a study tracked by it."""

    uri: str
    spec: Path
    storage: Path

    def here(self, command: str, *words: object, check: int = 0) -> str:
        reference = {"run": self.spec, "verify": "models:/small/1", "doctor": self.spec}.get(
            command, "small"
        )
        where = ("--storage", self.storage, "--tracking", self.uri)
        return here(command, reference, *where, *words, check=check)


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, migrated: Path
) -> Iterator[tuple[Bucket, dict[str, Place]]]:
    """All three servers start at once."""
    import boto3

    root, port = tmp_path_factory.mktemp("s3"), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    found: dict[str, Place] = {}
    with (root / "moto.log").open("w") as log:
        moto = subprocess.Popen(command, stdout=log, stderr=log)
    started = []
    try:
        for way, artifacts in WAYS.items():
            (root / way).mkdir()
            of_server = {**KEYS, "MLFLOW_S3_ENDPOINT_URL": endpoint}
            started.append(start_server(root / way, migrated, *artifacts, **of_server))
            spec = write_spec(root / way / "small.yaml", methods=["focal"], trials=1, epochs=1)
            found[way] = Place(f"http://127.0.0.1:{started[-1][0]}", spec, root / way / "studies")
        own = boto3.session.Session(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"])
        client = own.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        wait_for(lambda: _listens(endpoint), 120.0)
        client.create_bucket(Bucket="studies")
        for port, _ in started:
            wait_for(lambda port=port: answers(port), 120.0)
        yield Bucket(endpoint, root / "moto.log", client), found
    finally:
        moto.kill()
        moto.wait()
        for _, process in started:
            end_server(process)


def _listens(endpoint: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).status == 200)
    except OSError:
        return False


@pytest.fixture
def bucket(places: tuple[Bucket, dict[str, Place]]) -> Bucket:
    return places[0]


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this machine one with or without keys, boto3, and an endpoint that answers;
    for its processes too."""

    def make(keys: bool = True, with_boto3: bool = True, endpoint: str = bucket.endpoint) -> None:
        import boto3
        from mlflow.store.artifact.s3_artifact_repo import _cached_get_s3_client

        _cached_get_s3_client.cache_clear()
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # holds the keys found first
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value) if keys else monkeypatch.delenv(name, raising=False)
        nowhere = {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"}
        for name, value in {**nowhere, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", endpoint)
        if not with_boto3:
            monkeypatch.setitem(sys.modules, "boto3", None)
            stands_for = tmp_path / "without"
            stands_for.mkdir()
            (stands_for / "boto3.py").write_text(
                "raise ModuleNotFoundError(\"No module named 'boto3'\", name='boto3')"
            )
            monkeypatch.setenv("PYTHONPATH", str(stands_for))

    return make


def one_line_with(shown: str, words: str) -> None:
    assert len([line for line in shown.splitlines() if words in line]) == 1
    assert "hunter2" not in shown and "Traceback" not in shown


@pytest.mark.parametrize("way", WAYS)
def test_a_study_from_run_to_verify(
    places: tuple[Bucket, dict[str, Place]], machine: Callable[..., None], way: str
) -> None:
    """Behind a proxy a client needs neither keys nor boto3."""
    bucket, place = places[0], places[1][way]
    machine(keys=way == "direct", with_boto3=way == "direct")
    shown = place.here("run")
    assert "1/1 trials" in shown and shown.count("tracking:") == 1
    place.here("sync")
    assert "clean" in place.here("audit")
    assert "registered models:/small/1" in place.here("export", "--name", "small")
    assert "models:/small/1: verified on 287 validation samples" in place.here("verify")
    ours = {key for key in bucket.content() if key.startswith(f"{way}/")}
    for artifact in ("artifacts/study.yaml", "artifacts/calstudy/record.json", "artifacts/MLmodel"):
        assert [key for key in ours if key.endswith(f"/{artifact}")], artifact
    assert not [key for key in ours if "calstudy-doctor" in key]


@pytest.mark.parametrize(
    ("lacks", "words", "trials"),
    [("with_boto3", NO_BOTO3, 2), ("keys", NO_KEYS, 3)],
    ids=["boto3", "keys"],
)
def test_what_a_machine_lacks_is_one_line_of_every_command(
    places: tuple[Bucket, dict[str, Place]],
    machine: Callable[..., None],
    lacks: str,
    words: str,
    trials: int,
) -> None:
    place = places[1]["direct"]
    machine()
    place.here("run", "--trials", trials - 1)
    place.here("export", "--name", "small")
    machine(**{lacks: False})
    shown = place.here("run", "--trials", trials)  # goes on
    assert f"{trials}/{trials} trials" in shown
    one_line_with(shown, f"tracking: study.yaml was not uploaded: MLflow at {place.uri}: {words}")
    one_line_with(
        place.here("sync"), f"tracking: study.yaml was not uploaded: MLflow at {place.uri}: {words}"
    )
    assert "clean" in place.here("audit")
    shown = place.here("export", "--name", "another", check=2)
    assert shown.startswith(f"MLflow at {place.uri}: {words}") and shown.count("\n") == 1
    shown = place.here("verify", check=1)
    assert shown.startswith(f"models:/small/1: NOT verified: {words}") and shown.count("\n") == 1
    shown = place.here("doctor", check=1)
    one_line_with(
        shown, f"failed: this machine: no artifact can be written. MLflow at {place.uri}: {words}"
    )


@pytest.mark.parametrize("way", WAYS)
def test_doctor_writes_and_deletes_one_artifact(
    places: tuple[Bucket, dict[str, Place]], machine: Callable[..., None], way: str
) -> None:
    bucket, place = places[0], places[1][way]
    machine(keys=way == "direct", with_boto3=way == "direct")
    client = MlflowClient(place.uri, place.uri)

    def all_there() -> tuple[set[str], list[str], list[str]]:
        experiments = [found.experiment_id for found in client.search_experiments(view_type=3)]
        return (
            bucket.content(),
            experiments,
            [run.info.run_id for run in client.search_runs(experiments, run_view_type=3)],
        )

    before = all_there()
    shown = place.here("doctor")
    assert (
        "artifacts: one written to"
        f" {'mlflow-artifacts:/' if way == 'proxied' else 's3://studies/direct/'}" in shown
    )
    assert f'"PUT /studies/{way}/' in (log := bucket.log.read_text()) and "/calstudy-doctor-" in log
    assert all_there() == before


def in_bucket(place: Place, name: str, location: str) -> str:
    """The name of a study whose artifacts lie there."""
    MlflowClient(place.uri, place.uri).create_experiment(name, artifact_location=location)
    return name


def test_doctor_names_the_cause(
    places: tuple[Bucket, dict[str, Place]], machine: Callable[..., None], tmp_path: Path
) -> None:
    bucket, uri = places[0], places[1]["direct"].uri
    machine()
    assert try_artifact(uri, in_bucket(places[1]["direct"], "kept", "s3://studies/kept"))[0]
    lost = in_bucket(places[1]["direct"], "lost", "s3://nobody-made-it/studies")
    with pytest.raises(
        TrackingError,
        match=r"in the bucket nobody-made-it \(NoSuchBucket: .*\)\. Create it, or fix the",
    ):
        try_artifact(uri, lost)
    away = f"http://127.0.0.1:{free_port()}"
    machine(endpoint=away)
    with pytest.raises(
        TrackingError, match=f"S3 at {away} does not answer. Fix MLFLOW_S3_ENDPOINT_URL"
    ):
        try_artifact(uri, None)
    machine()
    reset, plain = f"{bucket.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    # From now on moto checks the keys.
    urllib.request.urlopen(urllib.request.Request(reset, b"0", plain))
    try:
        with pytest.raises(
            TrackingError, match=r"S3 refuses PutObject.*Check the keys, and what they may do"
        ) as caught:
            try_artifact(uri, None)
        assert "hunter2" not in str(caught.value)
        proxied = in_bucket(places[1]["proxied"], "refused", "mlflow-artifacts:/refused")
        with pytest.raises(
            TrackingError,
            match=r"^MLflow at http://\S+: the server answers 500; its log says why\.$",
        ):
            try_artifact(places[1]["proxied"].uri, proxied)
    finally:
        urllib.request.urlopen(urllib.request.Request(reset, b"inf", plain))
    folder = tmp_path / "of the server"
    local = in_bucket(places[1]["direct"], "local", str(folder / "7"))
    with pytest.raises(
        TrackingError, match=f"its artifacts go to {folder}, which this machine cannot write. Start"
    ):
        try_artifact(uri, local)
    folder.mkdir()
    assert try_artifact(uri, local) == (True, f"in {folder}") and list(folder.iterdir()) == []


def test_what_a_store_does_not_delete_is_named(
    places: tuple[Bucket, dict[str, Place]],
    machine: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3 answers 200 to the deletion of keys it refuses to delete."""
    bucket, place = places[0], places[1]["direct"]
    machine()
    before = bucket.content()
    monkeypatch.setattr(
        "mlflow.store.artifact.s3_artifact_repo.S3ArtifactRepository.delete_artifacts",
        lambda store, path: None,
    )
    _, finding = doctor._tracking(place.uri, None, place.storage)
    (left,) = bucket.content() - before
    bucket.client.delete_object(Bucket="studies", Key=left)
    folder = left.rpartition("/")[0]
    assert (finding.check, finding.state) == ("artifacts", "warning")
    assert finding.text.endswith(f"not deleted (it is still there). Remove s3://studies/{folder}.")
