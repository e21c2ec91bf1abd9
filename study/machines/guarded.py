"""A trainable that compares its node with the study before it trains there.

It is sent to the nodes as source, for a node may have other code, or none: until the node has
proven fit, only the standard library, Ray and what is sent along are used.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass
from typing import Any

from study.machines.node_facts import Question, answers
from study.machines.ray_compat import tell_full


class NodeUnfit(RuntimeError):
    """The node is not as the study needs it: its id, and why, as JSON."""


@dataclass(frozen=True)
class Unfit:
    """Which node is not as the study needs it, and why."""

    node: str  # Ray's id
    because: str  # what was found there, and the mend
    nowhere: bool = False  # no other node would do


def guarded(trainable: type, question: Question) -> Any:
    """The trainable for Ray Tune; its processes first ask their node whether it is `unfit`, and
    report once the data are there.

    question: `node_facts.unfit` with its arguments. A node that is not fit raises NodeUnfit, which
    ends the process: what it has imported may be mended on the disk only. So does a NodeUnfit of
    the trainable's own.
    """
    from ray.tune import PlacementGroupFactory, Trainable

    module, name = trainable.__module__, trainable.__qualname__

    class Guarded(Trainable):
        _inner: Any = None

        @classmethod
        def default_resource_request(cls, config: dict[str, str]) -> PlacementGroupFactory:
            assignment = json.loads(config["assignment"])
            # A stack has those of each of its trials.
            needs = assignment.get("rows", [assignment])[0]["resources"]
            return PlacementGroupFactory([{"CPU": needs["cpu"], "GPU": needs["gpu"]}])

        def setup(self, config: dict[str, str]) -> None:
            self._config = config
            if self._inner is not None:
                self._inner.reset_config(config)

        def reset_config(self, new_config: dict[str, str]) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Any]:
            try:
                if self._inner is None:
                    self._inner = self._begun()
                    return dict(self._inner.prepared())
                return dict(self._inner.step())
            except Exception as error:
                if type(error).__name__ != NodeUnfit.__name__:
                    raise
                found = {"because": str(error), "nowhere": getattr(error, "nowhere", False)}
            raise NodeUnfit(json.dumps({"node": _node_id(), **found}))

        def _begun(self) -> Any:
            """The trainable, on a node that is fit."""
            if found := answers([question]).get("unfit"):
                raise NodeUnfit(". ".join(found))
            vars(importlib.import_module("trainables.files.atomic"))["on_full"] = tell_full
            inner = getattr(importlib.import_module(module), name)
            made = inner.__new__(inner)  # Tune's own set-up is this one's
            made.setup(self._config)
            return made

    Guarded.__name__ = Guarded.__qualname__ = name
    return Guarded


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def unfit_node(message: str) -> Unfit | None:
    """What the message of a process that ended with NodeUnfit says; None of another one."""
    places = list(re.finditer(r"NodeUnfit: (?=\{)", message))
    if not places:
        return None
    found, _ = json.JSONDecoder().raw_decode(message, places[-1].end())
    return Unfit(found["node"], found["because"], found.get("nowhere", False))
