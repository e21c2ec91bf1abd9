"""What earlier versions wrote stays readable: studies, a confirmation, their
MLflow, a registered model.

COMMIT.tar.xz is what make.sh left, run by the calstudy of that commit: `small`, finished,
confirmed, its model registered; `stopped`, finished, with early stopping and constraints; `killed`,
whose driver died while trials trained; `spaces`, killed midway, of methods whose spaces have
changed since; the specs they were run with; and what it said of them then. Those since 8972bb9 have
`masks`, `texts`, `grouped` and `stacks`, finished and confirmed; and `stacks_killed`. 31f859e has
`raced` alone: conditional ranges, retries, a race and calibrators.

Whoever changes a format - of study.yaml, the ledger, a checkpoint, a trial's files, MLflow's runs,
a model's record - first runs make.sh by the version before the change and adds its archive here. An
archive stays for good, and is never made again.
"""

import json
import re
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from search_spaces import strict_yaml
from study import python
from study.store.study import StudyFolder, open_study
from tests import references
from tests.study.command_line import here, here_json
from tests.study.counting import counted_once
from trainables.loading.trial_data import trial_data
from trainables.plugins import use_extensions
from trainables.training.learner import Learner

pytestmark = [pytest.mark.slow, pytest.mark.platform]

FIRST, STACKS, RACED = "cdc0cb8", "8972bb9", "31f859e"
NUMBER = re.compile(r"\d*\.\d+|\d+")
# What fields that came later meant before.
BEFORE = {
    "gamma_net": {
        "method.length": "free",
        "method.meta_batch": "batch_size",
        "method.kernel": "normalized",
    },
    "sece": {"method.kernel": "normalized"},
}
# A finished trial's row, apart from what other trials decide.
OWN = {"front", "state"}


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The first archive unpacked: specs/, studies/, said/. Its MLflow names the
    place where it was made."""
    return unpacked(FIRST, tmp_path)


def unpacked(commit: str, folder: Path) -> Path:
    with tarfile.open(Path(__file__).with_name(f"{commit}.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def moved(old: Path) -> Path:
    """The archive, its studies at home where they are now: as a copied study's message advises."""
    for file in (old / "studies").glob("*/study.yaml"):
        text, removed = re.subn(r"^  home:\n(    .*\n)+", "", file.read_text(), flags=re.MULTILINE)
        assert removed == 1
        file.write_text(text)
    return old


def said(old: Path, study: str, command: str) -> Any:
    return json.loads((old / "said" / f"{study}-{command}.json").read_text())


def check_said(now: Any, then: Any, where: str) -> None:
    """All that was said then is said now, with its value; of sentences, the
    numbers. More may be said. The intervals of calibration errors, which have a floor, are by
    another rule now. A code that is another now is said beside it, as KEY_former."""
    if isinstance(then, dict):
        for key, value in then.items():
            if key not in ("low", "high") or "floor" not in now:
                check_said(now.get(f"{key}_former", now[key]), value, f"{where}: {key}")
    elif isinstance(then, list):
        assert len(now) == len(then), where
        for place, value in enumerate(then):
            check_said(now[place], value, f"{where}: {place}")
    elif isinstance(then, str) and " " in then:
        assert NUMBER.findall(now) == NUMBER.findall(then), where
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=1e-6, abs=1e-9), where
    else:
        assert now == then, where


def check_values(model: Any, sentences: list[str], where: str) -> None:
    """The model's values and intervals are those that were said, to four digits; of calibration
    errors the values."""
    then = " ".join(sentences)
    for value in (model["test"] or model["validation"]).values():
        keys = ("value",) if "floor" in value else ("value", "low", "high")
        numbers = [value[key] for key in keys if key in value]
        written = [f"{number:.4f}" for number in numbers]
        shown = written[0] + (f" [{written[1]}, {written[2]}]" if written[1:] else "")
        assert shown in then, (where, shown)


def rows(study: str, storage: Path) -> dict[str, dict[str, Any]]:
    """What `trials` says of each."""
    return {row["trial"]: row for row in here_json("trials", study, "--storage", storage)}


def check_unchanged(old: Path, study: str, count: int) -> None:
    """Each of so many trials that had ended then has its values; whether it is on
    a front, others decide too."""
    now = rows(study, old / "studies")
    then = [row for row in said(old, study, "trials") if row["ended"] is not None]
    assert len(then) == count
    for row in then:
        kept = {key: value for key, value in row.items() if key not in OWN}
        check_said(now[row["trial"]], kept, row["trial"])


def by_check(audit: dict[str, Any]) -> dict[str, Any]:
    """An audit with its checks by name."""
    return {**audit, "checks": {check["name"]: check for check in audit["checks"]}}


def history(trial: Path) -> list[dict[str, float]]:
    """The epochs of a trial's last attempt."""
    file = max(trial.glob("attempt-*/history.json"))
    return list(json.loads(file.read_text()))


def check_all_said(old: Path, studies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """What reads these studies says what it said then; returns of how many commands."""
    storage = ("--storage", old / "studies")
    # Where commands look anyway: those that are said name no folder, which has numbers.
    monkeypatch.setenv("CALSTUDY_STORAGE", str(old / "studies"))
    read = 0
    for file in (old / "said").glob("*.json"):
        study, _, command = file.stem.rpartition("-")
        if study not in studies or command == "confirm":  # which writes
            continue
        now = here_json(command, study, *storage)
        then = said(old, study, command)
        if command == "audit":
            assert now["clean"]
            then.pop("note")  # that it is a copy
            then.pop("epochs", None)
            now, then = by_check(now), by_check(then)
            # Others find it now, or nobody could act on it.
            for gone in ("running", "steps", "registered", "stacks", "epochs"):
                then["checks"].pop(gone, None)
            # Files of rungs and of test were compared by other checks.
            files = then["checks"]["files"].pop("counted")
            assert now["checks"]["files"]["counted"] >= files
        if command == "answer" and study != "raced":  # in other words then, with four digits
            check_values(now["model"], then.pop("sentences"), file.stem)
        check_said(now, then, file.stem)
        read += 1
    return read


def test_it_reads_as_it_did_then(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it has to be mended to be read: not even `home`."""
    storage = ("--storage", old / "studies")
    assert check_all_said(old, ("small", "stopped", "killed", "spaces"), monkeypatch) == 14
    table = " ".join(here("report", "small", "--format", "md", *storage).split())
    assert "soft_focal_default: our default;" in table
    # Its diagnostics have no norm of the features.
    norms = here("figures", "small", "--only", "norms", "--output", old / "drawn", *storage)
    assert (old / "drawn" / "norms.png").is_file() and "norms: the features of" in norms
    assert here("trials", "small", "--epochs", *storage).count("best_ece") == 4
    here("audit", "small-confirm", *storage)
    here("verify", "models:/small@champion", *storage)
    refused = here("run", old / "specs" / "small.yaml", *storage, check=2)
    assert "is not the study's home" in refused and "`calstudy run small --moved`" in refused


def test_what_was_confirmed_is_confirmed(moved: Path) -> None:
    """The same candidates and seeds: nothing is retrained, test is not opened again,
    the rows are those of then."""
    storage = ("--storage", moved / "studies")
    ledger = moved / "studies" / "small-confirm" / "ledger.log"
    opened = ledger.read_text().count("opening")
    assert opened > 0
    now = here_json("confirm", "small", "--seeds", 2, *storage)  # --top took others then
    check_said(now, said(moved, "small", "confirm"), "confirm")
    assert ledger.read_text().count("opening") == opened
    here("audit", "small-confirm", *storage)


def test_it_exports_with_its_temperature(moved: Path) -> None:
    """The model registered then is the one exported now, with a card of its own: that has other
    intervals of calibration errors. One of an extension beside it."""
    studies = moved / "studies"
    storage = ("--storage", studies)
    client = MlflowClient(f"sqlite:///{studies / 'mlflow.db'}")
    then = client.get_model_version_by_alias("small", "champion")
    here("export", "small", "--name", "small", "--alias", "again", *storage)
    again = client.get_model_version_by_alias("small", "again")
    for key in ("trial", "model_sha256", "predictions_sha256", "temperature"):
        assert again.tags[f"calstudy.{key}"] == then.tags[f"calstudy.{key}"]
    assert int(again.version) == 2
    here("verify", "models:/small@again", *storage)

    shown = here("export", "small", "--trial", "soft_focal/0000", "--name", "small", *storage)
    exported = np.load(studies / "small/trials/soft_focal/0000/attempt-1/predictions.npz")
    expected = fine_temperature(exported["logits"], exported["labels"])
    found = re.search(r"after temperature ([\d.]+) \(served\)", shown)
    assert found is not None
    assert float(found[1]) == pytest.approx(expected, abs=1e-4)  # as printed
    here("verify", "models:/small/3", *storage)

    confirmed = then.tags["calstudy.trial"]
    raw = here(
        "export", "small-confirm", "--trial", confirmed, "--name", "small", "--raw", *storage
    )
    assert f"registered models:/small/4 from small-confirm/{confirmed}" in raw
    here("verify", "models:/small/4", *storage)


def test_a_finished_study_goes_on(moved: Path) -> None:
    """One more trial of each method; then it is told, confirmed and exported anew."""
    studies = moved / "studies"
    storage = ("--storage", studies)
    spec = moved / "specs" / "small.yaml"
    spec.write_text(spec.read_text().replace("trials: 3", "trials: 4"))
    here("run", spec, *storage)
    study = counted_once(studies, 16)
    assert study.stack is None and study.recorded.meaning["stack"] == "off"
    check_unchanged(moved, "small", 12)
    now = rows("small", studies)
    for name in (
        "soft_focal/0000",
        "soft_focal/0003",
    ):  # the old one's temperature, in the new one too
        arrays = np.load(study.directory / "trials" / name / "attempt-1" / "predictions.npz")
        expected = cross_fitted_nll(arrays["logits"], arrays["labels"])
        assert now[name]["ts_nll"] == pytest.approx(expected, abs=2e-6)
    here("report", "small", *storage, "--bootstrap", 100)
    here("confirm", "small", *storage, "--top", 1, "--seeds", 3)
    here("export", "small", *storage, "--pick", "min ece where accuracy>=0.5", "--name", "small")
    here(
        "export",
        "small",
        *storage,
        "--trial",
        "priority_on_focal/0003",
        "--name",
        "small",
        "--alias",
        "other",
    )
    here("verify", "models:/small@other", *storage)
    here("verify", "models:/small@champion", *storage)
    for name in ("small", "small-confirm"):
        here("audit", name, *storage)
    code = moved / "specs/extensions/methods/soft_focal.py"
    code.write_text(code.read_text() + "# changed\n")
    refused = here("run", spec, *storage, "--trials", 5, check=2)
    assert (
        "methods/soft_focal.py has changed since trial soft_focal/0000 was trained with it"
        in refused
    )


def fine_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The reference's, whose grid has a step of .001, and around it one of .00005."""
    near, _ = references.fit_temperature_with_prior(logits, labels)
    around = near * np.exp(np.linspace(-0.001, 0.001, 41))
    costs = [references.cost_of_temperature(logits, labels, temperature) for temperature in around]
    return float(around[np.argmin(costs)])


def cross_fitted_nll(logits: np.ndarray, labels: np.ndarray) -> float:
    """NLL where the temperature of each fifth is that of the others."""
    fold = np.arange(len(labels)) % 5
    total = 0.0
    for own in range(5):
        there, rest = fold == own, fold != own
        temperature = fine_temperature(logits[rest], labels[rest])
        total += there.sum() * references.nll(logits[there] / temperature, labels[there])
    return total / len(labels)


def test_a_killed_study_is_taken_up(moved: Path) -> None:
    """Its driver was killed while trials trained: they go on from their checkpoints, and count once
    (on Ray: test_run_killed.py)."""
    studies = moved / "studies"
    storage = ("--storage", studies)
    spec = moved / "specs" / "killed.yaml"
    trials = studies / "killed" / "trials"
    left = {file.parents[2].name: file.parents[1] for file in trials.glob("*/*/attempt-1/last.pt")}
    assert left.keys() == {"gamma_net", "priority_on_soft"}
    here("run", spec, *storage)
    study = counted_once(studies, 4, "killed")
    assert {row["method"]: row["state"] for row in rows("killed", studies).values()} == {
        "diverging": "failed",
        "gamma_net": "complete",
        "priority_on_soft": "complete",
        "cross_entropy": "complete",
    }
    check_unchanged(moved, "killed", 1)
    audit = here_json("audit", "killed", *storage)
    assert audit["clean"]

    # Of their method's state and all random streams nothing was lost: they are as if never killed.
    for label, trial in left.items():
        log = (trial / "attempt-2" / "log").read_text()
        assert "resumed from attempt-1" in log
        first = min(int(epoch) for epoch in re.findall(r"^epoch=(\d+)", log, re.MULTILINE))
        assert first > 1
        resumed = history(trial)
        assert len(resumed) == study.spec.epochs
        whole = trained_anew(study, label, first)
        pairs = list(zip(resumed[:first], whole, strict=True))
        # Those before it were trained where the archive was made: a CPU that rounds otherwise ends
        # elsewhere, and what follows cannot be compared.
        if all(map(alike, pairs[:-1])):
            assert alike(pairs[-1]), pairs[-1]
        else:
            warnings.warn(f"{label}: not compared, for this CPU rounds otherwise", stacklevel=1)


def trained_anew(study: StudyFolder, label: str, epochs: int) -> list[dict[str, float]]:
    """The first epochs of a method's first trial, without an interruption."""
    config = study.config_of(study.records().of(label)[0])
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    return [learner.train_epoch() for _ in range(epochs)]


def alike(pair: tuple[dict[str, float], dict[str, float]]) -> bool:
    """On another machine of the same kind, not bit for bit."""
    one, other = map(untimed, pair)
    return bool(one == pytest.approx(other, rel=1e-3))


def untimed(row: dict[str, float]) -> dict[str, float]:
    """An epoch without when it was."""
    return {key: value for key, value in row.items() if key not in ("time", "seconds")}


def test_an_early_stopped_study_goes_on(moved: Path) -> None:
    """Two more trials of each method, compared with those whose rungs were recorded then."""
    studies = moved / "studies"
    storage = ("--storage", studies)
    spec = moved / "specs" / "stopped.yaml"
    before = rows("stopped", studies)
    here("run", spec, *storage, "--trials", 8)
    study = counted_once(studies, 24, "stopped")
    check_unchanged(moved, "stopped", 18)
    now = rows("stopped", studies)
    assert {name: now[name]["state"] == "pruned" for name in before} == {
        name: row["state"] == "pruned" for name, row in before.items()
    }
    for name, row in now.items():
        epochs = 2 if row["state"] == "pruned" else 5
        assert len(history(study.directory / "trials" / name)) == epochs
    audit = here_json("audit", "stopped", *storage)
    assert audit["clean"]
    assert by_check(audit)["checks"]["rungs"]["counted"] == 24
    best = max(row["accuracy"] for row in now.values() if row["state"] == "complete")
    for row in now.values():
        if row["front"]:
            assert row["accuracy"] >= best - 0.05 and row["nll"] <= 0.5
    spec.write_text(spec.read_text().replace("at: 0.4", "at: 0.6"))
    refused = here("run", spec, *storage, check=2)
    assert "early_stopping.at: was 0.4, is 0.6" in refused


def test_a_study_goes_on_with_its_spaces_where_ours_have_changed(moved: Path) -> None:
    """Killed midway: the other trials of each method are over the ranges, and after
    the defaults, that it had.

    Ours are others than those it was begun with (specs/search_spaces/); the
    user's own is changed here.
    """
    studies = moved / "studies"
    storage = ("--storage", studies)
    spec = moved / "specs" / "spaces.yaml"
    own = moved / "specs/extensions/search_spaces/soft_focal.yaml"
    own.write_text(
        "source: changed\nspace: {method.share: {low: 0.9, high: 1.0}}\ndefaults: [{method.share:"
        " 0.95}]\n"
    )
    kept = (
        "spaces keeps what it recorded when it began, where calstudy has changed since"
        " (confidence_penalty: method.weight, tried first; mmce: method.normalization,"
        " method.weight, tried first; fl_gamma_dece: method.meta_lr, method.length,"
        " method.meta_batch, method.gamma_max, method.tau, tried first;"
        " sece_on_mmce: method.base.normalization, method.base.weight, tried first; soft_focal:"
        " method.share, tried first)."
    )
    assert kept in here("plan", spec, *storage)
    for read in (
        python.Study.from_spec(spec, studies).spec,
        open_study("spaces", str(studies)).spec,
    ):
        assert list(read.variant("mmce").space.distributions) == ["method.weight", "optimizer.lr"]
    searched = strict_yaml.read(studies / "spaces/study.yaml")["recorded"]["meaning"]["methods"]
    ended = sum(row["ended"] is not None for row in rows("spaces", studies).values())
    assert 5 <= ended < 20
    here("run", spec, *storage)
    assert kept in here("run", spec, *storage, "--trials", 5)
    counted_once(studies, 25, "spaces")
    check_unchanged(moved, "spaces", ended)

    now = rows("spaces", studies)
    for row in now.values():
        space = searched[row["method"]]["space"]
        values = {key: value for key, value in row.items() if "." in key and value is not None}
        assert values.keys() == space.keys()
        for path, value in values.items():
            assert space[path]["low"] <= value <= space[path]["high"]
    # Its four defaults of MMCE come first, those not begun then too; ours, 2 and 4, never.
    weights = [now[f"mmce/000{number}"]["method.weight"] for number in range(5)]
    assert weights[:4] == [2.5, 5.0, 7.5, 10.0]
    assert weights[4] not in (2.0, 4.0)
    recorded = strict_yaml.read(studies / "spaces/study.yaml")["recorded"]["meaning"]["methods"]
    for label, parts in searched.items():
        assert recorded[label]["space"] == parts["space"]
        assert recorded[label]["defaults"] == parts["defaults"]
        fixed = recorded[label]["fixed"]
        assert fixed.items() >= parts["fixed"].items()
        late = {path: value for path, value in fixed.items() if path not in parts["fixed"]}
        assert late == BEFORE.get(fixed["method.name"], {})

    best = here_json("confirm", "spaces", *storage, "--top", 2, "--seeds", 1)
    defaults = {row["label"]: row["default"] for row in best["rows"] if row["role"] == "default"}
    assert defaults["mmce_default"] is not None
    for name in ("spaces", "spaces-confirm"):
        here("audit", name, *storage)
    spec.write_text(
        spec.read_text().replace(
            "search_space: {", "search_space: {method.weight: {low: 0.1, high: 9.0}, "
        )
    )
    refused = here("run", spec, *storage, check=2)
    assert (
        "methods.mmce: method.weight: was {low: 0.2, high: 12.0, log: true}, is {low: 0.1, high:"
        " 9.0}" in refused
    )


def test_stacks_masks_texts_and_groups_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they did then; and the study killed while two stacks trained goes on."""
    old = unpacked(STACKS, tmp_path)
    made = f"/tmp/calstudy-{STACKS}"
    for file in (old / "studies").glob("*/study.yaml"):
        text = file.read_text().replace(f"{made}/data", f"{old}/data")
        file.write_text(text.replace(made, f"{old}/gone"))  # where it ran may be there still
    storage = ("--storage", old / "studies")
    finished = ("masks", "texts", "grouped", "stacks")
    assert check_all_said(old, (*finished, "stacks_killed"), monkeypatch) == 22
    for name in finished:
        here("audit", f"{name}-confirm", *storage)
        here("confirm", name, "--top", 1, "--seeds", 2, "--moved", *storage)
        here("export", name, "--name", name, *storage)
    now = rows("stacks_killed", old / "studies")
    assert any(row["ended"] is None for row in now.values())
    here("run", "stacks_killed", "--moved", *storage)
    counted_once(old / "studies", 8, "stacks_killed")
    here("audit", "stacks_killed", *storage)


def test_a_race_retries_and_calibrators_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they did then. The same confirmation trains and opens nothing; the search goes on."""
    old = unpacked(RACED, tmp_path)
    storage = ("--storage", old / "studies")
    assert check_all_said(old, ("raced",), monkeypatch) == 5
    confirming = old / "studies" / "raced-confirm" / "ledger.log"
    opened = confirming.read_text().count("opening")
    assert opened > 0
    options = ("--candidates", 2, "--at-most", 5, "--calibrators", "structured_vector")
    now = here_json("confirm", "raced", *options, "--moved", *storage)
    check_said(now, said(old, "raced", "confirm"), "confirm")
    assert confirming.read_text().count("opening") == opened
    for name in ("raced", "raced-confirm"):
        here("audit", name, *storage)
    for version in (1, 2):  # with its temperature or as trained; with structured vector scaling
        here("verify", f"models:/raced/{version}", *storage)

    here("run", "raced", "--trials", 4, "--moved", *storage)
    study = counted_once(old / "studies", 12, "raced")
    check_unchanged(old, "raced", 9)
    assert [one.is_retry for one in study.records().of("fragile")] == [True, True, True, False]
    for record in study.records():
        assert ("optimizer.momentum" in record.params) == (record.params["optimizer.name"] == "sgd")
