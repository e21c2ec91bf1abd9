"""`calstudy init`: each file is written, parsed by who will read it, and refused where it cannot
fit."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.datasets import load_digits

import study
from study.cli import calstudy as command_line
from study.commands.init import KINDS
from study.machines.cluster_files import _minutes, kubernetes_name
from study.machines.wheel import installed_wheel
from tests.hosts import CHECKOUT
from tests.study.command_line import here, here_apart
from trainables.plugins import use_extensions

STUDY = """
name: my_study
data: {name: digits}
model: mlp
methods: [cross_entropy, {name: mbls, resources: {cpu: 8, gpu: 0}}]
trials: 2
epochs: 2
"""
MINE = '''"""é: [1]"""
from trainables import Method, cross_entropy_loss


class Mine(Method):
    def loss(self, logits, targets, progress):
        return cross_entropy_loss(logits, targets)
'''


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    return tmp_path


def refused(*words: object) -> str:
    """The one line that says why."""
    (line,) = here("init", *words, check=2).splitlines()
    return line.removeprefix("calstudy: ")


def checked_words(line: str) -> None:
    """Parse the words after `calstudy` as the command would, and carry nothing out."""
    _, name, *words = shlex.split(line)
    with command_line.make_context("calstudy", [name, *words]) as context:
        command = command_line.get_command(context, name)
        assert command is not None, name
        command.make_context(name, words, parent=context)


# ---- each kind -----------------------------------------------------------------------------------


def test_a_study_to_begin_with_is_a_study(folder: Path) -> None:
    told = here("init", "study", "first.yaml").splitlines()
    assert told == ["wrote first.yaml", "next: calstudy plan first.yaml"]
    assert "first: 3 methods x 24 trials of 20 epochs" in here("plan", "first.yaml")


def test_embeddings_come_with_a_table_that_others_read(folder: Path) -> None:
    """Its numbers are scikit-learn's digits; the study is the one that is shipped."""
    told = here("init", "embeddings").splitlines()
    files = ["wrote embeddings.yaml", "wrote embeddings.parquet"]
    assert told == [*files, "next: calstudy run embeddings.yaml"]
    table = pd.read_parquet("embeddings.parquet")
    digits = load_digits()
    assert np.array_equal(np.stack(table["embedding"]), digits.data)
    assert np.array_equal(table["label"], digits.target)
    shipped = Path(study.__file__).parent / "specs" / "embeddings.yaml"
    assert yaml.safe_load(Path("embeddings.yaml").read_text()) == yaml.safe_load(
        shipped.read_text()
    )
    assert "data: 10 classes of rows of 64 numbers" in here("plan", "embeddings.yaml")
    assert refused("embeddings").startswith("embeddings.yaml: is there already. Move it away")
    Path("embeddings.yaml").unlink()
    assert refused("embeddings").startswith("embeddings.parquet: is there already.")


@pytest.mark.slow
@pytest.mark.platform
def test_from_a_table_to_a_verified_model_by_the_words_of_the_readme(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands as they stand there; the study with a trial of each method and an epoch."""
    monkeypatch.setenv("CALSTUDY_CACHE", str(folder / "cache"))
    readme = " ".join((CHECKOUT / "README.md").read_text().split())
    _, _, after = readme.partition("embeddings or measurements")
    lines = re.findall(r"`calstudy ([^`]+)`", after)[:7]
    names = [line.partition(" ")[0] for line in lines]
    assert names == ["init", "plan", "run", "confirm", "answer", "export", "verify"]
    for line in lines:
        said = here(*shlex.split(line))
        if line.startswith("init"):
            text = Path("embeddings.yaml").read_text()
            short = text.replace("trials: 12", "trials: 1").replace("epochs: 20", "epochs: 1")
            Path("embeddings.yaml").write_text(short)
    assert "models:/mine/1" in said and "287 validation" in said
    page = CHECKOUT / "docs" / "how-to" / "register-and-serve.md"
    after = page.read_text().partition("in Python\n")[2]
    code = after.partition("```python\n")[2].partition("```")[0]
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    digit, confidence = asked.stdout.split()
    assert digit in "0123456789" and 0.1 <= float(confidence) <= 1


def test_a_rayjob_carries_the_study_and_runs_it(folder: Path) -> None:
    """The fields themselves were checked against KubeRay's own definition, once (see its top)."""
    methods = folder / "own/methods"
    methods.mkdir(parents=True)
    code = MINE + 'SHOWN = "{{nodes}} of {{cpus}}"\n'  # what the template has too
    (methods / "mine.py").write_text(code)
    (methods / "weights.bin").write_bytes(b"\xff\x00")
    (methods / "linked.py").symlink_to("/etc/passwd")  # is not carried
    text = STUDY + "extensions: own\n"
    (folder / "mine.yaml").write_text(text)
    words = ("init", "kuberay", "mine.yaml", "--nodes", 3, "--gpus", 2, "--cpus", 16)
    shown, said = here_apart(*words)
    assert "'my_study' is no name in Kubernetes; the RayJob is 'my-study'." in said
    assert shown.splitlines()[-1] == "next: kubectl apply -f mine.rayjob.yaml"
    claim, configmap, job = yaml.safe_load_all((folder / "mine.rayjob.yaml").read_text())
    assert claim["kind"] == "PersistentVolumeClaim"
    cluster = job["spec"]["rayClusterSpec"]
    head = cluster["headGroupSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert (workers["minReplicas"], workers["maxReplicas"]) == (0, 3)
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "16"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert laid_out(head, configmap) == {
        "study.yaml": {**yaml.safe_load(text), "extensions": "extensions"},
        "extensions/methods/mine.py": code.encode(),
        "extensions/methods/weights.bin": b"\xff\x00",
    }
    checked_words(job["spec"]["entrypoint"])


def laid_out(group: dict[str, Any], configmap: dict[str, Any]) -> dict[str, Any]:
    """By path below /study, what Kubernetes would mount there of the ConfigMap."""
    volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}
    mounted = volumes["study"]["configMap"]
    assert mounted["name"] == configmap["metadata"]["name"]
    contents = {key: text.encode() for key, text in configmap["data"].items()}
    for key, text in configmap.get("binaryData", {}).items():
        contents[key] = base64.b64decode(text)
    found = {item["path"]: contents[item["key"]] for item in mounted["items"]}
    return {**found, "study.yaml": yaml.safe_load(found["study.yaml"])}


def test_no_gpu_is_asked_for_where_none_is_needed(folder: Path) -> None:
    here("init", "kuberay", "mine.yaml", "--output", "named.yaml")
    *_, job = yaml.safe_load_all((folder / "named.yaml").read_text())
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "28Gi"}
    assert container["resources"]["requests"]["cpu"] == "8"  # what a trial of mbls needs
    assert not list(folder.glob("*.rayjob.yaml"))


def test_names_of_kubernetes() -> None:
    found = {name: kubernetes_name(name) for name in ("mine", "my_study", "_a_", "9-b", "_")}
    assert found == {"mine": "mine", "my_study": "my-study", "_a_": "a", "9-b": "9-b", "_": "study"}
    assert len(kubernetes_name("a" * 100)) == 40


def test_what_installs_the_wheel_lies_beside_it(folder: Path) -> None:
    here("init", "docker")
    name = installed_wheel().name
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert f'"{digest}  /tmp/{name}"' in (folder / "Dockerfile").read_text()
    told = here("init", "local").splitlines()
    assert told[0] == "wrote cluster.yaml"  # the wheel is there already
    assert "wrote" not in here("init", "local")  # of the same text, and the same code
    (folder / name).write_bytes(b"of other code")
    assert refused("aws") == f"{name}: is there already. Move it away."


def test_an_installed_package_has_the_cluster_file_of_a_clone(folder: Path) -> None:
    """But for the wheel, which is mounted and installed in place of the clone's files."""
    here("init", "local")
    mine = yaml.safe_load((folder / "cluster.yaml").read_text())
    clone = yaml.safe_load((CHECKOUT / "cluster.yaml").read_text())
    wheel = installed_wheel().name
    mounts = mine.pop("file_mounts")
    assert mounts.pop(f"~/calstudy/code/{wheel}") == wheel
    assert mounts.items() < clone.pop("file_mounts").items()
    *before, editable = clone.pop("setup_commands")
    assert editable == "cd ~/calstudy/code && pip install --editable '.[cluster]'"
    assert mine.pop("setup_commands") == [
        *before,
        f"cd ~/calstudy/code && pip install --force-reinstall --no-deps ./{wheel}",
        f"cd ~/calstudy/code && pip install './{wheel}[cluster]'",
    ]
    assert mine == clone


# ---- every kind ----------------------------------------------------------------------------------


def read_yaml(text: str) -> None:
    assert all(isinstance(part, dict) for part in yaml.safe_load_all(text))


def read_script(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def read_dockerfile(text: str) -> None:
    """Each line that continues none is a comment or an instruction."""
    lines = text.replace("\\\n", "").splitlines()
    found = {line.partition(" ")[0] for line in lines if line and not line.startswith("#")}
    assert found == {"FROM", "ARG", "COPY", "RUN", "ENV", "USER", "WORKDIR", "CMD"}


READERS: dict[str, Callable[[str], object]] = {
    ".yaml": read_yaml,
    ".sbatch": read_script,
    ".json": json.loads,
    "": read_dockerfile,
}
# What stands where something of the user's belongs.
PLACEHOLDER = re.compile(r"REGISTRY/|=NAME\b|\b192\.0\.2\.|-0{8}")


def written(kind: str) -> tuple[dict[str, str], list[str]]:
    """The files of text of a kind, by name, its own first; and what is to be done next."""
    spec = ["mine.yaml"] if kind in ("slurm", "kuberay") else []
    told = here("init", kind, *spec).splitlines()
    names = [Path(line[6:]) for line in told if line.startswith("wrote ")]
    texts = {name.name: name.read_text() for name in names if name.suffix in READERS}
    return texts, [line[6:] for line in told if line.startswith("next: ")]


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_is_whole_and_our_parser_knows_its_commands(folder: Path, kind: str) -> None:
    """Those of comments, values and what is to be done next; test_slurm.py has those of scripts."""
    texts, then = written(kind)
    assert then
    commands = [line for line in then if line.startswith("calstudy ")]
    for name, text in texts.items():
        assert "{{" not in text
        READERS[Path(name).suffix](text)
        commands += re.findall(r"(?:#  +| # |: |`)(calstudy [a-z]+ [^#`$:\n]+)(?![^`\n]*\$)", text)
    for line in commands:
        checked_words(line.partition("  ")[0])  # what it does stands beside it
    assert commands or kind in ("slurm", "docker", "local")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("study", "embeddings")])
def test_a_file_for_a_cluster_says_what_was_tried_and_what_to_change(
    folder: Path, kind: str
) -> None:
    """Its first comment; and each line with a placeholder is marked, where it is said that lines
    are."""
    texts, then = written(kind)
    text, *_ = texts.values()
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    top = " ".join(line.lstrip("#! ") for line in comment)
    assert "Never run: " in top or "has not been built" in top
    assert re.search(r"(Validated|checked|tried|takes it|Run) (with|against|without|by) ", top)
    rest = [line for line in text.splitlines() if not line.startswith("# ")]
    marked = [line for line in rest if "# <-" in line]
    assert bool(marked) == (kind != "docker")
    assert {line for line in rest if PLACEHOLDER.search(line)} <= {*marked}
    if kind in ("aws", "local"):
        assert then[0].startswith("change the lines marked <- in ")


# ---- the wheel -----------------------------------------------------------------------------------


def test_the_wheel_holds_every_file_of_the_packages() -> None:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("the wheel's files: no git checkout to compare with")
    command = ["git", "-C", str(CHECKOUT), "ls-files"]
    command += ["calstudy", "study", "trainables", "search_spaces"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    with zipfile.ZipFile(io.BytesIO(installed_wheel().content)) as made:
        assert {*listed} <= set(made.namelist())
        held = made.read("study/templates/local.yaml")  # a link in the checkout
    assert held == (CHECKOUT / "cluster.yaml").read_bytes()


def test_the_same_code_gives_the_same_wheel() -> None:
    assert installed_wheel() == installed_wheel()


@pytest.mark.slow
@pytest.mark.platform
def test_pip_installs_the_wheel_and_its_command_runs(tmp_path: Path) -> None:
    wheel = installed_wheel()
    (tmp_path / wheel.name).write_bytes(wheel.content)
    target = tmp_path / "there"
    words = ["--no-deps", "--no-index", "--target", str(target), str(tmp_path / wheel.name)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True)
    shown = subprocess.run(
        [sys.executable, "-c", "import study; print(study.__file__)"],
        env={"PYTHONPATH": str(target)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.startswith(str(target))
    done = subprocess.run(
        [target / "bin/calstudy", "init", "study", "-o", "-"],
        env={"PYTHONPATH": str(target), "HOME": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert yaml.safe_load(done.stdout)["name"] == "study"


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_do_next_is_quoted_for_a_shell(folder: Path, kind: str) -> None:
    name = "it's my;study $(x).yaml"
    spec = ["mine.yaml"] if kind in ("slurm", "kuberay") else []
    output = "so so/my_study.yaml" if kind == "study" else name
    (folder / "so so").mkdir()
    said = here("init", kind, *spec, "--output", output)
    then = [line.removeprefix("next: ") for line in said.splitlines() if line.startswith("next: ")]
    if kind == "docker":
        return
    assert output in shlex.split(then[-1])
    if kind == "study":
        assert "calstudy plan 'so so/my_study.yaml' --explain" in Path(output).read_text()


def test_what_cannot_fit_is_refused(folder: Path) -> None:
    assert refused("slurm", "mine.yaml", "--cpus", 4) == (
        "--cpus: a node of 4 CPUs fits no trial of mbls, which needs 8. Ask for more, or change"
        " the study's `resources`."
    )
    (folder / "mine.yaml").write_text(STUDY + "resources: {gpu: 0.5}\n")
    assert refused("kuberay", "mine.yaml", "--gpus", 0).startswith(
        "--gpus: a node of 0 GPUs fits no trial of cross_entropy, which needs 0.5."
    )


def test_mistakes_are_refused_in_a_line(folder: Path) -> None:
    assert refused("slrum").startswith(
        "Invalid value for 'KIND': there is no 'slrum'. Did you mean 'slurm'?"
    )
    assert refused("slurm").startswith("give SPEC: the study that slurm is to run.")
    assert "'--nodes': 0 is not in the range" in refused("slurm", "mine.yaml", "--nodes", 0)
    assert refused("slurm", "mine.yaml", "--time", "4x") == (
        "--time: '4x' is no time. Write minutes, HH:MM:SS or D-HH:MM:SS, as sbatch takes them."
    )
    assert refused("slurm", "mine.yaml", "--storage", "studies").startswith(
        "--storage: 'studies' is a relative path."
    )
    assert refused("kuberay", "mine.yaml", "--storage", "/srv").startswith(
        "--storage: the pods' storage is a volume."
    )
    (folder / "mine.sbatch").touch()
    assert refused("slurm", "mine.yaml").startswith("mine.sbatch: is there already.")
    assert refused("study", "No.yaml").startswith("No.yaml: 'No' is no name of a study.")


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        ("30", 30),
        ("30:30", 30.5),
        ("4:00:00", 240),
        ("1-2", 26 * 60),
        ("1-2:30", 26 * 60 + 30),
        ("2-00:00:30", 2880.5),
    ],
)
def test_times_of_slurm(time: str, minutes: float) -> None:
    """As `man sbatch` has them."""
    assert _minutes(time) == pytest.approx(minutes)


def test_a_job_has_time_to_begin(folder: Path) -> None:
    assert refused("slurm", "mine.yaml", "--time", "4:59").startswith("--time: 4:59 is too short")
    here("init", "slurm", "mine.yaml", "--time", "5")


def test_what_pods_cannot_see_is_refused(folder: Path) -> None:
    relative = STUDY.replace("{name: digits}", "{name: parquet, path: images.parquet}")
    (folder / "mine.yaml").write_text(relative)
    assert "data.path: 'images.parquet' is a relative path" in refused("kuberay", "mine.yaml")
    methods = folder / "own/methods"
    methods.mkdir(parents=True)
    (methods / "mine.py").write_text(MINE + "# long\n" * 200_000)
    (folder / "mine.yaml").write_text(STUDY + "extensions: own\n")
    said = refused("kuberay", "mine.yaml")
    assert said.startswith("extensions: with the study's file they have 1,400,")
    assert "a ConfigMap holds 1,048,576." in said
