"""With its temperature or as trained: what is registered, what is said of it, and
what an alias may do."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from numpy.testing import assert_allclose
from pytest import approx

from study.answer.choice import Choice
from study.answer.said import Answer
from study.registry.export import export
from study.registry.names import ExportError
from study.registry.verification import NotVerified
from study.schema.objective import RAW, TEMPERATURE
from study.tracking.registered import digests_of
from tests import references
from tests.study.registry.test_export import Exported, Trained, forget_digests, load, softmax
from tests.study.registry.test_export import another as another  # fixtures
from tests.study.registry.test_export import here as here
from tests.study.registry.test_export import root as root
from tests.study.registry.test_export import server as server
from tests.study.registry.test_export import trained as trained
from trainables.loading.cache import load_split

pytestmark = pytest.mark.slow


def exported(
    trained: Trained,
    name: str,
    serves: str | None = None,
    alias: str | None = None,
    answer: tuple[str, ...] = (),
) -> Exported:
    return export(Choice(trained.study, trained.record), name, alias, trained.uri, serves, answer)


def serving_raw(trained: Trained) -> Trained:
    """The same study, had it said `serve: raw`."""
    recorded = replace(trained.study.recorded, serves=RAW)
    return replace(trained, study=replace(trained.study, recorded=recorded))


def rewrite(trained: Trained, found: Exported, key: str, value: str | float) -> None:
    """Alter a fact everywhere: in the record, in the tag that repeats it, and
    in the record's digest."""
    path = trained.artifacts(found) / "calstudy" / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    tag = value if isinstance(value, str) else json.dumps(value)
    trained.client.set_model_version_tag(found.name, str(found.version), f"calstudy.{key}", tag)
    digests = json.dumps(digests_of(trained.artifacts(found)))
    trained.client.set_model_version_tag(
        found.name, str(found.version), "calstudy.artifacts", digests
    )


# ---- what is registered --------------------------------------------------------------------------


def test_the_network_as_trained_gives_softmax_of_the_measured_logits(
    trained: Trained, here: Callable[..., object]
) -> None:
    raw = serving_raw(trained)
    found = raw.export("raw")
    stored = trained.learner.predict()
    images = load_split(trained.learner.data.prepared, "validation").images.float().numpy()
    probs = softmax(stored.logits.numpy())
    assert_allclose(load(trained, found).predict(images), probs, atol=1e-5)
    assert found.metrics["ece"] == approx(trained.record.metrics["ece"], abs=1e-6)
    assert found.metrics["nll"] == approx(references.nll(np.log(probs), stored.labels), abs=1e-6)
    tags = trained.version(found).tags
    assert (found.serves, tags["calstudy.serves"]) == (RAW, RAW)
    temperature = references.fit_temperature(stored.logits, stored.labels, prior=1.0)
    assert (
        found.temperature
        == approx(temperature, rel=1e-6)
        == json.loads(tags["calstudy.temperature"])
    )
    assert (
        json.loads(tags["calstudy.metrics_of_trial"])["ts_ece"] == trained.record.metrics["ts_ece"]
    )
    assert here(found.uri).ok


def test_raw_and_with_a_temperature_are_two_versions(
    trained: Trained, here: Callable[..., object]
) -> None:
    with_temperature, raw = exported(trained, "both"), exported(trained, "both", RAW)
    assert [(each.version, each.serves) for each in (with_temperature, raw)] == [
        (1, TEMPERATURE),
        (2, RAW),
    ]
    assert exported(trained, "both", TEMPERATURE) == replace(with_temperature, created=False)
    assert serving_raw(trained).export("both") == replace(raw, created=False)
    assert here(with_temperature.uri).ok


def test_a_version_without_digests_is_registered_again(
    trained: Trained, here: Callable[..., object]
) -> None:
    first = exported(trained, "before")
    forget_digests(trained, first)
    with pytest.raises(NotVerified, match=r"no digests .* Register it again with `calstudy export"):
        here(first.uri)
    again = exported(trained, "before")
    assert again == replace(first, version=2) and here(again.uri).ok
    assert exported(trained, "before") == replace(again, created=False)
    assert exported(trained, "before", RAW).version == 3


@pytest.mark.parametrize(
    ("serves", "key", "value"),
    [
        (TEMPERATURE, "serves", RAW),
        (RAW, "serves", TEMPERATURE),
        (TEMPERATURE, "temperature", 1.001),
    ],
)
def test_verify_finds_a_temperature_that_is_not_as_said(
    trained: Trained, here: Callable[..., object], serves: str, key: str, value: str | float
) -> None:
    found = exported(trained, f"{serves}_{key}", serves)
    rewrite(trained, found, key, value)
    assert [check.name for check in here(found.uri).checks if not check.ok] == [
        "temperature applied"
    ]
    trained.client.set_model_version_tag(found.name, str(found.version), f"calstudy.{key}", "2")
    assert f"tags that differ from the record ({key})" in [
        check.name for check in here(found.uri).checks
    ]


# ---- the card ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("serves", "heading", "applies", "other"),
    [
        (
            TEMPERATURE,
            "| | as trained | after temperature {t} (served) |",
            "applies its temperature, {t}.",
            "--raw",
        ),
        (
            RAW,
            "| | as trained (served) | after temperature {t} |",
            "applies no temperature.",
            "--temperature",
        ),
    ],
)
def test_the_card_has_both_side_by_side(
    trained: Trained, serves: str, heading: str, applies: str, other: str
) -> None:
    found = exported(trained, f"card_{serves}", serves)
    card = trained.version(found).description
    measured, temperature = trained.record.metrics, f"{found.temperature:.4g}"
    assert heading.format(t=temperature) in card and applies.format(t=temperature) in card
    assert f"| ECE | {measured['ece']:.4f} | {measured['ts_ece']:.4f} |" in card
    assert f"`calstudy export ... {other}` registers it " in card
    assert "The search optimized accuracy, ECE as trained." in card


def test_the_answer_comes_first_on_the_card_and_makes_no_other_version(trained: Trained) -> None:
    said = Answer(("Take focal/0003.", "It is the only trial."), ())
    found = exported(trained, "told", answer=said)
    version = trained.version(found)
    title, empty, *rest = version.description.splitlines()
    assert title.startswith("# told") and empty == ""
    assert rest[:2] == ["## Why this model", "Take focal/0003. It is the only trial."]
    assert (trained.artifacts(found) / "calstudy" / "card.md").read_text() == version.description
    assert not any("Take" in value for value in version.tags.values())
    assert exported(trained, "told") == replace(found, created=False)
    assert "Why this model" not in trained.version(exported(trained, "untold")).description


# ---- an alias ------------------------------------------------------------------------------------


def at(trained: Trained, name: str) -> int:
    return int(trained.client.get_model_version_by_alias(name, "champion").version)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_an_alias_loses_its_temperature_only_if_asked(
    trained: Trained, another: Trained, is_forgotten: bool
) -> None:
    name = f"alias_{is_forgotten}"
    first = exported(trained, name, alias="champion")
    if is_forgotten:
        forget_digests(trained, first)
    with pytest.raises(ExportError) as caught:
        exported(serving_raw(another), name, alias="champion")
    assert (
        str(caught.value)
        == f"alias champion: {name}/1 applies a temperature and this model would not; nothing was"
        " registered. Move the alias with --raw, or keep a temperature with --temperature."
    )
    assert (
        len(trained.client.search_model_versions(f"name='{name}'")) == 1 and at(trained, name) == 1
    )
    if is_forgotten:
        exported(trained, name, alias="champion")
        assert at(trained, name) == 2  # registered again
        return
    # Without the alias.
    assert exported(serving_raw(another), name).version == 2 and at(trained, name) == 1
    exported(serving_raw(another), name, RAW, alias="champion")
    assert at(trained, name) == 2
    assert exported(serving_raw(trained), name, alias="champion").version == 3  # raw to raw
    assert at(trained, name) == 3
    exported(trained, name, alias="champion")
    assert at(trained, name) == 1


def test_an_alias_of_a_version_that_is_not_ours_is_free(trained: Trained, tmp_path: Path) -> None:
    client: MlflowClient = trained.client
    client.create_registered_model("foreign")
    client.create_model_version("foreign", str(tmp_path))
    client.set_registered_model_alias("foreign", "champion", "1")
    exported(serving_raw(trained), "foreign", alias="champion")
    assert at(trained, "foreign") == 2
    with pytest.raises(MlflowException):
        client.get_registered_model("new")
    assert (
        exported(serving_raw(trained), "new", alias="champion").version == at(trained, "new") == 1
    )


def test_selected_by_hand_is_a_version_that_says_so(trained: Trained) -> None:
    """Its files are those of the version without the line, but for the card and the record."""
    said = "selected by hand for nll, given afterwards; the study searched and stopped for ece"
    choice = Choice(trained.study, trained.record)
    plain = exported(trained, "by_hand")
    named = export(choice, "by_hand", None, trained.uri, by_hand=said)
    assert (plain.version, named.version, named.created) == (1, 2, True)
    assert not export(choice, "by_hand", None, trained.uri, by_hand=said).created
    assert not exported(trained, "by_hand").created
    tags = [
        trained.client.get_model_version("by_hand", str(one.version)).tags for one in (plain, named)
    ]
    assert "calstudy.selected_for" not in tags[0] and tags[1]["calstudy.selected_for"] == said
    cards = [
        (trained.artifacts(one) / "calstudy" / "card.md").read_text() for one in (plain, named)
    ]
    assert "by hand" not in cards[0] and f"\nS{said[1:]}.\n" in cards[1]
