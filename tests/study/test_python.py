"""A study in Python: its frames against the records and files they are of."""

import importlib
import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from study import Study, python
from study.notebook.places import Place
from study.schema.errors import SpecError
from tests.study.command_line import here, write_spec
from tests.study.made import made_study
from trainables import models
from trainables.models.shared.whole_module import network_of
from trainables.outputs.predictions import Predictions
from trainables.plugins import use_extensions
from trainables.problems import FieldError, UserError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "use-python.md").read_text()


def some_predictions(label: str, number: int) -> Predictions:
    generator = torch.Generator().manual_seed(number)
    return Predictions(torch.randn(40, 10, generator=generator), torch.arange(40) % 10)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two complete trials and a failed one; focal/0001 is better in both objectives."""
    row = {
        "epoch": 1,
        "time": 1.7e9,
        "seconds": 2.0,
        "samples": 900,
        "train_loss": 0.5,
        "accuracy": 0.8,
    }
    trials = {
        "focal": [
            ({"accuracy": 0.8, "ece": 0.1}, [row, {**row, "epoch": 2, "accuracy": 0.9}]),
            ({"accuracy": 0.9, "ece": 0.05}, [row]),
        ],
        "mbls": [({}, [])],
    }
    made_study(tmp_path, "made", trials, predictions=some_predictions)
    return Study.open("made", storage=tmp_path)


def test_trials_are_rows(study: Study) -> None:
    frame = study.trials()
    assert list(frame.trial) == ["focal/0000", "focal/0001", "mbls/0000"]
    assert list(frame.state) == ["complete", "complete", "failed"] and list(frame.front) == [
        False,
        True,
        False,
    ]
    assert frame.accuracy.tolist()[:2] == [0.8, 0.9] and frame.accuracy.isna().tolist() == [
        False,
        False,
        True,
    ]
    assert str(frame.started.dtype).startswith("datetime64") and frame.started.dt.tz is not None
    assert frame.reason.notna().tolist() == [False, False, True]
    columns = ["trial", "method", "number", "state", "front"]
    assert list(frame)[:5] == columns and {
        "epoch",
        "samples",
        "seconds",
        "attempts",
        "ended",
        "device",
    } <= {*frame}


def test_epochs_are_rows(study: Study) -> None:
    frame = study.epochs()
    assert list(zip(frame.trial, frame.epoch, strict=True)) == [
        ("focal/0000", 1),
        ("focal/0000", 2),
        ("focal/0001", 1),
    ]
    assert (
        frame.time[0] == pandas.Timestamp("2023-11-14 22:13:20", tz="UTC")
        and frame.accuracy[1] == 0.9
    )


def test_the_front_and_predictions(study: Study) -> None:
    assert study.front().trial.tolist() == ["focal/0001"]
    found = study.predictions("focal/1")
    assert torch.equal(found.logits, some_predictions("focal", 1).logits)
    with pytest.raises(FieldError, match="there is no trial 'focl/1'"):
        study.predictions("focl/1")
    assert repr(study).startswith("Study('made': 2 complete, 1 failed, 1 to do; /")
    assert study.spec.name == "made"


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no study at"):
        Study.open("nowhere", storage=tmp_path)


@pytest.mark.parametrize("trust", [False, True])
def test_one_that_was_opened_goes_on_from_its_record(
    study: Study, monkeypatch: pytest.MonkeyPatch, trust: bool
) -> None:
    """With the tracking server of its last run, which a spec does not name."""
    asked: list[list[str]] = []
    monkeypatch.setattr(python, "run_command", lambda words, *how: asked.append(words))
    Study.open(study.directory).run(trials=7, trust=trust)
    where = [str(study.directory), "--storage", str(study.directory.parent)]
    assert asked == [["run", *where, "--trials", "7", *(["--trust"] if trust else [])]]


# ---- keys as arguments ---------------------------------------------------------------------------


def keys(folder: Path, **other: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["cross_entropy", "focal"],
        "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
        "trials": 1,
        "epochs": 2,
        "storage": str(folder),
        **other,
    }


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run here, without Ray; test_process.py has the process of its own."""

    def run(words: list[str], place: Place, again: str, echo: bool = True) -> tuple[str, ...]:
        return tuple(here(*words).splitlines())

    monkeypatch.setattr(python, "run_command", run)


def test_keys_are_what_a_file_says(tmp_path: Path) -> None:
    file = write_spec(tmp_path / "small.yaml", storage=str(tmp_path), trials=1)
    given = keys(
        tmp_path,
        methods=("cross_entropy", "focal"),
        epochs=np.int64(2),
        storage=tmp_path,
        optimizer={"lr": np.float32(0.5)},
    )
    of_file = {**Study.from_spec(file).spec.to_mapping()}
    made = Study.create(**given)
    found = made.spec.to_mapping()
    assert found.pop("optimizer") == {**of_file.pop("optimizer"), "lr": 0.5}  # type: ignore[arg-type,dict-item]
    assert found == of_file
    assert repr(made) == f"Study('small': not run yet; {tmp_path / 'small'})"
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epoch": 3}, "epoch: there is no key 'epoch'. Did you mean 'epochs'?"),
        ({"methods": ["focl"]}, "Did you mean 'focal'?"),
        ({"optimizer": {"lr": -1.0}}, "optimizer.lr: must be"),
        ({"data": None}, "data"),
        (
            {"methods": {"focal"}},
            "methods: must be a value that YAML can hold, got set. Write a number, a text, a list"
            " or a dict.",
        ),
    ],
)
def test_wrong_keys_raise_with_the_mend(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    for make in (lambda given: Study.create(**given), Study.from_spec):
        with pytest.raises(UserError) as raised:
            make(keys(tmp_path, **wrong))
        assert message in str(raised.value) and str(raised.value).startswith(next(iter(wrong)))


def test_a_key_that_is_missing() -> None:
    with pytest.raises(UserError, match=r"^data: is missing. A study needs name, data, model and"):
        Study.create(name="small")


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_study_without_a_file(tmp_path: Path) -> None:
    """Made, run, opened by equal keys, refused by others, and taken further."""
    made = Study.create(**keys(tmp_path))
    assert made.trials().empty and made.epochs().empty and made.front().empty
    with pytest.raises(UserError, match=r"small has not been run yet. Run it: run\(\)"):
        made.answer()
    plan = made.plan()
    assert repr(plan) == "Plan('small: 2 methods x 1 trials of 2 epochs')"
    assert f"results go to {tmp_path / 'small'}" in str(plan)
    run = made.run()
    assert run.trials().state.tolist() == ["complete"] * 2
    assert made.trials().equals(run.trials())  # `made` is the study as it now is, too
    assert repr(Study.create(**keys(tmp_path))) == repr(made)
    with pytest.raises(SpecError) as raised:
        Study.create(**keys(tmp_path, trials=2, epochs=3, methods=["focal", "mbls"]))
    first, *lines = str(raised.value).splitlines()
    assert first.startswith("name: 'small' has begun with other keys") and "Restore" in first
    assert lines == [
        "  methods.cross_entropy.name: was cross_entropy, is absent",
        "  epochs: was 2, is 3",
        "  trials: was 1, is 2",
        "  methods.mbls.name: was absent, is mbls",
    ]
    more = Study.from_spec(keys(tmp_path, trials=2)).run()
    assert len(more.trials()) == 4
    with pytest.raises(SpecError, match=r"trials: was 2, is 1"):
        Study.create(**keys(tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_what_follows_a_run(tmp_path: Path) -> None:
    study = Study.create(**keys(tmp_path, methods=["focal"], epochs=1)).run(trials=2)
    answer = study.answer(interval=90)
    assert answer.trial in study.trials().trial.tolist() and answer.taken is None
    assert repr(answer) == f"Answer({answer.sentences[0]!r})" and "90% intervals" in str(answer)
    page = answer._repr_html_()
    assert page.startswith("<style>") and f"</svg>{answer.model.name}</p>" in page
    assert "<code><span>study.confirm()</span></code>" in page
    assert "<svg" in page and "<script" not in page
    front = study.front()
    assert front._repr_html_().count("<th>") == 6 and "<img" in front._repr_html_()
    assert type(front[front.ece < 1]) is pandas.DataFrame
    assert answer.next[0][0].startswith("calstudy confirm small --storage")
    file = study.report(bootstrap=0)
    assert file == tmp_path / "small" / "report.html" and file.stat().st_size > 10_000
    drawn = study.figures(only="front", format="svg", bootstrap=0)
    (figure,) = drawn
    assert figure == tmp_path / "small" / "figures" / "front.svg" and figure.exists()
    assert "data:image/svg+xml;base64," in drawn._repr_html_()
    confirmed = study.confirm(trials=["focal/0000"], seeds=1)
    assert confirmed.name == "small-confirm" and confirmed.trials().test_ece.notna().all()
    assert study.export("kept", trial="focal/0001", temperature=False) == "models:/kept/1"
    assert study.export("kept", trial="focal/0001", temperature=False) == "models:/kept/1"


def test_what_reads_starts_no_command(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python, "run_command", None)
    answer = study.answer(temperature=True)
    assert answer.trial == "focal/0001" and "with its temperature" in str(answer)
    assert "Next: study.run(" in str(answer)
    (drawn,) = study.figures(only="front", bootstrap=0)
    assert drawn.is_file() and f"wrote {drawn}\n" in capsys.readouterr().out
    with pytest.raises(FieldError, match=r"interval: 40 is not between 50 and 100"):
        study.answer(interval=40)
    with pytest.raises(FieldError, match=r"bootstrap: 7 resamples are too few"):
        study.figures(bootstrap=7)


def test_a_plan_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python, "run_command", None)
    file = write_spec(tmp_path / "small.yaml", storage=str(tmp_path), trials=1)
    study = Study.from_spec(file)
    for given, option in (({}, ()), ({"explain": True}, ("--explain",))):
        lines = study.plan(**given).lines  # type: ignore[arg-type]
        assert lines == tuple(here("plan", file, *option).splitlines()) and len(lines) > 9
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_plan_without_a_cluster_waits_for_none(tmp_path: Path) -> None:
    study = Study.from_spec(write_spec(tmp_path / "small.yaml", storage=str(tmp_path)))
    with pytest.raises(UserError, match="--slots is for a cluster, and there is none without"):
        study.plan(slots=2)


def test_only_public_names_are_completed(study: Study) -> None:
    """Those of docs/how-to/use-python.md."""
    public = {
        *("create", "open", "from_spec", "name", "directory", "spec"),
        *("trials", "epochs", "front", "predictions"),
        *("plan", "run", "answer", "confirm", "report", "figures", "export"),
    }
    assert {*dir(study)} == public
    assert {name for name in dir(Study) if not name.startswith("_")} == public
    assert not [name for name in public if not re.search(rf"\b{name}\b", PAGE)]
    import study as package

    *classes, function = dir(package)
    assert classes == ["CommandFailed", "Study", "TryAgain", "UserError"]
    assert all(isinstance(getattr(package, name), type) for name in classes)
    assert function == "encode" and callable(package.encode)


@pytest.fixture
def page_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the reader of the page has, in an empty folder; `run` trains nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALSTUDY_STORAGE", raising=False)
    monkeypatch.setattr(Study, "run", lambda study: study)
    monkeypatch.setattr(Study, "answer", lambda study: repr(study))
    for name in ("confirm", "export"):  # called as they can be
        takes = inspect.signature(getattr(Study, name))
        monkeypatch.setattr(Study, name, staticmethod(partial(takes.bind, Study)))
    random = np.random.default_rng(0)
    number = np.arange(60)
    rows = {"age": 20.0 + number, "weight": random.normal(70, 9, 60)}
    logits = torch.from_numpy(random.normal(size=(60, 10)))
    return {
        "torch": torch,
        "frame": pandas.DataFrame({**rows, "outcome": number % 2, "patient": number // 4}),
        "pixels": random.integers(0, 256, (60, 1, 8, 8), np.uint8),
        "model": torch.nn.Identity(),
        "batch": logits,
        "logits": logits,
        "labels": torch.from_numpy(number % 10),
    }


def test_the_code_of_the_page(
    page_reader: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = [text for _, text in re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S)]
    first, answer, after, data, cell, read, alone = blocks
    exec(first, page_reader)
    assert "Study('mine': not run yet; " in capsys.readouterr().out
    notebook = (ROOT / "examples" / "notebook.ipynb").read_text()  # the same study, executed
    assert not [line for line in answer.splitlines() if line not in notebook]
    exec(after, page_reader)
    exec(data, page_reader)
    assert np.load("studies/table/data/train.npy").shape == (60, 2)
    assert np.load("studies/table/data/train_groups.npy").tolist() == (np.arange(60) // 4).tolist()
    for given in ("rows", "images"):
        Study.create(**keys(tmp_path, name=given, data=page_reader[given]))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "page_cell.py").write_text(f"import calstudy\nimport torch\n\n\n{cell}")
    importlib.import_module("page_cell")
    assert "def squared" in Path("studies/own/extensions/methods/squared.py").read_text()
    use_extensions(Path("studies/own/extensions"))
    assert network_of(models.find("net")(), (1, 8, 8), 10).head.out_features == 10
    exec(alone, page_reader)
    assert page_reader["loss"] > 0 and 0 < page_reader["error"] < 1
    trial = {"accuracy": 0.8, "ece": 0.1, "nll": 0.7}
    trials = {"focal": [(trial, []), ({**trial, "accuracy": 0.9}, [])]}
    made_study(tmp_path / "studies", "mine", trials, predictions=some_predictions)
    exec(read, page_reader)
    assert len(page_reader["trials"]) == 2 and page_reader["front"].trial.tolist() == ["focal/0001"]
    printed = capsys.readouterr().out
    assert "40 samples, 10 classes" in printed and "the first less the second" in printed
    assert "structured_vector" in page_reader["calibrators"].index


@pytest.mark.slow
def test_trials_as_a_table(study: Study, tmp_path: Path) -> None:
    shown = here("trials", "made", "--storage", tmp_path)
    assert "focal/0001" in shown and "failed" in shown
    here("trials", "made", "--storage", tmp_path, "--csv", tmp_path / "all.csv")
    frame = pandas.read_csv(tmp_path / "all.csv")
    assert pandas.to_datetime(frame.started)[0] == study.trials().started[0].floor("s")
    assert frame.trial.tolist() == study.trials().trial.tolist() and frame.ece.tolist()[:2] == [
        0.1,
        0.05,
    ]
