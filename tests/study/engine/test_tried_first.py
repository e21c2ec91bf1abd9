"""Settings of one's own, through whole studies: what is asked, what is recorded, what stays."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.analysis.ranking import Ranking
from study.answer.answer import answer
from study.answer.confirmation import results_of
from study.store.study import StudyFolder, open_study
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import unanswered as unanswered  # fixture

pytestmark = pytest.mark.usefixtures("unanswered")


def tried(study: StudyFolder, label: str = "focal") -> list[dict[str, Any]]:
    return [dict(record.params) for record in study.records().of(label)]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`other`, of focal, which tries settings of its own."""
    root = tmp_path_factory.mktemp("storage")
    tries = [{"method.gamma": 2.5, "optimizer.lr": 0.2}, {"method.gamma": 4.0}]
    keys: dict[str, Any] = {"methods": ["focal"], "trials": 2, "epochs": 2, "try_first": tries}
    here("run", write_spec(root / "other.yaml", name="other", **keys), "--storage", root)
    return root


def test_what_pareto_prints_as_json_is_an_item_as_it_stands(storage: Path, tmp_path: Path) -> None:
    """A row's `params`, pasted as text, is tried: with the same values, and first."""
    rows = here_json("pareto", "other", "--storage", storage)["front"]
    pasted = "\n".join(f"  - {json.dumps(row['params'])}" for row in rows)
    keys: dict[str, Any] = {"methods": ["focal"], "trials": len(rows) + 3, "epochs": 1}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    spec.write_text(f"{spec.read_text()}\ntry_first:\n{pasted}\n")
    here("run", spec, "--storage", tmp_path)
    study = open_study("small", str(tmp_path))
    published = [{"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)]
    assert tried(study) == [*(row["params"] for row in rows), *published]
    # The reference is of the published ones, which are not the first by number.
    ranking = Ranking(study, study.records())
    assert ranking.defaults == study.records().of("focal")[-3:]


def test_the_front_of_another_study_is_refused(storage: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"methods": ["focal"], "try_first": [{"from": "other"}]}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    for command in ("plan", "run"):
        assert here(command, spec, "--storage", storage, check=2) == (
            "small.yaml: try_first[0].from: the front of another study is not taken, got 'other'."
            " Write its settings: the `params` that `calstudy pareto STUDY --json` prints.\n"
        )


def test_a_study_that_took_a_front_reads_and_goes_on(storage: Path, tmp_path: Path) -> None:
    """Its study.yaml as an earlier version wrote it: the values are those of its meaning."""
    root = tmp_path / "studies"
    shutil.copytree(storage / "other", root / "other")
    file = root / "other" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    del plain["recorded"]["home"]
    settings = plain["recorded"]["meaning"]["methods"]["focal"]["own"]
    front = {"parts": {"method.name": "focal"}, "settings": settings}
    taken = {"from": "x", "id": "y", "split": "same split", "fronts": {"focal": front}}
    file.write_text(yaml.safe_dump({**plain, "try_first": [taken]}, sort_keys=False))
    before = tried(open_study("other", str(root)))
    where = ("--storage", root)
    for command in ("status", "trials", "pareto"):
        assert here(command, "other", *where)
    here("run", "other", "--trials", 3, *where)
    assert tried(open_study("other", str(root))) == [
        *before,
        {"method.gamma": 3.0, "optimizer.lr": 0.1},
    ]


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
    found = answer(results_of(study))
    chosen = found.choice
    assert chosen is not None
    assert (found.verdict == "is_default") == (chosen.record == default) == (found.default is None)
