"""A user's own folder of methods, models and data sets."""

import pytest
from optuna.distributions import FloatDistribution

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from study.schema.reading import read_spec, spec_from_mapping
from tests.study.schema.specs import SMALL, small
from trainables.config import TrialConfig
from trainables.plugins import use_extensions


@pytest.fixture(autouse=True)
def own_names_only():
    yield
    use_extensions(None)


MINE = """
from dataclasses import dataclass
from trainables.fields import number
from trainables.method import Method

@dataclass(frozen=True)
class Mine(Method):
    power: float = number(2.0, low=1, doc="of mine")
"""
MINE_SPACE = "source: us\nspace: {method.power: {low: 1, high: 4}}\ndefaults: [{method.power: 3}]\n"


@pytest.fixture
def extended(tmp_path):
    """A study file beside a folder with a method of the user's own."""

    def write(files):
        for name, text in files.items():
            (tmp_path / "ours" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "ours" / name).write_text(text)
        plain = {
            **SMALL,
            "methods": ["mine", {"label": "on_mine", "name": "sece", "base": "mine"}],
            "extensions": "ours",
        }
        (tmp_path / "study.yaml").write_text(strict_yaml.dump(plain))
        return tmp_path / "study.yaml"

    return write


def test_extensions(extended, tmp_path):
    spec = read_spec(extended({"methods/mine.py": MINE, "search_spaces/mine.yaml": MINE_SPACE}))
    assert spec.extensions == str(tmp_path / "ours")
    assert spec.variant("mine").space.distributions == {"method.power": FloatDistribution(1.0, 4.0)}
    assert spec.variant("mine").space.defaults == [{"method.power": 3.0}]
    assert spec.variant("on_mine").space.defaults[0]["method.base.power"] == 3.0
    assert spec_from_mapping(spec.to_mapping(), "study.yaml") == spec
    assert (
        TrialConfig.from_mapping(spec.trial_mapping("mine"), {"method.power": 1.5}).method.power
        == 1.5
    )
    # The next study knows nothing of them.
    with pytest.raises(SpecError, match="there is no method 'mine'"):
        small(methods=["mine"])


def test_a_method_without_a_file_starts_from_its_own_settings(extended):
    spec = read_spec(extended({"methods/mine.py": MINE}))
    assert spec.variant("mine").space.distributions == {}
    (plain := spec.to_mapping())["search_space"] = {"method.power": {"low": 1, "high": 4}}
    assert spec_from_mapping(plain, "study.yaml").variant("mine").space.defaults == [
        {"method.power": 2.0}
    ]


@pytest.mark.parametrize(
    ("files", "path", "said"),
    [
        (
            {"methods/focal.py": MINE},
            "extensions",
            "methods/focal.py: 'focal' is a built-in name. Rename it.",
        ),
        (
            {"methods/mine.py": "x ="},
            "extensions",
            "methods/mine.py: cannot be imported: SyntaxError",
        ),
        ({"methods/mine.py": "import no_such_thing"}, "extensions", "ModuleNotFoundError"),
        (
            {"methods/mine.py": "import sys; sys.exit(3)"},
            "extensions",
            "methods/mine.py: cannot be imported: SystemExit: 3.",
        ),
        (
            {
                "methods/mine.py": MINE
                + "    def __post_init__(self):\n        raise SystemExit(0)\n"
            },
            "methods",
            "methods/mine.py: Mine cannot be created: SystemExit: 0.",
        ),
        (
            {"methods/mine.py": MINE + "    def __post_init__(self):\n        self.power / 0\n"},
            "methods",
            "methods/mine.py: Mine cannot be created: ZeroDivisionError: float division by zero.",
        ),
        (
            {"methods/mine.py": "x = 1"},
            "extensions",
            "methods/mine.py: it must define the class Mine. Write @dataclass(frozen=True) class"
            " Mine(Method): ...",
        ),
        (
            {"methods/mine.py": MINE, "search_spaces/mien.yaml": MINE_SPACE},
            "extensions",
            "search_spaces/mien.yaml: there is no method 'mien'. Did you mean 'mine'?",
        ),
        (
            {
                "methods/mine.py": MINE,
                "search_spaces/mine.yaml": "source: us\nspace: {method.pwer: {low: 1, high: 2}}",
            },
            "search_spaces/mine.yaml",
            "space.method.pwer: Mine has no 'pwer'. Did you mean 'power'?",
        ),
        (
            {
                "methods/mine.py": MINE,
                "search_spaces/mine.yaml": "source: us\nspace: {method.power: {low: 0, high: 2}}",
            },
            "search_spaces/mine.yaml",
            "space.method.power: `low` must be >= 1, got 0.",
        ),
        (
            {
                "methods/mine.py": MINE,
                "search_spaces/mine.yaml": "source: us\nspace: {epochs: {low: 1, high: 2}}",
            },
            "search_spaces/mine.yaml",
            "space.epochs: cannot be searched",
        ),
        (
            {
                "methods/mine.py": MINE,
                "search_spaces/mine.yaml": "source: us\nspace: {method.power: {low: 3, high: 2}}",
            },
            "search_spaces/mine.yaml",
            "space.method.power: low 3 is above high 2. Swap them.",
        ),
    ],
)
def test_refused_extensions(extended, files, path, said):
    with pytest.raises(SpecError) as error:
        read_spec(extended(files))
    line = str(error.value)
    assert line.startswith((f"study.yaml: {path}: ", f"study.yaml: {path}["))
    assert said in line
    assert "\n" not in line
