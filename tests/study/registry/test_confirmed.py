"""A seed of a confirmation is registered: which one, and what its card says of all its seeds."""

import json
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from search_spaces import strict_yaml
from study.answer.choice import choose
from study.answer.confirmation import moments, results_of
from study.engine.confirm import measure
from study.store.study import open_study
from tests.study.command_line import here, here_json
from tests.study.engine.test_confirm import confirmed as confirmed  # fixtures
from tests.study.engine.test_confirm import rows_of, unopened
from tests.study.engine.test_confirm import storage as storage

pytestmark = pytest.mark.slow


def test_a_confirmed_seed_is_registered_with_what_all_its_seeds_do_on_test(confirmed: Path) -> None:
    shown = here("export", "small", "--pick", "max accuracy", "--name", "m", "--storage", confirmed)
    rows = {row.label: row for row in rows_of(open_study("small", str(confirmed)))}
    means = {
        label: moments([record.metrics for record in row.records])["accuracy"].mean
        for label, row in rows.items()
    }
    best = rows[max(means, key=lambda label: means[label])]
    # Of two seeds the worse one.
    registered = min(best.records, key=lambda record: record.metrics["accuracy"])
    measured = registered.metrics
    assert f"from small-confirm/{registered.name}" in shown
    both = (
        f"validation ECE: {measured['ece']:.4f} as trained (served), {measured['ts_ece']:.4f} after"
        " temperature "
    )
    assert (
        both in shown
        and "(--temperature serves it)\nthe search optimized accuracy, ECE as trained\n" in shown
    )
    client = MlflowClient(f"sqlite:///{confirmed / 'mlflow.db'}")
    card = client.get_model_version("m", "1").description
    assert f"2 fresh seeds of `{'focal/0001' if best.candidate else best.label}`" in card
    assert f": seed {registered.number} of `{best.name}`." in card
    pins = open_study("small-confirm", str(confirmed)).spec.variant(best.label).space.pins
    assert pins and all(f"- {path}: {value}" in card for path, value in pins.items())
    assert f"number {registered.number + 1_000_000};" in card
    for record, test in zip(best.records, best.tests, strict=True):
        (line,) = (line for line in card.splitlines() if line.startswith(f"| {record.number} |"))
        low, high = map(float, re.findall(r"\[([\d.]+), ([\d.]+)\]", line)[0])
        assert f"| {test['accuracy']:.3f} [" in line and low < test["accuracy"] < high
        # About two standard errors of a share of 359 test samples either way.
        assert high - low == pytest.approx(
            4 * (test["accuracy"] * (1 - test["accuracy"]) / 359) ** 0.5, rel=0.1
        )
        ranged = r"0\.\d{3} \[0[.\d]*, 0\.\d{3}\]"
        floors = re.findall(f"{ranged}, floor {ranged}", line)
        assert len(floors) == 2  # of ECE, both ways
    assert "Floor: what a perfectly calibrated model" in card
    found = json.loads(here("verify", "models:/m/1", "--storage", confirmed, "--json"))
    assert found["ok"]


def test_without_a_rule_it_registers_the_model_that_the_answer_names(confirmed: Path) -> None:
    storage = ("--storage", confirmed)
    first = here_json("answer", "small", *storage)["sentences"][0]
    chosen = choose(results_of(open_study("small", str(confirmed))))
    client = MlflowClient(f"sqlite:///{confirmed / 'mlflow.db'}")
    shown = here("export", "small", "--name", "d", "--alias", "champion", "--temperature", *storage)
    assert (
        f"registered models:/d/1 from small-confirm/{chosen.record.name}; alias champion points to"
        " it\n" in shown
    )
    assert (
        "as trained (--raw serves it)" in shown
        and "(served)\nthe search optimized accuracy, ECE as" in shown
    )
    # The study serves the network as trained: the alias does not lose its temperature by the way.
    refused = here("export", "small", "--name", "d", "--alias", "champion", *storage, check=2)
    assert refused.count("\n") == 1 and refused.startswith(
        "alias champion: d/1 applies a temperature"
    )
    assert len(client.search_model_versions("name='d'")) == 1
    assert "models:/d/2" in here(
        "export", "small", "--name", "d", "--alias", "champion", "--raw", *storage
    )
    assert client.get_model_version_by_alias("d", "champion").version == 2
    cards = [client.get_model_version("d", version).description for version in ("1", "2")]
    assert "Why this model" not in cards[0]  # the answer is of the network as trained
    assert (
        cards[1].splitlines()[2:4] == ["## Why this model", cards[1].splitlines()[3]]
        and first in cards[1]
    )


def test_the_card_of_a_seed_taken_by_name_tells_of_test_as_soon_as_it_is_opened(
    storage: Path,
) -> None:
    file = storage / "small-confirm" / "study.yaml"
    plain = strict_yaml.read(file)
    del plain["recorded"]["home"]  # of which this is a copy
    file.write_text(strict_yaml.dump(plain))
    study = unopened(storage)
    words = (
        "export",
        "small-confirm",
        "--trial",
        "focal_0001/1",
        "--name",
        "n",
        "--storage",
        storage,
    )
    here(*words)
    assert measure(study) == 8
    assert "models:/n/2" in here(*words) and "already registered: models:/n/2" in here(*words)
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    before, after = (client.get_model_version("n", version).description for version in ("1", "2"))
    assert "2 fresh seeds of `focal/0001`" in before and "not measured" in before
    assert "2 fresh seeds of `focal/0001`" in after and "not measured" not in after
    assert client.get_model_version("n", "2").tags["calstudy.serves"] == "raw"
