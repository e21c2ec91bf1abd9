"""The papers' tables: their files are read, fit their studies, and hold what was printed."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.reproduction.table import (
    PaperTable,
    check_labels,
    find_table,
    packaged_tables,
    read_table,
)
from study.schema.errors import SpecError
from study.schema.reading import read_spec as read_spec_file
from study.schema.spec import StudySpec
from trainables.problems import FieldError

FILES = packaged_tables()
# Published cells by table, counted on the papers' pages: methods x columns x networks, without what
# is torn off (AECE of MbLS on CIFAR-10).
CELLS = {
    "focal_cifar10": 6 * 4 * 4,
    "focal_cifar100": 0,
    "focal_tiny_imagenet": 0,
    "mbls_cifar10": 7 * 3 * 2 - 2,
    "mbls_cub200": 5 * 2,
    "mbls_tiny_imagenet": 7 * 3 * 2,
    "meta_regularization_cifar10": 12 * 6,
    "meta_regularization_cifar100": 12 * 6,
    "meta_regularization_tiny_imagenet": 10 * 6,
    "sample_prioritization_cifar10": 16 * 2,
    "sample_prioritization_cifar10_guided": 12 * 2,
    "sample_prioritization_cifar100": 16 * 2,
    "sample_prioritization_cifar100_guided": 12 * 2,
}
every_table = pytest.mark.parametrize("name", FILES)

SPEC = """
name: small
data: {name: digits}
model: mlp
methods: [cross_entropy, {label: focal_3, name: focal, gamma: 3.0}]
epochs: 2
"""
TABLE = """
title: A table
source: by hand
studies: [{name: small}]
columns:
  error: {metric: error, percent: true}
  T: {metric: temperature, after: ece_grid, digits: 1, step: 0.1}
  theirs: {metric: sample_prioritization, percent: true}
rows:
  - {name: CE, label: cross_entropy}
  - {name: "CE+TS", label: cross_entropy, after: nll}
  - {name: FL-3, label: focal_3}
published:
  all: {CE: {error: 4.95, T: 2.5}}
options:
  long: {what: longer, values: {epochs: 4, optimizer.lr: 0.2}}
claims:
  - {says: nearer, lower: FL-3, than: CE, column: T}
  - {says: above one, higher: CE, than: 1, column: T}
"""


@cache
def read_spec(file: Path) -> StudySpec:
    return read_spec_file(file)


def check_specs(table: PaperTable) -> None:
    names = [study.name for study in table.studies]
    check_labels(table, {name: read_spec(table.spec_file(name, short=False)) for name in names})


def written(folder: Path, **changed: Any) -> Path:
    """The small table with other keys; None removes one."""
    plain = yaml.safe_load(TABLE)
    for key, value in changed.items():
        plain[key] = value
        if value is None:
            del plain[key]
    (folder / "small.yaml").write_text(SPEC)
    file = folder / "own.table.yaml"
    file.write_text(yaml.safe_dump(plain, sort_keys=False))
    return file


def problem_of(folder: Path, **changed: Any) -> str:
    with pytest.raises(SpecError) as caught:
        check_specs(read_table(written(folder, **changed)))
    text = str(caught.value)
    assert text.startswith("own.table.yaml: ")
    return text.removeprefix("own.table.yaml: ")


# ---- calstudy's own ------------------------------------------------------------------------------


@every_table
def test_each_row_is_a_label_of_its_study(name: str) -> None:
    table = read_table(FILES[name])
    check_specs(table)
    for row in table.rows:
        spec = read_spec(table.spec_file(row.study, short=False))
        assert row.label in [variant.label for variant in spec.variants]


@pytest.mark.parametrize("name", CELLS)
def test_its_short_forms_have_the_labels_of_all_rows(name: str) -> None:
    table = read_table(FILES[name])
    for row in table.rows:
        spec = read_spec(table.spec_file(row.study, short=True))
        assert row.label in [variant.label for variant in spec.variants]


@pytest.mark.parametrize("name", CELLS)
def test_each_label_of_a_study_with_rows_has_one(name: str) -> None:
    table = read_table(FILES[name])
    for study in table.studies:
        if study.seeds is None:
            spec = read_spec(table.spec_file(study.name, short=False))
            rows = {row.label for row in table.rows if row.study == study.name}
            assert rows == {variant.label for variant in spec.variants}


@pytest.mark.parametrize("name", CELLS)
def test_it_has_all_that_was_printed(name: str) -> None:
    published = yaml.safe_load(FILES[name].read_text()).get("published", {})
    cells = [cell for rows in published.values() for row in rows.values() for cell in row]
    assert len(cells) == CELLS[name]


@pytest.mark.parametrize(
    ("name", "network", "row", "column", "printed"),
    [
        ("focal_cifar10", "resnet50", "CE", "error", 4.95),
        ("focal_cifar10", "resnet110", "MMCE", "temperature", 2.8),
        ("focal_cifar10", "wide_resnet_26_10", "LS-0.05", "ece", 4.26),
        ("focal_cifar10", "densenet121", "FLSD-53", "ts_ece", 1.22),
        ("focal_cifar10", "resnet50", "FL-1", "ece", None),
        ("focal_cifar10", "resnet50", "CE", "nll_ts_ece", None),
        ("focal_cifar100", "resnet50", "CE", "ece", None),
        ("mbls_tiny_imagenet", "resnet101", "MbLS", "ece", 1.62),
        ("mbls_cifar10", "resnet50", "MbLS", "aece", None),
        ("mbls_cub200", None, "LS", "accuracy", 74.51),
        ("meta_regularization_cifar10", None, "CE+TS", "ece", 3.083),
        ("meta_regularization_cifar100", None, "FLg-SECE", "nll", 0.877),
        ("meta_regularization_tiny_imagenet", None, "CE+TS", "ece", None),
        ("meta_regularization_tiny_imagenet", None, "FLg-DECE", "mce", 11.542),
        ("sample_prioritization_cifar10", None, "Mixup-100", "accuracy", 95.1),
        ("sample_prioritization_cifar100_guided", None, "Focal-10", "ece", 1.51),
    ],
)
def test_cells_are_as_printed(
    name: str, network: str | None, row: str, column: str, printed: float | None
) -> None:
    assert read_table(FILES[name]).published_at(network, row, column) == printed


def test_the_option_of_the_focal_tables_drops_the_rate_where_the_paper_does() -> None:
    for name, epochs, drops in (
        ("focal_cifar10", 350, (150, 250)),
        ("focal_cifar100", 350, (150, 250)),
        ("focal_tiny_imagenet", 100, (40, 60)),
    ):
        steps = read_table(FILES[name]).options["drops_as_written"].values["optimizer.steps"]
        for step, drop in zip(steps, drops, strict=True):
            assert (drop - 0.01) / epochs < step <= drop / epochs


def test_what_the_paper_leaves_open_is_said() -> None:
    """A cell is not told by its note: all notes stand above the table."""
    (protocol, *_) = [
        note for note in read_table(FILES["mbls_cifar10"]).notes if note.startswith("Unknown: ")
    ]
    assert "does not state its schedule, epochs, batch size and network" in protocol
    assert any("torn off" in note for note in read_table(FILES["mbls_tiny_imagenet"]).notes)


def test_the_target_of_a_guided_table_comes_first_and_once() -> None:
    for data in ("cifar10", "cifar100"):
        target, guided = read_table(FILES[f"sample_prioritization_{data}_guided"]).studies
        assert (target.name, target.seeds) == (f"sample_prioritization_{data}_target", 1)
        assert (guided.name, guided.seeds) == (f"sample_prioritization_{data}_guided", None)


def test_all_of_them_are_read_without_torch() -> None:
    lines = (
        "import sys; from study.reproduction.table import packaged_tables, read_table;"
        "[read_table(file) for file in packaged_tables().values()]; print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert ended.stdout.strip() == "False", ended.stderr


# ---- one of one's own ----------------------------------------------------------------------------


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    file = written(tmp_path)
    table = read_table(file)
    check_specs(table)
    assert (table.name, table.file, table.runs, table.classes) == ("own", file, None, None)
    assert [column.name for column in table.columns] == ["error", "T", "theirs"]
    assert table.row("CE+TS").after == "nll" and table.row("CE").study == "small"
    assert table.column("T").step == 0.1 and table.column("error").digits == 2
    assert table.published_at(None, "CE", "T") == 2.5
    assert table.published_at(None, "FL-3", "T") is None
    assert [claim.row for claim in table.claims] == ["FL-3", "CE"]
    assert table.claims[1].than == 1.0
    assert table.spec_file("small", short=True) == tmp_path / "small_short.yaml"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"titel": "x"}, "titel: there is no key 'titel'. Did you mean 'title'?"),
        ({"title": None}, "title: is missing. A table needs title, "),
        ({"studies": [{"name": "smal"}]}, "studies[0].name: there is no smal.yaml next to"),
        ({"studies": [{"name": "small"}] * 2}, "studies[1].name: 'small' is listed twice"),
        ({"columns": {"T": {"metric": "temperature"}}}, "columns.T.after: is missing: temperature"),
        ({"columns": {"T": {"metrik": "ece"}}}, "metrik: Column has no 'metrik'. Did you mean"),
        ({"columns": {"T": {}}}, "columns.T.metric: is missing"),
        ({"columns": {}}, "columns: must map names to settings"),
        (
            {"rows": [{"name": "CE", "label": "crossentropy"}], "claims": None},
            "rows[0].label: there is no label 'crossentropy'. Did you mean 'cross_entropy'?",
        ),
        ({"rows": [{"name": "CE", "label": "focal_3"}] * 2}, "there are two rows 'CE'"),
        ({"rows": [{"name": "CE", "label": "focal_3", "study": "x"}]}, "'x' is no study of rows"),
        ({"rows": [{"name": "CE", "label": "focal_3", "after": "ece"}]}, "there is no 'ece'"),
        ({"published": {"all": {"CR": {"error": 1}}}}, "there is no row 'CR'"),
        ({"published": {"all": {"CE": {"eror": 1}}}}, "Did you mean 'error'?"),
        ({"published": {"resnet50": {}}}, "there is no network 'resnet50'"),
        ({"published": {"all": {"CE": {"error": None}}}}, "published.all.CE.error: must be a num"),
        ({"unknown": [{"what": "x"}]}, "unknown: is no key any more. Write it as a sentence under"),
        ({"uncertain": []}, "uncertain: is no key any more. Write it as a sentence under `notes`."),
        ({"claims": [{"says": "x", "than": "CE", "column": "T"}]}, "one of `lower` and `higher`"),
        (
            {"claims": [{"says": "x", "lower": "CE", "than": "FL3", "column": "T"}]},
            "claims[0].than: there is no row 'FL3'",
        ),
        (
            {"claims": [{"says": "x", "lower": "CE", "than": "CE", "column": "T"}]},
            "claims[0].than: is 'CE' itself",
        ),
        (
            {"claims": [{"says": "x", "lower": "CE", "than": "FL-3", "column": "t"}]},
            "claims[0].column: there is no column 't'",
        ),
        (
            {"columns": {"error": {"metric": "eror"}}, "published": None, "claims": None},
            "columns.error.metric: there is no metric 'eror'. Did you mean 'error'?",
        ),
        (
            {"options": {"x": {"what": "x", "values": {"optimizer.step": [0.5]}}}},
            "options.x.values.optimizer.step: Optimizer has no 'step'",
        ),
        (
            {"options": {"x": {"what": "x", "values": {"optimizer.lr": -1}}}},
            "options.x.values.optimizer.lr: must be > 0",
        ),
        ({"networks": {"a": {"model": "resnet5", "hours": 1}}, "published": None}, "resnet50"),
        ({"networks": {"a": {"model": "mlp"}}, "hours": 1, "published": None}, "each network"),
        ({"runs": 0}, "runs: must be a whole number of 1 or more, got 0"),
        ({"notes": [1]}, "notes[0]: must be text, got 1"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    assert words in problem_of(tmp_path, **changed)


def test_a_target_has_no_rows(tmp_path: Path) -> None:
    found = problem_of(tmp_path, studies=[{"name": "small", "seeds": 1}])
    assert "rows[0].study: is missing" in found


def test_tables_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert find_table("focal_cifar10") == FILES["focal_cifar10"]
    file = written(tmp_path)
    assert find_table(str(file)) == file
    with pytest.raises(FieldError, match="Did you mean 'focal_cifar10'"):
        find_table("focal_cifar")
    with pytest.raises(FieldError, match="there is no file"):
        find_table(str(tmp_path / "other.table.yaml"))
    (tmp_path / "empty.table.yaml").write_text("")
    with pytest.raises(SpecError, match=r"empty\.table\.yaml: is empty"):
        read_table(tmp_path / "empty.table.yaml")
