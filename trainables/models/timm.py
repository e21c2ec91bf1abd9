"""timm's networks, with its published weights or those of a file: pip install 'calstudy[timm]'."""

import importlib.util
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from trainables.fields import setting
from trainables.model import Origin
from trainables.models.shared.pretrained import Pretrained, State
from trainables.plugins import in_a_line
from trainables.problems import SIMILAR, FieldError

FILE = "model.safetensors"  # of published weights


@dataclass(frozen=True)
class Timm(Pretrained):
    """A network of timm, by the name of an architecture, or of published weights of it."""

    package: ClassVar[str] = "timm"

    network: str = setting("resnet18", doc="timm's name, e.g. vit_small_patch16_224")

    def __post_init__(self) -> None:
        super().__post_init__()
        if ":" in self.network:
            problem = f"{self.network} names a place, not a network of timm"
            raise FieldError("network", problem, "Download its weights, and write weights: FILE.")
        if importlib.util.find_spec("timm") is None:
            return  # a study is read without it, and not trained
        timm = _timm()
        known = [*timm.list_models(), *timm.list_pretrained()]
        if self.network not in known:
            near = get_close_matches(self.network, known, n=1, cutoff=SIMILAR)
            mend = f"Did you mean '{near[0]}'?" if near else "timm.list_models() has all names."
            raise FieldError("network", f"timm has no '{self.network}'", mend)

    @property
    def full_name(self) -> str:
        published = self._published()
        return f"{published.architecture}.{published.tag}"

    def bare(self) -> tuple[nn.Module, tuple[str, ...]]:
        network = _timm().create_model(self.network, pretrained=False, num_classes=0)
        last = self._published().classifier or ()
        return network, (last,) if isinstance(last, str) else tuple(last)

    def renamed(self, state: State, network: nn.Module) -> State:
        convert: Any = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
        found = state
        if convert is not None:
            with suppress(Exception):  # it expects the names of one older file or another
                found = convert(state, network)
        return found

    def statistics(self) -> tuple[Iterable[float], Iterable[float]] | None:
        published = self._published()
        return (published.mean, published.std) if published.has_weights else None

    def published(self) -> Path:
        """From the cache of the hub, where it is there, without asking whether it has changed."""
        published = self._published()
        if not published.has_weights:
            problem = f"timm has no published weights of {self.network}"
            raise FieldError("weights", problem, "Write weights: none, or a file.")
        repository, _, revision = (published.hf_hub_id or "").partition("@")
        name = published.hf_hub_filename or FILE
        mend = f"Download {name} of {repository} elsewhere, and write weights: and its path."
        if not repository:
            problem = f"those of {self.full_name} are not on the hub"
            raise FieldError("weights", problem, f"Download {published.url}, and write its path.")
        for local in (True, False):
            try:
                return _fetched(repository, name, revision or None, local)
            except Exception as error:  # the hub's, or the network's
                reason = in_a_line(error)[:200]
        raise FieldError(
            "weights", f"those of {self.full_name} cannot be downloaded ({reason})", mend
        )

    def origin(self) -> Origin | None:
        _timm()  # `plan` says that it is missing, also where weights are random
        return super().origin()

    def _published(self) -> Any:
        """What timm says of the network's best weights."""
        return _timm().models.get_pretrained_cfg(self.network)


def _fetched(repository: str, name: str, revision: str | None, local: bool) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, name, revision=revision, local_files_only=local))


def _timm() -> Any:
    try:
        import timm
    except ImportError:
        raise FieldError("", "timm is not installed", "pip install 'calstudy[timm]'") from None
    return timm
