"""Imports run downward only, and a light thing loads light: read from the files, and tried in a fresh process."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# For each package: what of ours, and which engines, it may import.
ALLOWED = {
    "trainables": {"trainables"},
    "search_spaces": {"search_spaces", "optuna"},
    "study": {"study", "trainables", "search_spaces", "ray", "optuna", "mlflow"},
}
WATCHED = {"trainables", "search_spaces", "study", "ray", "optuna", "mlflow"}
# Inside study/, what reads a study works on records and knows no running one.
READERS = (
    "pareto.py",
    "figures.py",
    "bootstrap.py",
    "drawing.py",
    "curves.py",
    "reliability.py",
    "searched.py",
    "plots.py",
    "gallery.py",
    "table.py",
    "table_text.py",
    "report.py",
    "report_bins.py",
    "report_page.py",
    "registry.py",
    "verify.py",
    "records.py",
    "objective.py",
    "stored.py",
    "tracking.py",
    "mlflow_store.py",
    "mlflow_writer.py",
    "mlflow_reader.py",
    "mlflow_artifact.py",
    "mlflow_words.py",
    "threads.py",
    "audit.py",
    "audit_openings.py",
    "evidence.py",
    "openings.py",
    "confirmed.py",
    "meaning.py",
    "epochs.py",
    "findings.py",
    "explain.py",
    "show.py",
    "uris.py",
)
RUNNING = {"study.engine.run", "study.engine.search", "study.engine.ray_session", "study.terminal.progress"}


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


FILES = [file for package in ALLOWED for file in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_run_downward(file: Path) -> None:
    package = file.relative_to(ROOT).parts[0]
    allowed = ALLOWED[package] | ({"ray"} if file == ROOT / "trainables" / "trainable.py" else set())
    tops = {name.partition(".")[0] for name in imported(file)}
    assert tops & WATCHED <= allowed, f"{file.name} may import {sorted(allowed)} of these"


def test_no_imports_go_in_a_circle() -> None:
    """Read from the files: imports inside functions and for type checking count too."""
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES}
    graph = {name: imported(file) & set(modules) - {name} for name, file in modules.items()}
    while leaves := {name for name, below in graph.items() if not below & set(graph)}:
        graph = {name: below for name, below in graph.items() if name not in leaves}
    assert not graph, f"a circle among {sorted(graph)}"


@pytest.mark.parametrize("name", READERS)
def test_readers_know_no_running_study(name: str) -> None:
    assert not imported(ROOT / "study" / name) & RUNNING


def test_the_test_split_is_opened_in_one_place() -> None:
    """One function reads its file, and `confirm` alone imports that."""
    sealed = ROOT / "trainables" / "sealed.py"
    openers = [
        file for file in FILES if any(name.startswith("trainables.loading.test_split") for name in imported(file))
    ]
    assert openers == [ROOT / "study" / "confirm.py"]
    for file in FILES:
        texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        assert file == sealed or not {"test.npy", "test_labels.npy", "open_test"} & {*map(str, texts)}, file


def test_files_are_data() -> None:
    """No file is read by a way that may run what stands in it."""
    for file in FILES:
        assert not {name.partition(".")[0] for name in imported(file)} & {"pickle", "cloudpickle", "dill", "joblib"}
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            call = ast.unparse(node.func)
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if call == "torch.load":
                assert options.get("weights_only") == "True", f"{file}: {ast.unparse(node)}"
            if call == "np.load":
                assert options.get("allow_pickle") == "False", f"{file}: {ast.unparse(node)}"
            assert call not in {"yaml.unsafe_load", "yaml.full_load", "pd.read_pickle"}, f"{file}: {ast.unparse(node)}"
            if call == "yaml.load":  # with a loader of ours, which is a SafeLoader
                assert "class _Loader(yaml.SafeLoader)" in file.read_text(), f"{file}: {ast.unparse(node)}"


# What each module must not load, the lightest first: they are imported one after another, in one process a chain.
LIGHT = [
    {
        "study.cli": {"ray", "mlflow", "torch", "optuna"},
        "search_spaces.space": {"ray", "mlflow", "torch"},
        "study.analysis.pareto": {"ray", "mlflow", "torch"},
        "study.store.study": {"ray", "mlflow", "torch"},
        "study.confirmation.results": {"ray", "mlflow", "torch"},
        "study.terminal.progress": {"ray", "mlflow", "torch"},
        "study.terminal.tables": {"ray", "mlflow", "torch"},
        "study.audit.audit": {"ray", "mlflow"},
    },
    {
        "trainables.metrics.binned": {"ray", "mlflow", "optuna", "torchvision"},
        "trainables.learner": {"ray", "mlflow", "optuna"},
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("chain", LIGHT, ids=lambda chain: next(iter(chain)))
def test_a_light_thing_loads_light(chain: dict[str, set[str]]) -> None:
    looks = "".join(
        f"import {module}\nprint('{module}', *sorted({absent!r} & set(sys.modules)))\n"
        for module, absent in chain.items()
    )
    done = subprocess.run([sys.executable, "-c", f"import sys\n{looks}"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == list(chain), done.stderr
