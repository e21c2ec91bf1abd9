"""The grammar of search spaces, against Optuna itself and against what a
person means by the YAML."""

import random
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import strict_yaml
from search_spaces.space import (
    NO_FILE,
    Default,
    Pin,
    contains,
    find_space,
    names,
    parse_entry,
    read_space_file,
    to_plain,
)
from trainables import methods
from trainables.problems import FieldError

ROOT = Path(__file__).parents[2]
ENTRIES = [
    ("{low: 0, high: 5}", FloatDistribution(0.0, 5.0)),
    ("{low: 1e-3, high: 0.5, log: true}", FloatDistribution(0.001, 0.5, log=True)),
    ("{low: 0, high: 0.3, step: 0.1}", FloatDistribution(0.0, 0.3, step=0.1)),
    ("{low: 1, high: 9, int: true}", IntDistribution(1, 9)),
    ("{low: 16, high: 256, int: true, log: true}", IntDistribution(16, 256, log=True)),
    ("{low: 16, high: 256, int: true, step: 16}", IntDistribution(16, 256, step=16)),
    ("{choices: [sgd, adam, null]}", CategoricalDistribution(["sgd", "adam", None])),
    ("0.9", Pin(0.9)),
    ("sgd", Pin("sgd")),
    ("null", Pin(None)),
]


@pytest.mark.parametrize(("text", "entry"), ENTRIES)
def test_entry(text, entry):
    parsed = parse_entry("path", strict_yaml.parse(text))
    assert parsed == entry
    assert type(parsed) is type(entry)
    assert parse_entry("path", to_plain(parsed)) == entry


@pytest.mark.parametrize(
    ("text", "found", "mend"),
    [
        ("{low: 5, high: 1}", "low 5 is above high 1", "Swap"),
        ("{low: 3, high: 3}", "low and high are both 3", "Write the plain value 3 to fix"),
        ("{low: 0, high: 1, log: true}", "got 0", "Raise low or remove `log`"),
        ("{low: -1, high: 1, log: true}", "got -1", "Raise low"),
        ("{low: a, high: 1}", "got 'a'", "`low` must be a finite number"),
        ("{low: 0, high: true}", "got True", "`high` must be a finite number"),
        ("{low: .nan, high: 1}", "got nan", "`low` must be a finite number"),
        ("{low: 0, high: .inf}", "got inf", "`high` must be a finite number"),
        ("{low: 0}", "`high` is missing", "{low: ..., high: ...}"),
        ("{high: 1}", "`low` is missing", "{low: ..., high: ...}"),
        ("{}", "`low` is missing", "{low: ..., high: ...}"),
        ("{low: 0, hihg: 1}", "no key 'hihg'", "'high'"),
        ("{low: 0, high: 1, log: 1}", "got 1", "true or false"),
        ("{low: 0.5, high: 4, int: true}", "got 0.5", "an integer"),
        ("{low: 1, high: 2, log: true, step: 0.5}", "`log` and `step`", "Remove one"),
        ("{low: 0, high: 1, step: 0}", "got 0", "> 0"),
        ("{low: 0, high: 1, step: 0.3}", "step 0.3", "0.9"),
        ("{low: 0, high: 1, step: 1e-300}", "1e-300", "remove it"),
        ("{choices: []}", "empty", "two values"),
        ("{choices: [1, 2, 1]}", "1 twice", "Keep one"),
        ("{choices: [true, 1]}", "1 twice", "Keep one"),
        ("{choices: [3]}", "one value", "plain value 3"),
        ("{choices: sgd}", "got 'sgd'", "list"),
        ("{choices: [[1], [2]]}", "got [1]", "finite number, text"),
        ("{choices: [1, 2], low: 0}", "`low`", "Remove"),
        ("[0.1, 0.2]", "a list is not a range", "{choices: [0.1, 0.2]}"),
        (".nan", "got nan", "finite"),
    ],
)
def test_refused_entry(text, found, mend):
    with pytest.raises(FieldError) as error:
        parse_entry("search_space.method.gamma", strict_yaml.parse(text))
    assert error.value.path == "search_space.method.gamma"
    assert found in error.value.problem
    assert mend in error.value.problem


def test_contains_agrees_with_optuna():
    # Optuna keeps an enqueued value exactly where its distribution has it, and warns
    # and samples where not.
    for entry, values in [
        (FloatDistribution(0.0, 5.0), [0.0, 5.0, 3.0, 5.1, -0.1]),
        (FloatDistribution(0.0, 0.3, step=0.1), [0.1, 0.3, 0.15]),
        (IntDistribution(16, 64, step=16), [16, 48, 40, 80]),
        (CategoricalDistribution(["sgd", "adam"]), ["sgd", "adam"]),
    ]:
        for value in values:
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
            study.enqueue_trial({"x": value})
            kept = entry._contains(entry.to_internal_repr(value))
            assert contains(entry, value) == kept, (entry, value)
            if kept:
                assert study.ask({"x": entry}).params["x"] == value
    assert not contains(IntDistribution(1, 5), 3.0)
    assert not contains(FloatDistribution(0.0, 1.0), True)
    assert not contains(CategoricalDistribution(["sgd", "adam"]), "adamw")


def test_our_files_are_of_methods_that_exist():
    assert set(names()) == set(methods.names())


def test_published_values():
    focal = find_space("focal")
    assert focal.space == {"method.gamma": FloatDistribution(0.0, 5.0)}
    by = "Mukhoti et al. 2020"
    assert focal.defaults == [
        Default({"method.gamma": gamma}, "published", by) for gamma in (3.0, 2.0, 1.0)
    ]
    assert "Mukhoti" in focal.source
    # README of the released code: loss.margin=10.0 loss.alpha=0.1
    assert find_space("mbls").defaults[0].values == {"method.margin": 10.0, "method.weight": 0.1}
    assert find_space("sece").defaults == [
        Default({"method.bandwidth": 0.1, "method.weight": 0.5}, "ours")
    ]
    # Scripts of the released code: MMCE_w divided twice, weight 2.
    doubly = {"method.normalization": "released_code", "method.weight": 2.0}
    assert find_space("mmce").defaults[0] == Default(doubly, "published", by)
    assert find_space("cross_entropy").space == {}


def test_a_method_without_a_file_has_no_recommendation(tmp_path):
    assert find_space("brier_of_mine", [tmp_path]) is NO_FILE


def test_a_folder_of_the_user(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "source: us\nspace: {method.a: {low: 0, high: 1}}\ndefaults: [{method.a: 1}]\n"
    )
    assert find_space("mine", [tmp_path]).defaults == [Default({"method.a": 1}, "ours")]
    (tmp_path / "focal.yaml").write_text("source: us\n")
    with pytest.raises(FieldError, match="the method already has one"):
        find_space("focal", [tmp_path])


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("source: us\nspce: {}\n", "spce", "Did you mean 'space'?"),
        ("space: {}\n", "source", "name the source"),
        ("source: us\nspace: [1]\n", "space", "mapping"),
        ("source: us\nspace: {method.a: {low: 2, high: 1}}\n", "space.method.a", "Swap"),
        (
            "source: us\nspace: {method.a: {low: 0, high: 1}}\ndefaults: [{method.b: 1}]",
            "defaults[0].method.b",
            "method.a",
        ),
        (
            "source: us\nspace: {method.a: {low: 0, high: 1}}\ndefaults: [{method.a: 2}]",
            "defaults[0].method.a",
            "high: 1.0",
        ),
        ("source: us\ndefaults: {}\n", "defaults", "list"),
        (
            "source: us\ndefaults: [{status: publisht, by: us}]\n",
            "defaults[0].status",
            "Did you mean 'published'?",
        ),
        ("source: us\ndefaults: [{status: [1]}]\n", "defaults[0].status", "there is no status [1]"),
        ("source: us\ndefaults: [{status: published}]\n", "defaults[0].by", "is missing"),
        ("source: us\ndefaults: [{by: Brier 1950}]\n", "defaults[0].by", "write their status"),
        (
            "source: us\ndefaults: [{status: published, by: 1950}]\n",
            "defaults[0].by",
            "must be text",
        ),
        ("- 1\n", "", "mapping"),
        ("a: 1\na: 2\n", "a", "defined twice"),
    ],
)
def test_refused_file(tmp_path, text, path, said):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(FieldError) as error:
        read_space_file(tmp_path / "mine.yaml")
    assert error.value.path == path
    assert said in error.value.problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),  # text in YAML 1.1
        ("5.0e-4", 0.0005),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("010", 10),  # eight in YAML 1.1
        ("1:30", "1:30"),  # ninety in YAML 1.1
        ("no", "no"),  # false in YAML 1.1
        ("2024-01-01", "2024-01-01"),  # a date in YAML 1.1
        ("true", True),
        ("~", None),
        ("-.inf", float("-inf")),
        ("e3", "e3"),
        ("'1e-3'", "1e-3"),
    ],
)
def test_scalars_of_the_core_schema(text, value):
    parsed = strict_yaml.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "value",
    [0.0005, 1e-7, 10, "1e-3", "no", "null", "12", None, True, [1, {"a": "x: y"}], "\U0001f600"],
)
def test_what_is_dumped_reads_back(value):
    assert strict_yaml.parse(strict_yaml.dump({"key": value})) == {"key": value}
    assert strict_yaml.parse(strict_yaml.one_line(value)) == value


def test_merge_keys_and_aliases_still_work():
    text = "base: &base {a: 1, b: 2}\nmine: {<<: *base, b: 3}\n"
    assert (
        strict_yaml.parse(text)
        == yaml.safe_load(text)
        == {"base": {"a": 1, "b": 2}, "mine": {"a": 1, "b": 3}}
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"name: small\ntrials: [" + b"1, " * 800_000 + b"1]\n",
            "is larger than 2 MB, the limit of a YAML file.",
        ),
        ("x: é".encode() * 600_000, "is larger than 2 MB"),  # cut within a character
        (b"x: [" + b"1, " * 2_500 + b"1]", "contains more than 1000 values."),
        (b"{a: " * 101, "is nested more than 100 levels deep."),
    ],
)
def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(
    content, problem, tmp_path, monkeypatch
):
    (tmp_path / "study.yaml").write_bytes(content)
    made = []
    monkeypatch.setattr(strict_yaml, "MOST_VALUES", 1000)
    for loader in (strict_yaml._Loader, strict_yaml._QuickLoader):
        monkeypatch.setattr(loader, "construct_document", made.append)
    with pytest.raises(FieldError) as refused:
        strict_yaml.read(tmp_path / "study.yaml")
    assert str(refused.value).startswith(problem) and made == []


def outcome_of(text: str) -> object:
    try:
        return strict_yaml.parse(text)
    except FieldError as error:
        return str(error)


def test_libyaml_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files that we ship, and lines of them in which characters were changed at random."""
    files = sorted([*ROOT.glob("search_spaces/*.yaml"), *ROOT.glob("study/specs/**/*.yaml")])
    texts = [path.read_text() for path in files]
    rng = random.Random(0)
    for _ in range(300):
        line = [*rng.choice(rng.choice(texts).splitlines() or [""])]
        line.insert(rng.randrange(len(line) + 1), rng.choice(":-[]{}#&*!|>'\"%@`?,\n\t~<=.0e+\0\\"))
        texts.append("".join(line))
    quick = [outcome_of(text) for text in texts]
    values = [value for value in quick if isinstance(value, dict | list)]
    written = [strict_yaml.dump(value) + strict_yaml.one_line(value) for value in values]
    monkeypatch.setattr(strict_yaml, "_QuickLoader", strict_yaml._Loader)
    monkeypatch.setattr(strict_yaml, "_QuickDumper", strict_yaml._Dumper)
    assert len(files) > 50 and quick == [outcome_of(text) for text in texts]
    assert written == [strict_yaml.dump(value) + strict_yaml.one_line(value) for value in values]


@pytest.mark.slow
def test_the_largest_files_that_we_write_are_read(tmp_path):
    """Twenty thousand classes with long names, in study.yaml."""
    names = [
        f"n{number:08d} Carassius auratus auratus, the goldfish, a fish in a bowl"
        for number in range(21_000)
    ]
    (tmp_path / "study.yaml").write_text(strict_yaml.dump({"recorded": {"classes": names}}))
    assert strict_yaml.read(tmp_path / "study.yaml")["recorded"]["classes"] == names
    deep: list[object] = []
    for _ in range(98):
        deep = [deep]
    assert strict_yaml.parse(strict_yaml.one_line({"a": deep})) == {"a": deep}


def test_aliases_that_multiply_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(FieldError, match="more than 100000 values"):
        strict_yaml.parse("\n".join(lines))


@pytest.mark.parametrize("word", ["off", "On", "no", "YES", "true", "null"])
def test_a_word_is_read_as_one_by_readers_of_yaml_1_1_too(word: str) -> None:
    """`capture: off` was False in a record that another program had written anew."""
    text = strict_yaml.dump({"key": word})
    assert strict_yaml.parse(text) == yaml.safe_load(text) == {"key": word}
