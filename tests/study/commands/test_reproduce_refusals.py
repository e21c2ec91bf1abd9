"""`calstudy reproduce` with what it cannot do: a line that says what was found and the mend."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.commands import plan
from study.reproduction.studies import Asked
from study.reproduction.table import read_table
from study.store.study import open_study
from tests.study.command_line import here, write_spec
from tests.study.reproduction.tables import METHODS, PUBLISHED, TRAINED, without_probe, write_table

pytestmark = pytest.mark.platform

NETWORKS = {"mlp": {"model": "mlp"}, "wide": {"model": {"name": "mlp", "width": 256}}}
SLOW = {"slow": {"what": "a lower rate", "values": {"optimizer.lr": 0.01}}}
SEARCH = {"optimizer.lr": {"low": 0.01, "high": 0.5}}
STOPPING = {"at": 0.5, "keep": 0.5, "by": ["ece"]}


@pytest.fixture(autouse=True)
def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    without_probe(monkeypatch)


def refused(table: object, storage: Path, *words: object) -> str:
    """What it says, in one line; nothing was written."""
    shown = here("reproduce", table, "--storage", storage / "studies", *words, check=2)
    assert not (storage / "studies").exists() and "Traceback" not in shown
    (line,) = (line for line in shown.splitlines() if line != "importing torch")
    return line


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["focal_cifar"], "there is no table 'focal_cifar'. Did you mean 'focal_cifar10'?"),
        (["none.table.yaml"], "there is no file none.table.yaml. `calstudy reproduce` lists"),
        (
            ["focal_cifar10", "--network", "resnet5"],
            "--network: focal_cifar10 has no 'resnet5'. Did you mean 'resnet50'?",
        ),
        (["mbls_cub200", "--network", "x"], "--network: mbls_cub200 has none. Leave it out."),
        (
            ["focal_cifar10", "--option", "drops"],
            "--option: focal_cifar10 has no 'drops'. Did you mean 'drops_as_written'?",
        ),
        (["claims_newsgroups", "--short"], "--short: claims_newsgroups has no short form."),
        (["focal_cifar10", "--format", "md"], "--format was removed. The table is text;"),
        (["focal_cifar10", "--output", "x"], "--output was removed. The table goes to"),
        (["focal_cifar10", "--seeds", "0"], "Invalid value for '--seeds'"),
    ],
)
def test_words_that_it_does_not_know(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refused(words[0], tmp_path, *words[1:])


# ---- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "folder", "how"),
    [
        ("focal_tiny_imagenet", "tiny-imagenet-200", "cs231n.stanford.edu/tiny-imagenet-200.zip"),
        ("mbls_cub200", "CUB_200_2011", "CUB_200_2011.tgz"),
        ("claims_newsgroups", "newsgroups.npz", "fetch_20newsgroups"),
    ],
)
def test_data_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, folder: str, how: str
) -> None:
    """The message names the study's file, whose head says how to get them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    said = refused(table, tmp_path)
    assert f"{table}.yaml: data.path: there is no" in said and folder in said
    _, _, rest = said.partition("How to get the data: ")
    file, _, rest = rest.partition(". If they are elsewhere, give --data PATH.")
    head, _, _ = Path(file).read_text().partition("\nname: ")
    assert how in head and rest == ""


@pytest.mark.parametrize("table", ["focal_cifar10", "meta_regularization_cifar100"])
def test_data_that_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    def offline(*_: object, **__: object) -> Any:
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = refused(table, tmp_path)
    assert "data.path: cannot be downloaded" in said and "give --data PATH" in said
    assert (
        f"How to get the data: {Path(plan.__file__).parents[1]}/specs/papers/{table}.yaml" in said
    )


def rows_of_numbers(folder: Path) -> Path:
    lines = [f"{k % 7},{k % 5},{k % 10}" for k in range(300)]
    (folder / "rows.csv").write_text("\n".join(["a,b,label", *lines]))
    return folder / "rows.csv"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("/nowhere", "--data: path: /nowhere does not contain cifar-10-batches-py/data_batch_1"),
        ("{name: parquet", "--data: is not YAML: "),
        ("{path: x}", "--data: has no `name`. Write {name: parquet, path: FILE}, or a path."),
        ("{name: parq}", "--data: there is no dataset 'parq'. Did you mean 'parquet'?"),
        ("{name: digits, limt: 5}", "--data: limt: Digits has no 'limt'."),
        ("ROWS", "--data: resnet50 takes images, the data are rows of 2 numbers. Give data of"),
    ],
)
def test_data_of_another_kind(tmp_path: Path, data: str, said: str) -> None:
    data = data.replace("ROWS", str(rows_of_numbers(tmp_path)))
    assert said in refused("focal_cifar10", tmp_path, "--data", data)


def test_data_of_another_number_of_classes(tmp_path: Path) -> None:
    said = "--data: has 10 classes, and the table is of 100. Give data with as many."
    assert refused("focal_cifar100", tmp_path, "--data", "{name: digits}") == said


@pytest.mark.slow
def test_other_data_are_said(tmp_path: Path) -> None:
    """Nor the same with another split."""
    table = write_table(tmp_path, model="mlp")
    rows = rows_of_numbers(tmp_path)
    for data, what in (
        (rows, "rows.csv"),
        ("{name: digits, validation: 0.4}", "digits, validation: 0.4"),
        ("{name: digits, validation: 0.3}", "digits, validation: 0.3"),
    ):
        shown = here("reproduce", table, "--data", data, "--storage", tmp_path)
        assert f"The data are not the paper's: {what}." in shown
    names = sorted(file.parent.name for file in tmp_path.glob("*/study.yaml"))
    assert names[2] == "mini_on_rows"
    # Settings of their own are studies of their own.
    assert all(re.fullmatch("mini_on_digits_[0-9a-f]{6}", name) for name in names[:2])


def test_another_file_is_other_data_where_the_name_does_not_say_which(tmp_path: Path) -> None:
    """`parquet` may be any images; `fashion_mnist` elsewhere is still Fashion-MNIST."""
    for name, is_other in (("parquet", True), ("table", True), ("fashion_mnist", False)):
        folder = tmp_path / name
        folder.mkdir()
        table = write_table(folder, data={"name": name, "path": "/data/a"})
        asked = Asked.of(read_table(table), data=f"{{name: {name}, path: /data/b}}")
        assert asked.other_data == ("b" if is_other else None)


# ---- tables and their studies --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mini.table.yaml: is empty. A table needs title"),
        ("- a", "mini.table.yaml: must be a mapping of keys, got list."),
        ("a: [", "mini.table.yaml: is not YAML"),
        ("title: x", "mini.table.yaml: source: is missing. A table needs"),
    ],
)
def test_a_file_that_is_no_table(tmp_path: Path, text: str, said: str) -> None:
    table = write_table(tmp_path)
    table.write_text(text)
    assert refused(table, tmp_path).startswith(said)
    of_study = refused(tmp_path / "mini.yaml", tmp_path)
    assert "mini.yaml: data: there is no key 'data'. Valid values: title, source" in of_study


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"search_space": SEARCH}, "methods: cross_entropy has values that are searched"),
        ({"early_stopping": STOPPING}, "early_stopping: ends seeds early. Remove it."),
        ({"keep_models": "front"}, "keep_models: removes models that are to be measured. Write"),
        ({"methods": ["brier"]}, "rows[0].label: there is no label 'cross_entropy'. Valid"),
    ],
)
def test_a_study_that_is_none_of_seeds(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    assert said in refused(write_table(tmp_path, **keys), tmp_path)


# ---- results that are not whole ------------------------------------------------------------------


@pytest.mark.slow
def test_few_seeds_and_no_published_values(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    one = here("reproduce", table, "--seeds", 1, "--storage", tmp_path)
    assert "cannot be judged: 1 seed of both sides, fewer than 3" in " ".join(one.split())
    assert "±" not in one and "holds" not in one
    write_table(tmp_path, {"published": None})
    alone = here("reproduce", table, "--seeds", 1, "--storage", tmp_path)
    assert "No numbers of the paper are on file: ours alone." in alone
    assert "published" not in alone.split("ours alone.")[1] and "cannot be judged" in alone


@pytest.mark.slow
def test_a_method_that_diverges(tmp_path: Path) -> None:
    methods = [METHODS[0], {**METHODS[1], "values": {"optimizer.lr": 1e6}}]
    table = write_table(tmp_path, methods=methods)
    shown = here("reproduce", table, "--storage", tmp_path)
    assert (
        "FL-3: failed: focal_3/0000: Diverged: loss is nan at epoch 1 (optimizer.lr=1e+06)" in shown
    )
    trials = len(open_study("mini", str(tmp_path)).records())
    again = here("reproduce", table, "--storage", tmp_path)
    assert again in shown and len(open_study("mini", str(tmp_path)).records()) == trials


@pytest.mark.slow
def test_short_beside_full(tmp_path: Path) -> None:
    """Neither sees the other's trials, even where the short form's file has the study's name."""
    table = write_table(tmp_path)
    write_spec(
        tmp_path / "mini_short.yaml",
        **{**TRAINED, "name": "mini", "methods": METHODS, "epochs": 1, "trials": 2},
    )
    full = here("reproduce", table, "--storage", tmp_path)
    short = here("reproduce", table, "--short", "--storage", tmp_path)
    assert "Short form: it shows that everything runs. Its results are meaningless." in short
    assert "Ours: mini_short; 2 seeds a method" in short and "cannot be judged" in short
    assert here("reproduce", table, "--storage", tmp_path) in full
    assert len(open_study("mini_short", str(tmp_path)).records()) == 4


@pytest.mark.slow
def test_networks_and_options_are_studies_of_their_own(tmp_path: Path) -> None:
    keys = {"networks": NETWORKS, "options": SLOW, "published": {"mlp": PUBLISHED}}
    table = write_table(tmp_path, keys)
    for words in ([], ["--network", "wide"], ["--option", "slow"]):
        shown = here("reproduce", table, *words, "--seeds", 1, "--storage", tmp_path)
        assert ("--option slow: a lower rate." in shown) == ("--option" in words)
        assert ("No numbers of the paper" in shown) == ("wide" in words)
    specs = {name: open_study(name, str(tmp_path)).spec for name in ("mini", "mini_slow")}
    assert specs["mini_slow"].optimizer.lr == 0.01 != specs["mini"].optimizer.lr
    wide: Any = open_study("mini_wide", str(tmp_path)).plain["model"]
    assert wide["width"] == 256


@pytest.mark.slow
def test_a_study_that_was_changed(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    here("reproduce", table, "--seeds", 1, "--storage", tmp_path)
    spec = yaml.safe_load((tmp_path / "mini.yaml").read_text())
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump({**spec, "epochs": 3}))
    said = here("reproduce", table, "--seeds", 2, "--storage", tmp_path, check=2)
    assert "mini.yaml: name: 'mini' already exists, and this file changes what a trial" in said
    assert "\n  epochs: was 2, is 3\n" in said
    assert len(open_study("mini", str(tmp_path)).records()) == 2


def lost(file: Path) -> None:
    file.unlink()


def altered(file: Path) -> None:
    file.write_bytes(b"x" + file.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "name", "said"),
    [
        (lost, "test.npz", "test.npz is missing"),
        (altered, "predictions.npz", "predictions.npz has changed (its digest differs"),
    ],
)
def test_files_that_are_lost_or_altered(
    tmp_path: Path, harm: Callable[[Path], None], name: str, said: str
) -> None:
    """The seeds that are left would be a selection: no mean. The test split stays closed."""
    table = write_table(tmp_path)
    here("reproduce", table, "--storage", tmp_path)
    (file,) = tmp_path.glob(f"mini/trials/focal_3/0001/*/{name}")
    harm(file)
    shown = here("reproduce", table, "--storage", tmp_path)
    assert (
        "Ours: mini; 2 to 3 seeds a method" in shown and "FL-3        12.50            -" in shown
    )
    assert f"focal_3/0001: {file.parent}/{said}" in shown and "was opened" not in shown
