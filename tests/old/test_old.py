"""What earlier versions wrote stays readable: studies, a confirmation, their MLflow, a registered model.

COMMIT.tar.xz is what make.sh left, run by the calstudy of that commit: `small`, finished, confirmed, its model
registered; `killed`, whose driver died at work; in later ones `spaces`, of methods whose spaces have changed since; the
specs they were run with; and what it said of them then.

Whoever changes a format - of study.yaml, the ledger, a checkpoint, a trial's files, MLflow's runs, a model's record -
first runs make.sh by the version before the change and adds its archive here. An archive stays for good, and is never
made again.
"""

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from search_spaces import strict_yaml
from study import python
from study.store.study import Study, open_study
from study.store.trials import TrialRecord
from tests.study.command_line import calstudy, here, here_json
from tests.study.counting import counted_once
from trainables.plugins import use_extensions

pytestmark = pytest.mark.slow

ARCHIVES = ("72dc48a", "c7d6098")


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture(params=ARCHIVES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The archive unpacked: specs/, studies/, said/. Its MLflow names the place where it was made."""
    with tarfile.open(Path(__file__).with_name(f"{request.param}.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def remove_home(studies: Path) -> None:
    """As a copied study's message advises."""
    for file in studies.glob("*/study.yaml"):
        text, removed = re.subn(r"^  home:\n(    .*\n)+", "", file.read_text(), flags=re.MULTILINE)
        assert removed == 1
        file.write_text(text)


def by_name(study: Study) -> dict[str, TrialRecord]:
    return {record.name: record for found in study.records().values() for record in found}


def test_it_reads_as_it_did_then(old: Path) -> None:
    """Nothing of it has to be mended to be read: not even `home`."""
    storage = ("--storage", old / "studies")
    said = {
        name: json.loads((old / "said" / f"{name}.json").read_text())
        for name in ("status", "pareto")
    }
    status = here_json("status", "small", *storage)
    assert {label: status["methods"][label]["complete"] for label in said["status"]["methods"]} == {
        label: found["complete"] for label, found in said["status"]["methods"].items()
    }
    for now, then in zip(
        here_json("pareto", "small", *storage)["front"], said["pareto"]["front"], strict=True
    ):
        assert {key: now[key] for key in ("method", "number", "params")} == {
            key: then[key] for key in ("method", "number", "params")
        }
        assert {name: now["validation"][name] for name in then["validation"]} == pytest.approx(
            then["validation"]
        )
    table = " ".join(here("report", "small", "--format", "md", *storage).split())
    assert (
        "focal_default: published default (Mukhoti et al. 2020); soft_focal_default: our default;"
        in table
    )
    here("audit", "small", *storage)
    here("audit", "small-confirm", *storage)
    here("verify", "models:/small@champion", *storage, "--trust-files")
    assert "--trust-files" in here("verify", "models:/small@champion", *storage, check=1)
    refused = here("run", old / "specs" / "small.yaml", *storage, check=2)
    assert "this is a copy" in refused and "remove `home`" in refused


def test_it_exports_with_its_temperature(old: Path) -> None:
    """As then, of the study that says nothing of `serve`; in a new version, which has digests of its files."""
    remove_home(old / "studies")
    storage = ("--storage", old / "studies")
    client = MlflowClient(f"sqlite:///{old / 'studies' / 'mlflow.db'}")
    then = client.get_model_version_by_alias("small", "champion")
    words = (
        "export",
        "small-confirm",
        "--trial",
        then.tags["calstudy.trial"],
        "--name",
        "small",
        *storage,
    )
    shown = here(*words, "--alias", "again")
    assert (
        shown.count("made before `serve` and keeps the temperature") == 1
        and "(--raw serves it)" in shown
    )
    version = client.get_model_version_by_alias("small", "again")
    assert version.version == then.version + 1
    keys = ("trial", "model_sha256", "predictions_sha256")
    assert [version.tags[f"calstudy.{key}"] for key in keys] == [
        then.tags[f"calstudy.{key}"] for key in keys
    ]
    here("verify", "models:/small@again", *storage)
    raw = here(*words, "--raw")
    assert "registered models:/small/3 from small-confirm/" in raw and "made before" not in raw
    here("verify", "models:/small/3", *storage)


def test_a_finished_study_goes_on(old: Path) -> None:
    """One more trial of each method; then it is told, confirmed and exported anew."""
    remove_home(old / "studies")
    storage, spec = ("--storage", old / "studies"), old / "specs" / "small.yaml"
    before = {
        record.name: record
        for found in open_study("small", str(old / "studies")).records().values()
        for record in found
    }
    spec.write_text(spec.read_text().replace("trials: 3", "trials: 4"))
    here("run", spec, *storage)
    study = counted_once(old / "studies", 16)
    after = by_name(study)
    assert {name: after[name] for name in before} == before
    here("run", spec, *storage)  # it keeps the temperature, however often it goes on
    again = open_study("small", str(old / "studies"))
    assert again.serves == "temperature" and "made before `serve`" in again.serves_note
    here("report", "small", *storage, "--bootstrap", 100)
    here("confirm", "small", *storage, "--top", 1, "--seeds", 3)
    here("export", "small", *storage, "--pick", "min ece where accuracy>=0.5", "--name", "small")
    here(
        "export", "small", *storage, "--trial", "focal/0001", "--name", "small", "--alias", "other"
    )
    here("verify", "models:/small@other", *storage)
    here("verify", "models:/small@champion", *storage, "--trust-files")
    for name in ("small", "small-confirm"):
        here("audit", name, *storage)


@pytest.mark.parametrize(
    ("old", "run"), [("72dc48a", calstudy), ("c7d6098", here)], indirect=["old"]
)
def test_a_killed_study_is_taken_up(old: Path, run: Callable[..., object]) -> None:
    """Its driver was killed while trials trained: they go on from their checkpoints, one on Ray, and count once."""
    remove_home(old / "studies")
    storage = ("--storage", old / "studies")
    trials = old / "studies" / "killed" / "trials"
    left = [file.parents[1] for file in trials.glob("*/*/attempt-1/last.pt")]
    run("run", old / "specs" / "killed.yaml", *storage)
    study = counted_once(old / "studies", 4, "killed")
    assert {label: found[0].state for label, found in study.records().items()} == {
        "diverging": "failed",
        "gamma_net": "complete",
        "soft_focal": "complete",
        "cross_entropy": "complete",
    }
    assert left and all(
        "resumed from attempt-1" in (trial / "attempt-2" / "log").read_text() for trial in left
    )
    # Its checkpoints hold the state of torch's optimizers.
    assert here_json("audit", "killed", *storage)["epochs"]["converted"] > 0


@pytest.mark.parametrize("old", ["c7d6098"], indirect=True)
def test_a_study_goes_on_with_its_spaces_where_ours_have_changed(old: Path) -> None:
    """More trials of each method whose space has changed, over the ranges it had; then they are confirmed."""
    remove_home(old / "studies")
    storage, spec = ("--storage", old / "studies"), old / "specs" / "spaces.yaml"
    then, before = (
        open_study("spaces", str(old / "studies")),
        strict_yaml.read(old / "studies/spaces/study.yaml"),
    )
    kept = (
        "spaces keeps what it recorded when it began, where search_spaces/ has changed since (confidence_penalty:"
        " method.weight; mmce: method.normalization; fl_gamma_sece: method.meta_lr; fl_gamma_dece: method.bandwidth,"
        " method.meta_lr; ce_dece_l2: method.bandwidth; sece_on_mmce: method.base.normalization)."
    )
    assert kept in here("plan", spec, *storage)
    for read in (python.Study.from_spec(spec, old / "studies").spec, then.spec):
        assert list(read.variant("mmce").space.distributions) == ["method.weight", "optimizer.lr"]
    assert kept in here("run", spec, *storage, "--trials", 5)
    study = counted_once(old / "studies", 30, "spaces")
    old_records, records = by_name(then), by_name(study)
    assert {name: records[name] for name in old_records} == old_records
    searched = before["recorded"]["meaning"]["methods"]
    for record in records.values():
        assert record.params.keys() == searched[record.label]["space"].keys()
    assert "method.bandwidth" in records["fl_gamma_dece/0004"].params
    # Two defaults of MMCE were enqueued, and no other is: the study has one normalization.
    assert [records[f"mmce/000{number}"].params["method.weight"] for number in range(2)] == [
        2.0,
        4.0,
    ]
    assert all(
        records[f"mmce/000{number}"].params["method.weight"] not in (2.0, 4.0)
        for number in range(2, 5)
    )
    now = strict_yaml.read(old / "studies/spaces/study.yaml")["recorded"]["meaning"]["methods"]
    assert {label: parts["space"] for label, parts in now.items()} == {
        label: parts["space"] for label, parts in searched.items()
    }
    assert kept in here("run", spec, *storage, "--trials", 5)  # as it has now been recorded
    best = here_json("confirm", "spaces", *storage, "--top", 2, "--seeds", 1)
    defaults = {row["label"]: row["default"] for row in best["rows"] if row["role"] == "default"}
    assert defaults["mmce_default"] == defaults["fl_gamma_sece_default"] == "our default"
    penalty = defaults["confidence_penalty_default"]
    assert penalty == "published default (Pereyra et al. 2017)"
    here("confirm", "spaces", *storage, "--trial", "fl_gamma_dece/0004", "--seeds", 2)
    for name in ("spaces", "spaces-confirm"):
        here("audit", name, *storage)
    changed = spec.read_text().replace(
        "search_space: {", "search_space: {method.weight: {low: 0.1, high: 9.0}, "
    )
    spec.write_text(changed)
    refused = calstudy("run", spec, *storage, check=2).stderr
    assert (
        "methods.mmce: method.weight: was {low: 0.1, high: 13.0, log: true}, is {low: 0.1, high: 9.0}"
        in refused
    )
