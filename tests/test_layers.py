"""Imports run downward only, and a light thing loads light: read from the files, and
tried in a fresh process."""

import ast
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("trainables", "search_spaces", "study")
ENGINES = {"ray", "optuna", "mlflow"}
READERS = {"torch", "np", "yaml", "pd"}  # which of their calls are looked at
# For each wing of study/: which others, and which engines, it may import. All may import
# trainables and search_spaces.
WINGS: dict[str, set[str]] = {
    "schema": {"optuna"},
    "store": {"schema", "optuna"},
    "analysis": {"store", "schema", "optuna"},
    "tracking": {"analysis", "store", "schema", "mlflow"},
    "uncertainty": {"analysis", "store", "schema"},
    "machines": {"tracking", "store", "schema", "ray"},
    "audit": {"tracking", "analysis", "store", "schema", "optuna"},
    "answer": {"uncertainty", "analysis", "store", "schema"},
    "reproduction": {"report", "answer", "uncertainty", "analysis", "store", "schema"},
    "engine": {
        "answer",
        "machines",
        "uncertainty",
        "tracking",
        "analysis",
        "store",
        "schema",
        "ray",
        "optuna",
    },
    "terminal": {"machines", "uncertainty", "analysis", "store", "schema"},
    "notebook": {"report", "terminal", "answer", "analysis", "store", "schema"},
    "report": {"answer", "uncertainty", "analysis", "store", "schema"},
    "evaluation": {"report", "uncertainty", "analysis", "store", "schema"},
    "registry": {"answer", "uncertainty", "tracking", "store", "schema", "mlflow"},
}


@dataclass
class Seen:
    """What stands in a file: names, and the calls of what has a dot in its name."""

    imported: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)  # attributes of self and cls
    used: set[str] = field(default_factory=set)  # of anything else
    texts: set[str] = field(default_factory=set)
    calls: list[tuple[str, dict[str | None, str]]] = field(default_factory=list)

    def add(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                self.imported |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                self.imported |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case ast.FunctionDef():
                self.functions.add(node.name)
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                self.own.add(node.attr)
            case ast.Attribute():
                self.used.add(node.attr)
            case ast.Constant():
                self.texts.add(str(node.value))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=name)) if of in READERS:
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                self.calls.append((f"{of}.{name}", options))


@cache
def seen(file: Path) -> Seen:
    """Each file is parsed once for all tests."""
    found = Seen()
    for node in ast.walk(ast.parse(file.read_text())):
        found.add(node)
    return found


def imported(file: Path) -> set[str]:
    return seen(file).imported


FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]


def allowed_in(file: Path) -> set[str]:
    """What of ours (its first name, of study/ the wing) and which engines a file may import."""
    package, *below = file.relative_to(ROOT).parts
    if package == "trainables":
        return {"trainables"} | ({"ray"} if below == ["training", "trainable.py"] else set())
    if package == "search_spaces":
        return {"search_spaces", "trainables", "optuna"}
    wing, ours = below[0], {"trainables", "search_spaces"}
    if wing in ("__init__.py", "python.py", "cli.py", "commands"):
        return {*ours, *WINGS, "commands", "python"}
    return {*ours, wing, *WINGS[wing]} if wing in WINGS else set()


def test_every_wing_is_known() -> None:
    folders = {file.parent.name for file in (ROOT / "study").glob("*/*.py")}
    assert folders == {*WINGS, "commands"}


def rooms_imported(file: Path) -> set[str]:
    found = set()
    for name in imported(file):
        top, _, rest = name.partition(".")
        if top in ENGINES or top in ("trainables", "search_spaces"):
            found.add(top)
        elif top == "study":
            found.add(rest.partition(".")[0])
    return found - {""}


def test_imports_run_downward() -> None:
    refused = {str(file): rooms_imported(file) - allowed_in(file) for file in FILES}
    assert len(refused) > 300 and not {file for file, rooms in refused.items() if rooms}, refused


def test_no_imports_go_in_a_circle() -> None:
    """Read from the files: imports inside functions and for type checking count too."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in FILES
    }
    graph = {name: imported(file) & set(modules) - {name} for name, file in modules.items()}
    while leaves := {name for name, below in graph.items() if not below & set(graph)}:
        graph = {name: below for name, below in graph.items() if name not in leaves}
    assert not graph, f"a circle among {sorted(graph)}"


@pytest.mark.parametrize("place", ["training", "config.py", "methods/shared"])
def test_what_serves_all_methods_imports_none(place: str) -> None:
    found = ROOT / "trainables" / place
    names = {file.stem for file in (ROOT / "trainables" / "methods").glob("*.py")} - {"__init__"}
    for file in found.rglob("*.py") if found.is_dir() else [found]:
        assert not imported(file) & {f"trainables.methods.{name}" for name in names}, file


PUBLIC = {"_asdict", "_replace", "_exit"}  # of Python, and documented


def test_what_is_private_of_the_engines_is_used_in_one_place_each() -> None:
    """`ray_compat` and its like say why; each has a test that fails when the library changes."""
    for file in FILES:
        if file.stem.endswith("_compat"):
            continue
        for name in imported(file):
            assert name.partition(".")[0] not in ENGINES or "._" not in name, (
                f"{file}: {name} is private"
            )
        found = seen(file)
        own = found.functions | found.own | PUBLIC
        private = {
            name for name in found.used if name.startswith("_") and not name.startswith("__")
        }
        assert private <= own, f"{file}: {private - own}"


def test_no_file_is_too_long_to_read() -> None:
    long = {
        file: len(file.read_text().splitlines())
        for file in [*FILES, *(ROOT / "tests").rglob("*.py")]
    }
    assert not {
        file: lines
        for file, lines in long.items()
        if lines > (740 if "tests" in file.parts else 470)
    }


def test_the_test_split_is_opened_in_one_place() -> None:
    """One function reads its file, and `confirm` alone imports that."""
    sealed = ROOT / "trainables" / "loading" / "sealed_split.py"
    openers = [
        file
        for file in FILES
        if any(name.startswith("trainables.loading.sealed_split") for name in imported(file))
    ]
    assert openers == [ROOT / "study" / "engine" / "confirm.py"]
    for file in FILES:
        named = {"test.npy", "test_labels.npy", "open_test"} & seen(file).texts
        assert file == sealed or not named, file


def test_files_are_data() -> None:
    """No file is read by a way that may run what stands in it."""
    for file in FILES:
        assert not {name.partition(".")[0] for name in imported(file)} & {
            "pickle",
            "cloudpickle",
            "dill",
            "joblib",
        }
        for call, options in seen(file).calls:
            if call == "torch.load":
                assert options.get("weights_only") == "True", f"{file}: {options}"
            if call == "np.load":
                assert options.get("allow_pickle") == "False", f"{file}: {options}"
            assert call not in {"yaml.unsafe_load", "yaml.full_load", "pd.read_pickle"}, (
                f"{file}: {call}"
            )
            if call == "yaml.load":  # with a loader of ours, which is a SafeLoader
                assert "class _Loader(yaml.SafeLoader)" in file.read_text(), f"{file}: {call}"


# What each line must not load, the lightest first: they are run one after another, in one process
# a chain.
EVALUATED = "calstudy.evaluate([0, 1] * 9, probs=[[0.9, 0.1]] * 18)"
LIGHT = [
    {
        "import study.cli": {"ray", "mlflow", "torch", "optuna"},
        "import search_spaces.space": {"ray", "mlflow", "torch"},
        "import study.analysis.pareto": {"ray", "mlflow", "torch"},
        "import study.store.study": {"ray", "mlflow", "torch"},
        "import study.answer.confirmation": {"ray", "mlflow", "torch"},
        "import study.terminal.progress": {"ray", "mlflow", "torch"},
        "import study.terminal.tables": {"ray", "mlflow", "torch"},
    },
    {
        "import trainables": {"ray", "mlflow", "torch", "optuna"},
        "import trainables.metrics.binned": {"ray", "mlflow", "optuna", "torchvision"},
        "trainables.Method": {"ray", "mlflow", "optuna", "torchvision"},
        "import trainables.training.learner": {"ray", "mlflow", "optuna"},
        "import study.engine.queue": {"ray", "mlflow"},
        "import study.audit.audit": {"ray", "mlflow"},
        f"import calstudy; assert 'nll' in str({EVALUATED})": {"ray", "mlflow"},
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("chain", LIGHT, ids=["no torch", "torch"])
def test_a_light_thing_loads_light(chain: dict[str, set[str]]) -> None:
    looks = "".join(
        f"{line}\nprint({line!r}, *sorted({absent!r} & set(sys.modules)))\n"
        for line, absent in chain.items()
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{looks}"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.splitlines() == list(chain), done.stderr
