"""What a card says of settings that were not searched."""

from typing import Any

import pytest

from study.answer.said import Answer, Part
from study.registry import model_card
from study.registry.names import ExportError, check_names
from trainables import metrics


def section_of(facts: Any) -> str:
    """What the card says of the confirmation alone."""
    template = model_card._templates().get_template("confirmed.md.jinja")
    return template.render({**facts, **model_card.confirmed_part(facts)})


@pytest.mark.parametrize(
    ("role", "method", "heading", "title"),
    [
        (
            "default",
            {"name": "focal", "gamma": 3.0},
            "Published default (Mukhoti et al. 2020); the rest as in the study",
            "2 fresh seeds of `x_default`, published default (Mukhoti et al. 2020)",
        ),
        (
            "default",
            {"name": "sece", "weight": 0.5, "bandwidth": 0.1},
            "Our default; the rest as in the study",
            "2 fresh seeds of `x_default`, our default",
        ),
        (
            "baseline",
            {"name": "cross_entropy"},
            "The study's own settings",
            "2 fresh seeds of `x_default`, the study's own settings",
        ),
    ],
)
def test_it_says_whose_they_are(
    role: str, method: dict[str, Any], heading: str, title: str
) -> None:
    seed = {"trial": "x_default/0000", "validation": {"ece": 0.1}, "test": None}
    confirmed = {
        "role": role,
        "label": "x_default",
        "searched": None,
        "seeds": [seed, seed],
        "median": True,
    }
    confirmed["registered"] = seed["trial"]
    facts = {
        "method": method["name"],
        "config": {"method": method},
        "confirmed": {**confirmed, "test_samples": 359},
    }
    section = section_of({**facts, "serves": "raw"})
    config = {**FACTS["config"], "method": method}
    card = model_card.card({**FACTS, **facts, "config": config}, "digits")
    assert f"from seed 0 and trial number 0; on cpu. {heading}:\n" in card
    assert section.startswith(f"## Confirmation: {title}\n")


@pytest.mark.parametrize(
    ("serves", "ece", "shown"),
    [
        ("raw", ["ECE as trained (served)", "ECE after temperature"], "NLL as trained (served)"),
        (
            "temperature",
            ["ECE as trained", "ECE after temperature (served)"],
            "NLL after temperature (served)",
        ),
    ],
)
def test_nobody_takes_one_ece_for_the_other(serves: str, ece: list[str], shown: str) -> None:
    """Both stand one below the other, and in the table of seeds side by side;
    accuracy is there once."""
    names = ("accuracy", "nll", "ece")
    values = {prefix + name: 0.1 for prefix in ("", "ts_") for name in names} | {"ts_ece": 0.02}
    test = {name: [value, value - 0.01, value + 0.01] for name, value in values.items()}
    seed = {"trial": "x/0000", "validation": values, "test": test}
    confirmed = {
        "role": "baseline",
        "label": "x",
        "searched": None,
        "seeds": [seed],
        "registered": "x/0000",
    }
    method = {"name": "cross_entropy"}
    facts = {"method": "cross_entropy", "config": {"method": method}, "serves": serves}
    section = section_of({**facts, "confirmed": {**confirmed, "median": True, "test_samples": 359}})
    lines = section.splitlines()
    of_ece = [f"| {ece[0]} | - | 0.1000 | 0.1000 |", f"| {ece[1]} | - | 0.0200 | 0.0200 |"]
    at = lines.index(of_ece[0])
    assert lines[at : at + 2] == of_ece
    assert sum(line.startswith("| accuracy") for line in lines) == 1 and not any(
        "ts_" in line for line in lines
    )
    assert f"| seed | accuracy | {ece[0]} | {ece[1]} | {shown} |" in lines
    assert sum("0.020 [0.010, 0.030]" in line for line in lines) == 1


FACTS: dict[str, Any] = {
    "config": {
        "model": {"name": "mlp"},
        "data": {"name": "digits"},
        "method": {"name": "cross_entropy"},
        "epochs": 20,
        "batch_size": 64,
        "seed": 0,
        "number": 0,
        "result": "last",
    },
    "metrics_of_trial": {
        prefix + name: 0.96 for prefix in ("", "ts_") for name in metrics.ESSENTIAL
    },
    "serves": "temperature",
    "temperature": 1.3,
    "objectives": [{"metric": "ts_ece", "direction": "minimize"}],
    "input_shape": [1, 8, 8],
    "classes": ["a", "b"],
    "method": "cross_entropy",
    "trial": "x/0000",
    "study": "small",
    "id": "7",
    "data_digest": "d" * 64,
    "epoch": 20,
    "device": "cpu",
    "params": {},
    "num_samples": 300,
}


@pytest.mark.parametrize(("accuracy", "temperature"), [(0.96, 1.3), (1.0, 0.23), (0.96, 0.01)])
def test_it_says_what_to_doubt_of_its_temperature(accuracy: float, temperature: float) -> None:
    values = dict.fromkeys(FACTS["metrics_of_trial"], accuracy)
    facts = {**FACTS, "metrics_of_trial": values, "temperature": temperature}
    found = model_card.card(facts, "digits")
    assert ("300 validation samples without an error" in found) == (accuracy == 1)
    assert ("the lowest that is tried" in found) == (temperature == 0.01)
    assert "cross-fitted by NLL with a prior worth one sample" in found
    assert "by hand" not in found
    by_hand = "selected by hand for nll, given afterwards; the study searched and stopped for ece"
    assert f"\nS{by_hand[1:]}.\n" in model_card.card({**facts, "selected_for": by_hand}, "digits")


# ---- what a user named ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>alert(1)</script>", r"\<script\>alert(1)\</script\>"),
        ("`rm` *now*", r"\`rm\` \*now\*"),
        ("two\nlines\r\n## Title", "two lines ## Title"),
        ("[click](http://x)", r"[click\](http\://x)"),
        ("&lt; \\", r"\&lt; \\"),
        ("_private_ cross_entropy", r"\_private\_ cross_entropy"),
        ("~~no~~", r"\~\~no\~\~"),
        ("petal length (cm), 5.0-9 [a]", "petal length (cm), 5.0-9 [a]"),
        ("grün_1", "grün_1"),
        ("see www.x.org", r"see www\.x.org"),
        ("a\x1b[2Jb\u202e", r"a\\x1b[2Jb\\u202e"),
    ],
)
def test_the_name_of_a_class_is_text_and_no_markup(given: str, shown: str) -> None:
    """By CommonMark a backslash before punctuation shows that and takes its meaning away."""
    found = model_card.card({**FACTS, "classes": [given, "other"]}, "digits")
    assert f'as `model.metadata.metadata["classes"]`: {shown}, other.\n' in found
    assert found.count("\n") == model_card.card(FACTS, "digits").count("\n")


def test_other_texts_of_a_user_are_escaped_too() -> None:
    """Units, names of columns and of the model; code spans end where they should."""
    evil = "a`b|<i>\nzz"
    method = {"name": "cross_entropy"}
    values = {"accuracy": 0.9}
    confirmed = {
        "label": "x",
        "searched": None,
        "seeds": [{"trial": "x/0000", "validation": values, "test": None}],
        "registered": "x/0000",
        "median": False,
        "test_samples": 9,
        "test_groups": f"3 {evil}",
        "cautions": [f"{evil} may be few"],
    }
    facts = {
        **FACTS,
        "config": {**FACTS["config"], "method": method},
        "columns": [evil, "`"],
        "params": {"model.x": evil},
        "device": evil,
        "validation_groups": f"3 {evil}",
        "confirmed": confirmed,
    }
    said = Answer((f"Take `focal/0000` of 3 {evil}.",), (), (Part("How sure", f"Of {evil}."),))
    found = model_card.card(facts, 'it"s; <b>', said)
    assert found.endswith("\n**How sure.** Of " + r"a\`b\|\<i\> zz." + "\n")
    assert "<i>" not in found.replace("``a`b|<i> zz``", "") and "\nzz" not in found
    assert found.startswith('# it"s; \\<b\\>: mlp trained by cross_entropy\n')
    assert r"300 samples of 3 a\`b\|\<i\> zz" in found
    assert "In this order: ``a`b|<i> zz``, `` ` ``.\n" in found
    assert 'load_model("models:/it\\"s; <b>/VERSION", ' in found
    assert "serve -m 'models:/it\"s; <b>/VERSION' --env" in found


def test_code_in_our_sentences_stays_code() -> None:
    sentence = "Run `calstudy confirm small --pick 'ece<=0.1'` for a|b"
    assert model_card.as_sentence(sentence) == sentence.replace("a|b", r"a\|b")
    assert model_card.as_sentence("one ` alone <b>") == r"one \` alone \<b\>"
    assert model_card.as_sentence("``x`<i>```.csv") == r"\`\`x\`\<i\>\`\`\`.csv"
    assert model_card.as_sentence("a`\n\n<i>`b") == "a`  <i>`b"


def test_the_card_has_the_answers_reasons_but_no_command_of_the_exporters_machine() -> None:
    parts = (
        Part("How it was selected", "By the sum."),
        Part("How sure", "On 300 samples."),
        Part("Temperature", "`calstudy export mine --raw --storage /home/me` leaves it out."),
    )
    found = model_card.card(FACTS, "digits", Answer(("Take it.",), (), parts))
    assert found.endswith(
        "\n## Reasons, as of its registration\n\n**How it was selected.** By the sum.\n"
        "\n**How sure.** On 300 samples.\n"
    )
    assert "/home/me" not in found


def test_a_description_that_is_cut_does_not_end_with_a_heading() -> None:
    room = model_card.LONGEST_DESCRIPTION - len(model_card.REST)
    text = "word\n" * ((room - 20) // 5) + "\n## Next\n"
    assert model_card.shown(text + "more " * 1000) == text.partition("\n\n##")[0] + model_card.REST


def test_a_models_name_is_one_line() -> None:
    with pytest.raises(ExportError, match=r"Invalid model name 'a\\nb'. .* or a line break"):
        check_names("a\nb", None)
    check_names("a b", None)
