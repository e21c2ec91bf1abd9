"""The probe of a whole study: what it says, and that it leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import counted
from tests.study.command_line import calstudy, calstudy_json, here, write_spec
from trainables import trial_probe
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.loading.cache import data_digest
from trainables.outputs.classifier import Classifier
from trainables.plugins import use_extensions

pytestmark = pytest.mark.platform


@pytest.mark.slow
def test_plan_probe_predicts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that trains on a tenth of the samples costs less; files hold at least
    the weights."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    methods = [
        "cross_entropy",
        {"label": "prioritized", "name": "sample_prioritization", "fraction": 0.1, "warmup": 0},
    ]
    spec = write_spec(
        tmp_path / "small.yaml",
        methods=methods,
        epochs=6,
        trials=4,
        model={"name": "mlp", "width": 2048},
    )
    options = ["--storage", tmp_path / "studies"]
    found = calstudy_json("plan", spec, "--probe", *options)["probe"]
    whole, tenth = found["methods"]
    assert 0 < tenth["trial_process_seconds"] < 0.7 * whole["trial_process_seconds"]
    weights = 64 * 2048 + 2048 * 10  # float32
    assert whole["disk"] > 4 * 4 * weights and whole["checkpoint_size"] > 4 * weights
    assert whole["memory"] > 4 * weights and found["elapsed"] == sorted(found["elapsed"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml", "tmp"]
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture
def breaking(tmp_path: Path) -> Path:
    """A study of a method that trains and of one, an extension, whose loss raises."""
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "breaks.py").write_text(
        "from trainables.methods.cross_entropy import CrossEntropy\n\n\n"
        "class Breaks(CrossEntropy):\n"
        "    def loss(self, logits, targets, progress):\n"
        "        print('a line of its own')\n"
        "        raise ValueError('no such loss')\n"
    )
    return write_spec(
        tmp_path / "small.yaml", methods=["cross_entropy", "breaks"], extensions="mine"
    )


def names_it(shown: str) -> None:
    said = shown.strip().splitlines()[-1]
    place = "methods/breaks.py, line 7, in loss"
    assert said == f"small.yaml: extensions: {place}: ValueError: no such loss."
    assert "Traceback" not in shown


@pytest.mark.slow
def test_an_extension_that_breaks_is_named_before_the_run(breaking: Path, tmp_path: Path) -> None:
    names_it(here("plan", breaking, "--probe", "--storage", tmp_path / "studies", check=2))
    assert not (tmp_path / "studies").exists()


@pytest.mark.slow
def test_so_it_is_on_a_cluster_whose_slots_count(
    breaking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray counts five CPUs; a trial has two. Of those with a third of a GPU, two fit on one."""
    monkeypatch.setenv("CALSTUDY_DEVICE", "cpu")
    (tmp_path / "mine" / "methods" / "seen.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from trainables.methods.cross_entropy import CrossEntropy\n\n\n"
        "class Seen(CrossEntropy):\n"
        "    def loss(self, logits, targets, progress):\n"
        f"        file = Path({str(tmp_path)!r}, f'seen.{{os.getpid()}}')\n"
        "        file.write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "        return super().loss(logits, targets, progress)\n"
    )
    shared = {"label": "seen", "name": "seen", "resources": {"cpu": 2, "gpu": 0.33}}
    keys = {"methods": ["cross_entropy", shared], "extensions": "mine", "resources": {"cpu": 2}}
    with counted(cpus=5, gpus=3) as address:
        options = ("--probe", "--storage", tmp_path / "studies", "--address", address)
        names_it(calstudy("plan", breaking, *options, check=2).stderr)
        sound = write_spec(tmp_path / "sound.yaml", **keys)
        found = calstudy_json("plan", sound, *options)["probe"]
    (one, another) = [file.read_text() for file in tmp_path.glob("seen.*")]
    assert one == another and one in ("0", "1", "2")
    assert found["slots"] == 2
    assert [method["label"] for method in found["methods"]] == ["cross_entropy", "seen"]
    assert all(method["process_seconds"] > 0 for method in found["methods"])


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_said_with_its_method(tmp_path: Path) -> None:
    """Its cost is measured all the same; a method that trains is not named."""
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "undefined.py").write_text(
        "from trainables.methods.cross_entropy import CrossEntropy\n\n\n"
        "class Undefined(CrossEntropy):\n"
        "    def loss(self, logits, targets, progress):\n"
        "        return (logits - logits.detach() - 1).log().mean()\n"
    )
    spec = write_spec(
        tmp_path / "small.yaml", methods=["cross_entropy", "undefined"], extensions="mine"
    )
    shown = here("plan", spec, "--probe", "--storage", tmp_path / "studies")
    (line,) = (line for line in shown.splitlines() if "in the probe" in line)
    assert line.startswith(
        "warning: undefined: loss is nan at epoch 1 (optimizer.lr=0.1) in the probe. In a study"
    )
    assert "Lower optimizer.lr, or change the method's settings" in line


@pytest.mark.slow
def test_a_process_that_dies_is_said_with_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "dies.py").write_text(
        "import os\nfrom trainables.methods.cross_entropy import CrossEntropy\n\n\n"
        "class Dies(CrossEntropy):\n"
        "    def loss(self, logits, targets, progress):\n"
        "        print('all is lost', flush=True)\n"
        "        os._exit(3)\n"
    )
    spec = write_spec(tmp_path / "small.yaml", methods=["dies"], extensions="mine")
    shown = here("plan", spec, "--probe", "--storage", tmp_path / "studies", check=2)
    assert shown.splitlines()[-1] == (
        "small.yaml: methods.dies: its process ended with 3 (all is lost)."
    )


@pytest.mark.slow
def test_both_results_cost_what_their_files_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cold and the warm one each write the weights, as a trial does."""
    written: list[Path] = []
    save = Classifier.save

    def counted(self: Classifier, path: Path) -> str:
        written.append(path)
        return save(self, path)

    monkeypatch.setattr(Classifier, "save", counted)
    monkeypatch.setattr(trial_probe, "TRIAL_SECONDS", 0.0)
    plain = {"data": "digits", "model": "mlp", "method": "focal", "epochs": 3}
    config = TrialConfig.from_mapping(plain).to_mapping()
    resources = {"cpu": 1.0, "gpu": 0.0}
    job = trial_probe.Job([(1.0, config)], data_digest(Digits(), 0), resources, ())
    trial_probe.probe_trial(config, job, str(tmp_path))
    assert written == [tmp_path / "attempt-1" / "model.pt"] * 2
