"""Settings of one's own, and another study's front, through whole studies: what is asked, what is
recorded, and what stays the default."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.analysis.ranking import Ranking
from study.analysis.taken import front_settings, spread
from study.answer.answer import answer
from study.answer.confirmation import results_of
from study.store.study import Study, open_study
from study.store.trials import TrialRecord
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import trials_of, unwritten_study

GAMMAS = (2.5, 4.0)


def tried(study: Study, label: str = "focal") -> list[dict[str, Any]]:
    return [dict(record.params) for record in study.records().of(label)]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`other`, whose focal has the front of the two settings that it tries."""
    root = tmp_path_factory.mktemp("storage")
    tries = [{"method.gamma": gamma, "optimizer.lr": 0.2} for gamma in GAMMAS]
    keys: dict[str, Any] = {"methods": ["focal"], "trials": 2, "epochs": 2, "try_first": tries}
    here("run", write_spec(root / "other.yaml", name="other", **keys), "--storage", root)
    assert tried(open_study("other", str(root))) == tries
    return root


def own_copy(storage: Path, tmp_path: Path) -> Path:
    """Its study in a storage of its own, as if it had been moved there."""
    root = tmp_path / "studies"
    shutil.copytree(storage / "other", root / "other")
    plain = yaml.safe_load((root / "other" / "study.yaml").read_text())
    del plain["recorded"]["home"]
    (root / "other" / "study.yaml").write_text(yaml.safe_dump(plain))
    return root


def test_a_front_is_taken_once_and_never_looked_at_again(storage: Path, tmp_path: Path) -> None:
    root = own_copy(storage, tmp_path)
    front = front_settings(Ranking(*_read("other", root)), "focal")
    assert front and all(setting in tried(open_study("other", str(root))) for setting in front)
    keys: dict[str, Any] = {
        "methods": ["focal"],
        "epochs": 1,
        "try_first": [{"method.gamma": 1.0, "optimizer.lr": 0.3}, {"from": "other"}],
    }
    spec = write_spec(tmp_path / "small.yaml", trials=len(front) + 1, **keys)
    shown = here("plan", spec, "--storage", root)
    assert f"from other: the settings of its front ({len(front)} of focal)." in shown
    assert "warning" not in shown.replace("warning: nothing is searched", "")  # the same split
    here("run", spec, "--storage", root)
    study = open_study("small", str(root))
    assert tried(study) == [{"method.gamma": 1.0, "optimizer.lr": 0.3}, *front]
    (_, taken) = study.plain["try_first"]
    assert (taken["from"], taken["split"]) == ("other", "same split")
    assert taken["fronts"]["focal"]["settings"] == front

    shutil.rmtree(root / "other")
    here("run", spec, "--trials", len(front) + 4, "--storage", root)
    published = [{"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)]
    assert tried(study)[-3:] == published
    # The reference is of the published ones, which are not the first by number.
    ranking = Ranking(*_read("small", root))
    assert ranking.defaults == study.records().of("focal")[-3:]


def _read(name: str, root: Path) -> tuple[Study, Any]:
    study = open_study(name, str(root))
    return study, study.records()


def test_of_another_split_plan_and_card_say_what_that_means(storage: Path, tmp_path: Path) -> None:
    root = own_copy(storage, tmp_path)
    keys: dict[str, Any] = {"methods": ["focal"], "epochs": 2, "trials": 1}
    said = (
        "the front of other, which is tried first, was selected on another split of the same data:"
        " samples on which it was selected may be in this study's validation and sealed test splits"
    )
    splits: dict[str, dict[str, Any]] = {
        "seed": {"seed": 1},
        "share": {"data": {"name": "digits", "validation": 0.3}},
    }
    for name, more in splits.items():
        spec = write_spec(
            tmp_path / f"{name}.yaml", name=name, try_first={"from": "other"}, **keys, **more
        )
        assert f"warning: {said}" in here("plan", spec, "--storage", root)
        assert any(said in one for one in here_json("plan", spec, "--storage", root)["warnings"])
    assert f"warning: {said}" in here("run", tmp_path / "seed.yaml", "--storage", root)
    here("export", "seed", "--name", "m", "--storage", root)
    (card,) = {version.description for version in _client(root).search_model_versions("name = 'm'")}
    assert said[1:] in card


def _client(root: Path) -> Any:
    from mlflow import MlflowClient

    uri = f"sqlite:///{root / 'mlflow.db'}"
    return MlflowClient(uri, uri)


def test_what_cannot_be_taken(storage: Path, tmp_path: Path) -> None:
    def said(name: str) -> str:
        keys: dict[str, Any] = {"methods": ["focal"], "try_first": [{"from": name}]}
        spec = write_spec(tmp_path / "small.yaml", **keys)
        return here("plan", spec, "--storage", storage, check=2)

    assert said("othr") == (
        f"small.yaml: try_first[0].from: othr: no study at {storage}/othr. Create it with"
        " `calstudy run SPEC`. Existing studies: other.\n"
    )
    assert said("small") == "small.yaml: try_first[0].from: is this study itself. Name another.\n"


def test_a_study_that_has_begun_keeps_what_it_tried_first(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"methods": ["focal"], "trials": 1, "epochs": 1}
    first = {"method.gamma": 4.0, "optimizer.lr": 0.2}
    spec = write_spec(tmp_path / "small.yaml", try_first=[first], **keys)
    here("run", spec, "--storage", tmp_path)
    spec = write_spec(tmp_path / "small.yaml", try_first=[{**first, "method.gamma": 3.5}], **keys)
    for command in ("plan", "run"):
        assert here(command, spec, "--storage", tmp_path, check=2).endswith(
            "small.yaml: try_first: focal has begun with [{method.gamma: 4.0, optimizer.lr: 0.2}],"
            " and would now begin with [{method.gamma: 3.5, optimizer.lr: 0.2}]. Restore"
            " `try_first` as it was, or give the study another name than small.\n"
        )
    # A method that has no trial yet may have settings of its own.
    methods = ["focal", {"name": "cross_entropy", "try_first": [{"optimizer.lr": 0.4}]}]
    more = {**keys, "methods": methods}
    here("run", write_spec(spec, try_first=[first], **more), "--storage", tmp_path)
    assert tried(open_study("small", str(tmp_path)), "cross_entropy") == [{"optimizer.lr": 0.4}]


def test_the_default_beside_the_answer_is_known_by_its_settings(tmp_path: Path) -> None:
    """cross_entropy/0000 is the user's, cross_entropy/0001 the default (the study's own .1)."""
    keys: dict[str, Any] = {"methods": ["cross_entropy"], "trials": 2, "epochs": 2}
    spec = write_spec(tmp_path / "small.yaml", try_first=[{"optimizer.lr": 0.4}], **keys)
    here("run", spec, "--storage", tmp_path)
    study = open_study("small", str(tmp_path))
    assert tried(study, "cross_entropy") == [{"optimizer.lr": 0.4}, {"optimizer.lr": 0.1}]
    ranking = Ranking(study, study.records())
    default = study.records().named("cross_entropy/0001", "trial")
    assert ranking.default_of("cross_entropy") == default
    assert ranking.defaults == [default]
    chosen = answer(results_of(study)).choice
    assert chosen is not None
    beside = any("default beside it" in one for one in answer(results_of(study)).sentences)
    assert beside == (chosen.record != default)


def test_at_most_five_from_end_to_end() -> None:
    assert spread([1, 2, 3], 5) == [1, 2, 3]
    assert spread(list(range(9)), 5) == [0, 2, 4, 6, 8]
    assert spread(list(range(9)), 1) == [0] and spread([1, 2], 0) == []


def test_a_method_off_the_front_gives_its_own() -> None:
    """mbls is dominated by focal everywhere; its own front is its first two."""

    def trial(label: str, number: int, accuracy: float, ece: float) -> TrialRecord:
        found = {"accuracy": accuracy, "ece": ece}
        return TrialRecord(label, number, "complete", {"method.x": 1.0 * number}, found)

    mbls = ((0.8, 0.05), (0.7, 0.02), (0.6, 0.06))
    of_mbls = [trial("mbls", number, *found) for number, found in enumerate(mbls)]
    records = trials_of([trial("focal", 0, 0.9, 0.01), *of_mbls])
    ranking = Ranking(unwritten_study(["focal", "mbls"]), records)
    assert front_settings(ranking, "focal") == [{"method.x": 0.0}]
    assert front_settings(ranking, "mbls") == [{"method.x": 0.0}, {"method.x": 1.0}]
