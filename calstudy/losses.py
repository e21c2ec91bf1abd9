"""The methods' losses as plain functions of logits [N, K] and labels [N], for a training loop of
one's own: each is named as its method. docs/reference/methods.md has their sources.

`focal` takes a gamma for all samples or one each: `scheduled_gamma` is that of `focal_scheduled`,
`sample_gamma` that of `focal_sample_dependent`, `learned_gamma` that of `gamma_net`. `mmce`,
`mdca`, `dca`, `esd`, `dece` and `sece` are terms to be added to a loss, times a weight.
`losses.pyi` lists them, for type checkers too.
"""

import ast
from importlib import import_module
from pathlib import Path

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_PLACES = {
    str(each.asname): (str(line.module), each.name)
    for line in _STUB.body
    if isinstance(line, ast.ImportFrom)
    for each in line.names
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'calstudy.losses' has no attribute '{name}'")
    module, function = _PLACES[name]
    return getattr(import_module(module), function)


def __dir__() -> list[str]:
    return __all__
