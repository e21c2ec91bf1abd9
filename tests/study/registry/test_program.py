"""Exported programs that run code when torch loads them: each does so in plain torch,
and none is loaded here."""

import io
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._export.serde.serialize import _SYM_OPS
from torch.export import ExportedProgram
from torchvision.models import (
    DenseNet,
    ResNet,
    VisionTransformer,
    efficientnet,
    regnet,
    vision_transformer,
)
from torchvision.models.resnet import Bottleneck
from torchvision.models.segmentation import deeplabv3

from study.registry.program import OPERATION, ProgramError, check_program
from tests.frozen_network import HAS_TIMM
from trainables import models
from trainables.config import build
from trainables.model import Model, Network
from trainables.models import densenet121, resnet110, wide_resnet_26_10
from trainables.models.resnet18 import Resnet18
from trainables.models.resnet50 import Resnet50
from trainables.models.shared.resnet import three_stage_resnet
from trainables.outputs.classifier import Classifier

Members = dict[str, bytes]
GRAPH, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"


def exported(network: nn.Module, shape: tuple[int, ...], file: Path) -> ExportedProgram:
    """Saved as MLflow saves it: the number of images is open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = (torch.zeros(2, *shape),)
        program = torch.export.export(network, images, dynamic_shapes=({0: torch.export.Dim.AUTO},))
        torch.export.save(program, file)
    return program


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = build(Model, {"name": "mlp", "width": 2}).build((1, 2, 2), 2)
    found = tmp_path_factory.mktemp("sound") / "model.pt2"
    exported(Classifier(network, (0.0,), (1.0,)), (1, 2, 2), found)
    return found


def changed(
    file: Path, to: Path, change: Callable[[Members], None], kind: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(file) as archive:
        root = archive.namelist()[0].partition("/")[0]
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(to, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(f"{root}/{name}", content)
    return to


def in_the_graph(change: Callable[[dict[str, Any]], None]) -> Callable[[Members], None]:
    def apply(members: Members) -> None:
        plain = json.loads(members[GRAPH])
        change(plain)
        members[GRAPH] = json.dumps(plain).encode()

    return apply


class Touches:
    """Unpickled, it leaves the mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def pickled(mark: Path) -> bytes:
    stream = io.BytesIO()
    torch.save(Touches(mark), stream)
    return stream.getvalue()


def expression(members: Members, code: str) -> None:
    members[GRAPH] = re.sub(
        rb'("expr_str": )"[^"]*"', lambda at: at[1] + json.dumps(code).encode(), members[GRAPH]
    )


def pickled_weight(members: Members, mark: Path) -> None:
    config = json.loads(members[WEIGHTS])
    payload = next(iter(config["config"].values()))
    payload["use_pickle"] = True
    members[f"data/weights/{payload['path_name']}"] = pickled(mark)
    members[WEIGHTS] = json.dumps(config).encode()


def renamed(members: Members, mark: Path) -> None:
    """A weight has a name, without dots, that ends the text into which torch writes it
    in the Python it runs."""
    code = f"getattr(__import__('os'), 'mkdir')({str(mark)!r})"
    name = f"""weight") if {code} else getattr(self, "weight"""
    for each in (GRAPH, WEIGHTS):
        members[each] = members[each].replace(
            b'"network.head.weight"', json.dumps(f"network.head.{name}").encode()
        )


def imports(plain: dict[str, Any], module: str) -> None:
    """A tree with a dict whose context is an enumeration of a module, which torch imports."""
    enum = json.dumps({"__enum__": True, "fqn": f"{module}.A", "name": "B"})
    (entry,) = [
        each
        for each in plain["graph_module"]["module_call_graph"]
        if each["signature"] and not each["fqn"]
    ]
    tree = {"type": "builtins.dict", "context": enum, "children_spec": []}
    entry["signature"]["out_spec"] = json.dumps([1, tree])


def runs(kind: str, mark: Path) -> Callable[[Members], None]:
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def guard(plain: dict[str, Any]) -> None:
        plain["guards_code"] = [f"{code} is None"]

    return {
        "expression": lambda members: expression(members, f"{code} or 1"),
        "guard": in_the_graph(guard),
        "name": lambda members: renamed(members, mark),
        "samples": lambda members: members.update({SAMPLES: pickled(mark)}),
        "weight": lambda members: pickled_weight(members, mark),
        "tree": in_the_graph(lambda plain: imports(plain, mark.stem)),
    }[kind]


WHY = {
    "expression": r"has an expression that is not arithmetic \(\"__import__\('pathlib'\)",
    "guard": r"has an expression that is not arithmetic",
    "name": r"has a name that is none \('network\.head\.weight",
    "samples": r"is damaged \(UnpicklingError: ",
    "weight": r"has a pickled tensor \('network\.",
    "tree": r"takes or gives another structure than tensors",
}


@pytest.mark.parametrize("kind", WHY)
def test_a_program_that_runs_code_is_refused(
    file: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    mark = tmp_path / f"mark_{kind}"
    mark.with_suffix(".py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    hostile = changed(file, tmp_path / "model.pt2", runs(kind, mark))
    with pytest.raises(ProgramError, match=f"^model.pt2: (?:{WHY[kind]})") as caught:
        check_program(hostile)
    assert "\n" not in str(caught.value) and not mark.exists()
    with suppress(Exception):  # what it gives may be no program
        torch.export.load(hostile).module()(torch.zeros(2, 1, 2, 2))
    assert mark.exists(), "torch does not run it any more: the check may go"


def untrusted(kind: str) -> Callable[[Members], None]:
    def node(plain: dict[str, Any], target: str) -> None:
        plain["graph_module"]["graph"]["nodes"][0]["target"] = target

    def names_a_file(plain: dict[str, Any]) -> None:
        argument = {"name": "filename", "arg": {"as_string": "notes"}, "kind": 1}
        plain["graph_module"]["graph"]["nodes"][0]["inputs"].append(argument)

    def large(members: Members) -> None:
        config = json.loads(members[WEIGHTS])
        next(iter(config["config"].values()))["tensor_meta"]["sizes"] = [{"as_int": 2**40}]
        members[WEIGHTS] = json.dumps(config).encode()

    def range_of(plain: dict[str, Any]) -> None:
        plain["range_constraints"]["u99999999999"] = {"min_val": 0, "max_val": 1}

    return {
        "call": in_the_graph(lambda plain: node(plain, "torch.os.system")),
        "custom": in_the_graph(lambda plain: node(plain, "torch.ops.image.write_file.default")),
        "file": in_the_graph(names_a_file),
        "count": in_the_graph(range_of),
        "library": lambda members: members.update({"data/aotinductor/model/a.so": b""}),
        "legacy": lambda members: members.update({"data/weights/model.pt": b""}),
        "twice": lambda members: members.update({GRAPH.upper(): b"{}"}),
        "large": large,
        "deep": lambda members: members.update({GRAPH: b"[" * 100_000}),
        "text": lambda members: members.update({GRAPH: b"\xff"}),
    }[kind]


UNTRUSTED = {
    "call": r"has an operation that is none of torch's own on tensors \('torch.os.system'\)\.$",
    "custom": (
        r"has an operation that is none of torch's own on tensors"
        r" \('torch.ops.image.write_file.default'\)\.$"
    ),
    "file": r"names a file\.$",
    "count": r"has a name that is none \('u99999999999'\)\.$",
    "library": (
        r"has a record that an exported network does not have \('data/aotinductor/model/a\.so'\)\.$"
    ),
    "legacy": (
        r"has a record that an exported network does not have \('data/weights/model\.pt'\)\.$"
    ),
    "twice": r"has a record that an exported network does not have \('MODELS/MODEL\.JSON'\)\.$",
    "large": r"has a tensor larger than its record \('network\.[\w.]+'\)\.$",
    "deep": r"is nested too deeply\.$",
    "text": r"is damaged \(UnicodeDecodeError: .*\)\.$",
}


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_what_an_exported_network_does_not_have_is_refused(
    file: Path, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ProgramError, match=f"^model.pt2: {UNTRUSTED[kind]}"):
        check_program(changed(file, tmp_path / "model.pt2", untrusted(kind)))


def test_a_compressed_record_is_refused(file: Path, tmp_path: Path) -> None:
    deflated = changed(file, tmp_path / "model.pt2", lambda members: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(ProgramError, match="has a compressed record"):
        check_program(deflated)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(pickle.dumps(Touches(tmp_path / "mark")))
    with pytest.raises(ProgramError, match=r"is no file of torch\.save"):
        check_program(tmp_path / "model.pt2")


ARITHMETIC = (
    "Symbol('s34', positive=True, integer=True)",
    "Min(Integer(768), Mul(Integer(-768), Symbol('s34', positive=True, integer=True)))",
    "FloorDiv(Add(Symbol('s0'), Integer(1)), Integer(2))",
    "Pow(Symbol('s0'), Integer(-1))",
    "Or(Equality(Mod(Symbol('s0'), Integer(2)), Integer(0)), Not(Symbol('u0') < 1))",
    "Mul(Float('0.5', precision=53), Symbol('s0'))",
    "3*s0**2 + (s1 + 7)//2 - Max(1, s0 % 4)",
    "True",
)
NOT_ARITHMETIC = (
    "9**9**9",
    "(9**64)**64",
    "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
    "PowByNatural(Integer(9), Integer(999999999))",
    "LShift(Integer(1), Integer(999999999))",
    "10**65",
    "s0.__class__",
    "open('x', 'w')",
    "Symbol('s0; x')",
    "Symbol('__import__')",
    "Symbol(open('x'))",
    "Symbol('s0', cls=open)",
    "Function('f')(s0)",
    "Float('1', precision=10000000000)",
    "[x for x in s0]",
    "s0[0]",
    "lambda: 1",
    "__builtins__",
    "'text'",
    "s0 if s0 else s1",
    "(s0 := 1)",
    "1" * 30_000,
    "(" * 10_000 + "1" + ")" * 10_000,
    "\u0455" + "0",  # of another alphabet
    "1j",
    "1 +",
    "",
)


def with_expression(file: Path, text: str, to: Path) -> Path:
    return changed(file, to, lambda members: expression(members, text))


@pytest.mark.parametrize("text", ARITHMETIC)
def test_arithmetic_is_taken(file: Path, text: str, tmp_path: Path) -> None:
    check_program(with_expression(file, text, tmp_path / "model.pt2"))


@pytest.mark.parametrize("text", NOT_ARITHMETIC, ids=lambda text: ascii(text[:20]))
def test_what_is_not_arithmetic_is_refused(file: Path, text: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="expression that is not arithmetic"):
        check_program(with_expression(file, text, tmp_path / "model.pt2"))


@pytest.mark.parametrize(
    ("guard", "taken"),
    [
        ("L['images'].size()[0] >= 2", True),
        ("2 * L['flat_args'][0].stride()[1] // 3 != L['images'].storage_offset()", True),
        ("L['images'].tolist()", False),
        ("L['a\"b'].size()[0] == 1", False),
        ("L['images'].size()[open('x')] == 1", False),
    ],
)
def test_a_guard_compares_sizes(file: Path, guard: str, taken: bool, tmp_path: Path) -> None:
    def change(plain: dict[str, Any]) -> None:
        plain["guards_code"] = [guard]

    found = changed(file, tmp_path / "model.pt2", in_the_graph(change))
    if taken:
        check_program(found)
    else:
        with pytest.raises(ProgramError, match="expression that is not arithmetic"):
            check_program(found)


def test_every_operation_on_sizes_that_torch_writes_is_known() -> None:
    names = (f"{each.__module__}.{each.__name__}" for each in _SYM_OPS)
    assert all(
        OPERATION.fullmatch(name.replace("torch.fx.experimental.sym_node.", "torch."))
        for name in names
    )


class EveryPixel(nn.Module):
    """What networks of masks are made of: down by pooling and strides, up by four ways."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.transposed = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2:]
        padded = nn.functional.pad(self.pad(images), (0, -width % 4, 0, -height % 4), value=1.0)
        low = self.dilated(self.down(padded))
        pooled = nn.functional.adaptive_avg_pool2d(low, 1)
        low = low + nn.functional.interpolate(pooled, size=low.shape[2:], mode="bilinear")
        size = padded.shape[2:]
        up = [
            self.transposed(low),
            self.shuffle(low),
            nn.functional.interpolate(low, size=size, mode="bilinear", align_corners=False),
            nn.functional.interpolate(low, scale_factor=2, mode="bicubic"),
            nn.functional.interpolate(nn.functional.max_pool2d(padded, 3, 2, 1), size=size),
        ]
        up = [nn.functional.pad(each, (0, 2, 0, 2))[:, :, :height, :width] for each in up]
        return torch.cat(up, dim=1)


def test_a_network_of_pixels_is_taken_and_gives_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    classifier = Classifier(Network(EveryPixel(), nn.Conv2d(14, 5, 1)), (9.0,) * 3, (5.0,) * 3, 2.0)
    file = tmp_path / "model.pt2"
    exported(classifier, (3, 10, 14), file)
    check_program(file)
    loaded = torch.export.load(file).module()
    for count in (1, 2, 7):
        images = 255 * torch.rand(count, 3, 10, 14)
        with torch.no_grad():
            probs = loaded(images)
            expected = classifier(images)
        assert probs.shape == (count, 5, 10, 14)
        torch.testing.assert_close(probs, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(probs.sum(dim=1), torch.ones(count, 10, 14))


# Of the two whose code another has too, one is exported.
TWINS = {"resnet34", "resnet101"}
OF_IMAGES = [name for name in models.names() if "image" in models.find(name).takes]


def with_few_blocks(patch: pytest.MonkeyPatch) -> None:
    """A block in a stage of the deep networks, and two in one of them: all the others are as
    those."""
    patch.setattr(Resnet18, "layers", (2, 1, 1, 1))
    patch.setattr(Resnet50, "layers", (2, 1, 1, 1))
    patch.setattr(
        densenet121, "densenet121", lambda weights, **keys: DenseNet(8, (2, 1, 1, 1), **keys)
    )
    patch.setattr(
        deeplabv3, "resnet50", lambda weights, **keys: ResNet(Bottleneck, [1, 1, 1, 2], **keys)
    )
    for module in (resnet110, wide_resnet_26_10):
        patch.setattr(
            module,
            "three_stage_resnet",
            lambda blocks, width, *shape, **keys: three_stage_resnet(1, width, *shape, **keys),
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name for name in OF_IMAGES if name not in TWINS and (name != "timm" or HAS_TIMM)],
)
def test_every_network_of_ours_is_taken_and_gives_the_same_for_any_number_of_images(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_few_blocks(monkeypatch)
    network = build(Model, {"name": name}).build((1, 8, 8), 10)
    classifier = Classifier(network, (0.0,), (1.0,)).eval()
    file = tmp_path / "model.pt2"
    program = exported(classifier, (1, 8, 8), file)
    check_program(file)
    for count in (1, 9):
        images = torch.randn(count, 1, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(
                program.module()(images), classifier(images), atol=1e-4, rtol=1e-4
            )


def with_few_layers(patch: pytest.MonkeyPatch) -> None:
    """A layer or block of each kind."""
    few = {"num_layers": 1, "hidden_dim": 96, "mlp_dim": 96}
    patch.setattr(
        vision_transformer, "VisionTransformer", lambda **keys: VisionTransformer(**keys | few)
    )
    whole, stages = regnet.RegNet, efficientnet._efficientnet_conf

    def shallow(blocks: Any, **keys: Any) -> nn.Module:
        blocks.depths = [1, 2, 1, 1]
        return whole(blocks, **keys)

    patch.setattr(regnet, "RegNet", shallow)
    patch.setattr(
        efficientnet, "_efficientnet_conf", lambda *of, **keys: (stages(*of, **keys)[0][:2], None)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vit_b_16",
        pytest.param("swin_v2_t", marks=pytest.mark.platform),
        "efficientnet_b0",
        "regnet_y_400mf",
    ],
)
def test_torchvisions_networks_are_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_few_layers(monkeypatch)
    network = build(Model, {"name": "torchvision", "network": name}).build((3, 224, 224), 10)
    classifier = Classifier(network, (0.0,) * 3, (1.0,) * 3)
    exported(classifier, (3, 224, 224), tmp_path / "model.pt2")
    check_program(tmp_path / "model.pt2")
