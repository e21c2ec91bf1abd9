"""An exported program, checked before torch loads it.

torch.export.load evaluates every symbolic expression of a model.pt2, writes Python from its names
and runs it, imports the classes of its trees, looks up its operations by name, and unpickles what
is marked as pickled.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export.pt2_archive import PT2ArchiveReader

from trainables.files.saved import check_saved, saved_problem
from trainables.problems import FieldError

FILE = "model.pt2"
CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
SAMPLES = "data/sample_inputs/model.pt"
RECORDS = re.compile(
    rf"models/model\.json|{'|'.join(map(re.escape, CONFIGS))}|{re.escape(SAMPLES)}"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version|\.storage_alignment"
)
MOST_JSON = 64 * 2**20  # bytes; torchvision's largest networks have 10 MB
MOST_EXPRESSION = 20_000  # characters

# SymPy and torch write a size in these, as calls and infix. Only Symbol and Float take text.
POWER = re.compile("Pow|PowByNatural|FloatPow|LShift|RShift")
FUNCTION = re.compile(
    "Integer|Rational|Float|Symbol|Add|Mul|Mod|PythonMod|Max|Min|Abs|max|min|abs|floor|ceiling"
    "|FloorDiv|CeilDiv|CleanDiv|FloatTrueDiv|IntTrueDiv|ModularIndexing|Identity|Where"
    "|FloorToInt|CeilToInt|TruncToInt|TruncToFloat|RoundToInt|ToFloat"
    "|And|Or|Not|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality"
    "|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan|IsNonOverlappingAndDenseIndicator"
)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
UNARY = (ast.UAdd, ast.USub, ast.Not)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
LARGEST = 2**63  # of a number
LARGEST_POWER = 64
LARGEST_PRECISION = 1000
NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,40})?(e-?\d{1,3})?", re.ASCII)

NAME = re.compile(r"(?!__)[A-Za-z_]\w*", re.ASCII)
# A parameter's name: features.block4-1.weight.
DOTTED = re.compile(r"((?!__)[\w-]*\.)*(?!__)[\w-]*", re.ASCII)
# Torch counts up to the number of a size without a value.
RANGED = re.compile(r"[A-Za-z_]+\d{0,5}", re.ASCII)
SYM_OPERATIONS = (
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|lshift|rshift|neg|pos|getitem)"
    r"|_operator\.(and_|or_|eq|ne|lt|le|gt|ge)|math\.trunc|torch\.(_sym_sqrt|sym_(float|int|ite|max|min|not))"
)
BLOCKS = r"torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
OPERATION = re.compile(
    rf"torch\.ops\.aten\.(?!__)\w+\.(?!__)\w+|{SYM_OPERATIONS}|{BLOCKS}", re.ASCII
)
# Text that is kept for readers; and what an operation is given as it is.
METADATA = (("nodes", "metadata"), ("graph_module", "metadata"))
VALUES = ("inputs", "arg")
TEXTS = ("as_string", "as_strings")
TREES = (None, "builtins.tuple", "builtins.list", "builtins.dict")
# aten has operations that read and write files; they name them so.
FILE_ARGUMENTS = ("filename",)
GUARDED = re.compile(r"(\.(size|stride)\(\)\[\d+\]|\.storage_offset\(\))", re.ASCII)
INPUT = re.compile(r"\bL(\['\w+'\]|\[\d+\])+", re.ASCII)


class ProgramError(Exception):
    """An exported program is not loaded: why, in one line."""


def check_program(file: Path) -> None:
    """Raise ProgramError unless loading it evaluates only arithmetic and unpickles only tensors."""
    try:
        check_saved(file)
        reader = PT2ArchiveReader(str(file))  # torch's own: another may read it otherwise
        records = reader.get_file_names()
        _check_records(records)
        for config in CONFIGS:
            _check_payload(reader, config)
        samples = reader.read_bytes(SAMPLES)
        if problem := saved_problem(io.BytesIO(samples)):
            raise ProgramError(f"{SAMPLES} {problem}")
        torch.load(io.BytesIO(samples), weights_only=True, map_location="cpu")
        _check_strings(_json(reader, "models/model.json"), ())
    except ProgramError as error:
        raise ProgramError(f"{file.name}: {error}.") from None
    except FieldError as error:
        raise ProgramError(f"{file.name}: {error.problem}") from None
    except (RecursionError, MemoryError):
        raise ProgramError(f"{file.name}: is nested too deeply.") from None
    except Exception as error:  # whatever torch and json raise on a damaged file
        first = str(error).strip().partition("\n")[0][:200]
        raise ProgramError(f"{file.name}: is damaged ({type(error).__name__}: {first}).") from None


def _check_records(records: list[str]) -> None:
    other = next((name for name in records if not RECORDS.fullmatch(name)), None)
    if other is not None:
        raise ProgramError(f"has a record that an exported network does not have ({_shown(other)})")
    if len({name.lower() for name in records}) != len(records):
        raise ProgramError("has two records of one name")


def _json(reader: PT2ArchiveReader, name: str) -> Any:
    content: bytes = reader.read_bytes(name)
    if len(content) > MOST_JSON:
        size = len(content) / 1e6
        most = MOST_JSON / 1e6
        raise ProgramError(f"{name} has {size:,.0f} MB, more than the {most:,.0f} MB that are read")
    return json.loads(content)


def _check_payload(reader: PT2ArchiveReader, config: str) -> None:
    """No weight and no constant is pickled, or larger than its record."""
    plain = _json(reader, config)
    _check_strings(plain, ())
    folder = config.rpartition("/")[0]
    for name, payload in plain["config"].items():
        if payload["use_pickle"] is not False:
            raise ProgramError(f"has a pickled tensor ({_shown(name)})")
        size = len(reader.read_bytes(f"{folder}/{payload['path_name']}"))
        if math.prod(length["as_int"] for length in payload["tensor_meta"]["sizes"]) > size:
            raise ProgramError(f"has a tensor larger than its record ({_shown(name)})")


# ---- the graph -----------------------------------------------------------------------------------


def _check_strings(plain: Any, path: tuple[str, ...]) -> None:
    """Every text of the JSON has its rule, by the last key above it; without one it is a name."""
    if isinstance(plain, dict):
        if "arg" in plain and plain.get("name") in FILE_ARGUMENTS:
            raise ProgramError("names a file")
        for key, value in plain.items():
            known = RANGED if path[-1:] == ("range_constraints",) else DOTTED
            if not known.fullmatch(key):
                raise ProgramError(f"has a name that is none ({_shown(key)})")
            _check_strings(value, (*path, key))
    elif isinstance(plain, list):
        for value in plain:
            _check_strings(value, path)
    elif isinstance(plain, str):
        _check_text(plain, path)


def _check_text(text: str, path: tuple[str, ...]) -> None:
    key = path[-1] if path else ""
    if (
        key == "torch_version"
        or path[-3:-1] in METADATA
        or (path[-3:-1] == VALUES and key in TEXTS)
    ):
        return
    if key == "expr_str":
        _check_expression(text)
    elif key == "guards_code":
        _check_expression(text, INPUT.sub("s", GUARDED.sub("", text)))
    elif key in ("in_spec", "out_spec"):
        version, tree = json.loads(text)
        if version != 1 or not all(map(_is_plain, _nodes(tree))):
            raise ProgramError(f"takes or gives another structure than tensors ({_shown(text)})")
    elif key in ("target", "as_operator"):
        if not OPERATION.fullmatch(text):
            raise ProgramError(
                f"has an operation that is none of torch's own on tensors ({_shown(text)})"
            )
    elif key in ("name", "as_name", "forward_arg_names"):
        if text and not NAME.fullmatch(text):
            raise ProgramError(f"has a name that is none ({_shown(text)})")
    elif not DOTTED.fullmatch(text):
        raise ProgramError(f"has a text where a name belongs ({_shown(text)})")


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in tree["children_spec"]:
        yield from _nodes(child)


def _is_plain(node: Any) -> bool:
    """Whether torch imports nothing to read the node of a tree; a dict's context is its keys."""
    if node["type"] not in TREES:
        return False
    if node["context"] is None:
        return True
    keys = json.loads(node["context"])
    # Torch writes the keys into the Python it runs.
    return keys is None or (isinstance(keys, list) and all(map(_is_name, keys)))


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and NAME.fullmatch(key) is not None


# ---- an expression -------------------------------------------------------------------------------


def _check_expression(shown: str, text: str | None = None) -> None:
    """Raise ProgramError unless it is arithmetic. text: with names for the sizes of inputs."""
    if text is None:
        text = shown
    try:
        if len(text) > MOST_EXPRESSION or not text.isascii() or "\n" in text or '"' in text:
            raise ValueError
        if _is_arithmetic(ast.parse(text, mode="eval").body):
            return
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise ProgramError(f"has an expression that is not arithmetic ({_shown(shown)})")


def _is_arithmetic(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return NAME.fullmatch(name) is not None
        case ast.Constant(value=bool()):
            return True
        case ast.Constant(value=int() | float() as value):
            return abs(value) <= LARGEST
        case ast.UnaryOp(op=op, operand=operand):
            return isinstance(op, UNARY) and _is_arithmetic(operand)
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            return _is_power(base, exponent)
        case ast.BinOp(op=op, left=left, right=right):
            return isinstance(op, OPERATORS) and _is_arithmetic(left) and _is_arithmetic(right)
        case ast.BoolOp(values=values):
            return all(map(_is_arithmetic, values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            known = all(isinstance(op, COMPARISONS) for op in ops)
            return known and all(map(_is_arithmetic, (left, *others)))
        case ast.Call(func=ast.Name(id=name)) if FUNCTION.fullmatch(name) or POWER.fullmatch(name):
            return _is_call(name, node.args, node.keywords)
    return False


def _is_call(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    match name, arguments:
        case "Symbol", [ast.Constant(value=str() as text)]:  # Symbol('s0', positive=True)
            return NAME.fullmatch(text) is not None and all(map(_is_flag, keywords))
        case "Float", [ast.Constant(value=str() as text)]:  # Float('0.5', precision=53)
            return NUMBER.fullmatch(text) is not None and all(map(_is_precision, keywords))
        case "Symbol", _:
            return False
    if keywords:
        return False
    if POWER.fullmatch(name):
        return len(arguments) == 2 and _is_power(*arguments)
    return all(map(_is_arithmetic, arguments))


def _is_flag(word: ast.keyword) -> bool:
    return word.arg is not None and isinstance(_constant(word.value), bool)


def _is_precision(word: ast.keyword) -> bool:
    value = _constant(word.value)
    return word.arg == "precision" and type(value) is int and 0 < value < LARGEST_PRECISION


def _is_power(base: ast.expr, exponent: ast.expr) -> bool:
    """Whether it can be evaluated: a small exponent, and no power of a power."""
    match exponent:
        case ast.Call(func=ast.Name(id="Integer"), args=[inner], keywords=[]):
            exponent = inner
    match exponent:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            exponent = inner
    value = _constant(exponent)
    is_small = type(value) is int and value <= LARGEST_POWER
    return is_small and not any(map(_is_raised, ast.walk(base))) and _is_arithmetic(base)


def _constant(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _is_raised(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return POWER.fullmatch(name) is not None
        case ast.BinOp(op=ast.Pow()):
            return True
    return False


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 120 else f"{text[:120]}...")
