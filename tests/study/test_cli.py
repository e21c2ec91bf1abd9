"""Commands that need no study: what they print, and one clear line with exit
code 2 for a mistake."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml

from study import cli
from study.cli import main
from tests import golden
from tests.data.bombs import npy_of, npz_of
from tests.study.made import made_study
from trainables.files import arrays


def calstudy(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, out, err


def test_help_names_every_command_once_and_cuts_no_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, whole, _ = calstudy(capsys, "--help")
    assert len(whole.splitlines()) <= 40
    kept = {title: names for title, names in cli.GROUPS.items() if "audit" not in names}
    monkeypatch.setattr(cli, "GROUPS", kept)
    _, out, _ = calstudy(capsys, "--help")
    _, _, listed = out.partition("Options:")
    names = cli.calstudy.list_commands(click.Context(cli.calstudy))
    rows = [
        line for line in listed.splitlines() if line.startswith("  ") and line.split()[0] in names
    ]
    assert sorted(line.split()[0] for line in rows) == sorted(names) and "..." not in listed
    assert all(line.endswith(".") and len(line) <= 80 for line in rows)
    others = ["audit", "delete", "slim", "sync"]
    assert [line.split()[0] for line in rows[-4:]] == others and "\nOther:\n" in listed


HEAVY = {"torch", "torchvision", "ray", "mlflow"}
COMMANDS = cli.calstudy.list_commands(click.Context(cli.calstudy))
HELP = [["--help"], *([name, "--help"] for name in COMMANDS)]
LISTS = [["list", kind] for kind in ("methods", "spaces", "datasets", "models", "metrics")]


@pytest.mark.parametrize(
    ("lines", "absent"), [(HELP, HEAVY | {"optuna", "numpy"}), (LISTS, HEAVY)], ids=["help", "list"]
)
def test_help_and_list_load_no_heavy_library(lines: list[list[str]], absent: set[str]) -> None:
    """In one fresh process, one after another: the first line that loads one is named."""
    code = (
        "import sys; from study.cli import calstudy\n"
        f"for words in {lines}:\n"
        "    calstudy(words, standalone_mode=False)\n"
        f"    print(words, *sorted({absent} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [str(words) for words in lines]


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    logits, labels, _ = golden.input_b()
    np.savez(tmp_path / "b.npz", logits=logits.numpy(), labels=labels.numpy())
    return tmp_path / "b.npz"


@pytest.mark.slow
def test_evaluate_gives_the_golden_values(
    capsys: pytest.CaptureFixture[str], predictions: Path
) -> None:
    code, out, _ = calstudy(capsys, "evaluate", predictions, "--json")
    found = json.loads(out)
    assert code == 0 and (found["num_samples"], found["num_classes"]) == (200, 10)
    expected = golden.GOLDEN["metrics"]["B"]
    assert found["metrics"]["ece"] == pytest.approx(expected["ECE15 netcal"], abs=1e-7)
    assert found["metrics"]["nll"] == pytest.approx(expected["NLL mean"], abs=1e-7)
    assert set(found["metrics"]) > {"accuracy", "brier", "ts_ece", "ts_nll"}
    _, out, _ = calstudy(capsys, "evaluate", predictions, "--metrics", "classwise_ece", "--json")
    found = json.loads(out)["metrics"]["classwise_ece"]
    assert found == pytest.approx(expected["SCE15 google"], abs=1e-7)


@pytest.mark.slow
def test_evaluate_takes_probabilities_and_bins(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logits, labels, _ = golden.input_b()
    np.savez(tmp_path / "p.npz", probs=logits.softmax(-1).numpy(), labels=labels.numpy())
    _, out, _ = calstudy(capsys, "evaluate", tmp_path / "p.npz", "--bins", 10, "--json")
    expected = golden.GOLDEN["metrics"]["B"]["ECE10 netcal"]
    assert json.loads(out)["metrics"]["ece"] == pytest.approx(expected, abs=1e-7)


def test_a_probability_of_zero_is_an_infinite_nll_and_said_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "z.npz", probs=np.array([[1.0, 0.0], [0.6, 0.4]]), labels=np.array([1, 0]))
    _, out, _ = calstudy(capsys, "evaluate", tmp_path / "z.npz", "--json")
    assert json.loads(out)["metrics"]["nll"] is None
    assert json.loads(out)["infinite_nll"] == {"rows": 1, "first": [0]}
    _, out, _ = calstudy(capsys, "evaluate", tmp_path / "z.npz")
    assert "inf" in out and "1 row, counted from 0: 0.\n" in out
    _, out, _ = calstudy(capsys, "evaluate", tmp_path / "z.npz", "--metrics", "ece")
    assert "infinite" not in out


def test_of_many_rows_of_an_infinite_nll_the_first_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    labels = np.arange(40) % 2  # every odd row
    np.savez(tmp_path / "z.npz", probs=np.tile([1.0, 0.0], (40, 1)), labels=labels)
    _, out, _ = calstudy(capsys, "evaluate", tmp_path / "z.npz")
    assert "20 rows, counted from 0: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 10 more.\n" in out


GOOD = {"logits": np.zeros((4, 3), np.float32), "labels": np.array([0, 1, 2, 0])}
BAD_ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"labels": GOOD["labels"]}, "neither 'logits' nor 'probs'"),
    ({"logits": GOOD["logits"]}, "no array 'labels'"),
    ({**GOOD, "logits": np.zeros(4)}, "'logits' must be float [N, K]"),
    ({**GOOD, "logits": np.zeros((4, 1))}, "K >= 2"),
    ({**GOOD, "logits": np.zeros((0, 3)), "labels": np.zeros(0, int)}, "empty"),
    ({**GOOD, "labels": np.array([0, 1])}, "'labels' must be integers [4]"),
    ({**GOOD, "labels": np.array(["0", "1", "2", "cat"])}, "row 3: 'labels' is 'cat', no number"),
    ({**GOOD, "labels": np.array([0.0, 1.5, 2.0, 0.0])}, "row 1: 'labels' is 1.5, not one of 0..2"),
    ({**GOOD, "labels": np.array([0.0, np.nan, 2.0, 0.0])}, "row 1: 'labels' is nan, not one of"),
    (
        {"scores": GOOD["logits"], "y": GOOD["labels"]},
        "has neither 'logits' nor 'probs', and no array 'labels'. It has scores, y. Give an npz",
    ),
    ({**GOOD, "labels": np.array([0, 1, 3, 0])}, "row 2: 'labels' is 3, not one of 0..2"),
    ({**GOOD, "labels": np.array([0, -1, 2, 0])}, "row 1: 'labels' is -1, not"),
    ({**GOOD, "logits": np.full((4, 3), np.nan)}, "row 0: 'logits' of class 0 is nan"),
    ({"probs": np.full((4, 3), 0.5), "labels": GOOD["labels"]}, "sum to 1"),
    (
        {"logits": np.array([{}], dtype=object), "labels": GOOD["labels"]},
        "holds Python objects. Give an npz",
    ),
]


@pytest.mark.parametrize(("arrays", "said"), BAD_ARRAYS, ids=[said for _, said in BAD_ARRAYS])
def test_evaluate_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    code, out, err = calstudy(capsys, "evaluate", tmp_path / "bad.npz")
    assert code == 2 and out == "" and said in err and "bad.npz" in err and err.count("\n") == 1


@pytest.mark.parametrize("shape", [(10**12, 4), (10**6, 10**6)])
def test_evaluate_allocates_no_more_than_a_file_holds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shape: tuple[int, int]
) -> None:
    code, out, err = calstudy(capsys, "evaluate", npz_of(tmp_path / "bad.npz", shape))
    assert code == 2 and out == "" and err.count("\n") == 1
    claimed = (
        f"'logits' is float32 {list(shape)} by its header, {shape[0] * shape[1] * 4:,} bytes, but"
        " 136 bytes."
    )
    assert err.endswith(f"bad.npz: {claimed} The file is damaged: save it again.\n")
    (tmp_path / "one.npz").write_bytes(npy_of(shape))
    code, out, err = calstudy(capsys, "evaluate", tmp_path / "one.npz")
    assert code == 2 and err.endswith(
        "is a single array. Give an npz with `logits` or `probs`, and `labels`.\n"
    )


def test_evaluate_reads_no_more_than_memory_holds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(
        tmp_path / "bomb.npz", logits=np.zeros((2**20, 4), np.float32), labels=np.zeros(2**20, int)
    )
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    monkeypatch.setattr(arrays, "memory", lambda: 40_000_000)
    code, out, err = calstudy(capsys, "evaluate", tmp_path / "bomb.npz")
    assert (code, out) == (2, "")
    assert err.endswith(
        "bomb.npz: its arrays take 0.0 GB, half of this machine's memory is 0.0 GB.\n"
    )
    content = bytearray((tmp_path / "bomb.npz").read_bytes())
    content[200:260] = bytes(byte ^ 0xFF for byte in content[200:260])  # what deflate cannot read
    (tmp_path / "torn.npz").write_bytes(content)
    monkeypatch.undo()
    code, _, err = calstudy(capsys, "evaluate", tmp_path / "torn.npz")
    assert code == 2 and "torn.npz: cannot be read as npz (" in err and err.count("\n") == 1


@pytest.mark.parametrize("content", [None, b"", b"name: mine\n", b"PK\x03\x04 torn"])
def test_evaluate_of_no_archive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "f.npz").write_bytes(content)
    code, _, err = calstudy(capsys, "evaluate", tmp_path / "f.npz")
    assert code == 2 and "f.npz" in err and err.count("\n") == 1
    assert "pickle" not in err
    if content == b"name: mine\n":
        assert err.endswith("is no npz. Give an npz with `logits` or `probs`, and `labels`.\n")
        (tmp_path / "f.txt").write_bytes(content)
        code, _, err = calstudy(capsys, "evaluate", tmp_path / "f.txt")
        assert code == 2 and err.endswith("and `labels`, or a csv or parquet file.\n")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("methods", {"cross_entropy", "focal", "label_smoothing", "mbls", "sece"}),
        ("spaces", {"cross_entropy", "focal", "label_smoothing", "mbls", "sece"}),
        ("datasets", {"digits", "parquet"}),
        ("models", {"cnn", "mlp", "resnet18"}),
        ("metrics", {"accuracy", "ece", "ts_ece", "top5_accuracy", "adaptive_ece"}),
    ],
)
def test_list_names_all_there_is(
    capsys: pytest.CaptureFixture[str], kind: str, expected: set[str]
) -> None:
    code, out, _ = calstudy(capsys, "list", kind, "--json")
    rows = json.loads(out)
    assert (
        code == 0
        and expected <= {row["name"] for row in rows}
        and all(row["summary"] for row in rows)
    )
    _, shown, _ = calstudy(capsys, "list", kind)
    assert all(name in shown for name in expected)


def test_plan_writes_nothing_and_explains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = Path("study/specs/digits.yaml").resolve()
    code, out, _ = calstudy(capsys, "plan", spec, "--storage", tmp_path / "none")
    assert code == 0 and "1151 train, 287 validation, 359 test" in out and "sece_on_focal" in out
    assert not (tmp_path / "none").exists()
    code, out, _ = calstudy(capsys, "plan", spec, "--explain", "--json")
    rows = {row["key"]: row for row in json.loads(out)["explain"]}
    assert code == 0 and {
        "name",
        "trials",
        "optimizer.lr",
        "checkpoint_seconds",
        "tracking",
    } <= set(rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "none"), "no study at"),
        (("pareto", "none"), "no study at"),
        (("sync", "none"), "no study at"),
        (("export", "none", "--pick", "knee", "--name", "m"), "no study at"),
        (("export", "none", "--name", "m"), "no study at"),
        (
            ("export", "none", "--name", "m", "--trial", "focal/0001", "--pick", "knee"),
            "one of --trial and --pick",
        ),
        (("run", "none.yaml"), "none.yaml"),
        (("plan", "none.yaml"), "none.yaml"),
        (("list", "metods"), "metods"),
        (("stauts", "x"), "there is no command 'stauts'. Did you mean 'status'?"),
        (("runn", "x"), "there is no command 'runn'. Did you mean 'run'?"),
        (("xyz",), "there is no command 'xyz'. Valid values: answer, "),
        (("--hlp",), "--hlp"),
        (("evaluate", "x.npz", "--bins", "0"), "--bins"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: Any,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = calstudy(capsys, *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_bad_data_is_one_line_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bad.parquet").write_bytes(b"this is no parquet")
    plain = {
        "name": "bad",
        "data": {"name": "parquet", "path": "bad.parquet"},
        "model": "mlp",
        "methods": ["focal"],
    }
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(plain))
    for command in ("plan", "run"):
        code, _, err = calstudy(
            capsys, command, tmp_path / "bad.yaml", "--storage", tmp_path / "studies"
        )
        assert code == 2 and err.startswith("bad.yaml: data.path: ") and err.count("\n") == 1
        assert not (tmp_path / "studies").exists()


def test_an_objective_the_data_cannot_have(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from tests.data.test_parquet import png

    rows = [{"image": png(index), "label": index % 3, "split": "train"} for index in range(60)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "three.parquet")
    plain = {
        "name": "three",
        "data": {"name": "parquet", "path": "three.parquet"},
        "model": "mlp",
        "methods": ["focal"],
        "objectives": [{"metric": "top5_accuracy", "direction": "maximize"}],
    }
    (tmp_path / "three.yaml").write_text(yaml.safe_dump(plain))
    code, _, err = calstudy(capsys, "plan", tmp_path / "three.yaml")
    assert code == 2 and "objectives[0].metric" in err and "3 classes" in err


@pytest.mark.parametrize("name", ["a\x1b[2J.yaml", "a\nname: b.yaml", "\x9b31m.yaml", "a\0"])
@pytest.mark.parametrize("command", ["plan", "run", "evaluate", "init"])
def test_a_name_with_control_characters_is_refused(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "-o"] if command == "init" else []
    code, out, err = calstudy(capsys, command, *words, tmp_path / name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has no control character. Remove it, or rename the file." in err
    assert err.rstrip("\n").isprintable()


def test_no_permission_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the error is raised by hand."""

    def refused(*words: object) -> None:
        raise PermissionError(13, "Permission denied", "/srv/studies")

    monkeypatch.setattr("study.store.study.open_study", refused)
    code, out, err = calstudy(capsys, "status", "mine")
    assert (code, out) == (2, "") and err.startswith(
        "calstudy: no permission for /srv/studies. Give another path"
    )


@pytest.mark.parametrize(("below", "said"), [("", "File exists"), ("below/", "Not a directory")])
def test_a_file_where_a_folder_should_be_is_one_line_in_words(
    below: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_study(tmp_path, "small", {"focal": [({"accuracy": 0.9, "ece": 0.1, "nll": 0.3}, [])]})
    (tmp_path / "file").write_text("a thesis")
    csv = f"{tmp_path}/file/{below}front.csv"
    with pytest.raises(SystemExit) as ended:
        main(["trials", "small", "--storage", str(tmp_path), "--csv", csv])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and "Errno" not in err
    assert err.startswith(f"calstudy: {tmp_path}/file") and f": {said}. A " in err
    assert "Give another path" in err
