"""Files that start a study where the GPUs are, filled from the templates of this package."""

from __future__ import annotations

import base64
import importlib.metadata
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Any

import yaml

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from study.schema.reading import path_options
from study.schema.resources import Resources, fitting
from study.schema.spec import StudySpec
from study.store.study import EXTENSIONS
from trainables.plugins import own_files
from trainables.problems import UserError

TEMPLATES = Path(__file__).parents[1] / "templates"
# What sbatch's --time takes (man sbatch): minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
SLURM_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}")
LEAST_MINUTES = 5
# A Kubernetes name is a label of DNS (RFC 1123); KubeRay appends to a RayJob's.
LONGEST_NAME = 40
CONFIGMAP_BYTES = 2**20
CPUS = 8


@dataclass(frozen=True)
class NodeShape:
    """What a node offers to trials."""

    cpus: int
    gpus: int


@dataclass(frozen=True)
class Request:
    """A study, its file as the user named it, and the nodes to run it on."""

    spec: StudySpec
    file: Path
    nodes: int
    shape: NodeShape


def filled(template: str, **values: object) -> str:
    """The template with each `{{name}}` replaced by its value, in which such words stay."""
    text = (TEMPLATES / template).read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(values[found[1]]), text)


def cluster_of_wheel(wheel: str) -> str:
    """A clone's cluster.yaml, which mounts and installs a wheel in place of the clone's files."""
    text = filled("local.yaml")
    text = re.sub(r"(  ~/calstudy/code/.+\n)+", f"  ~/calstudy/code/{wheel}: {wheel}\n", text)
    # pip leaves an installed wheel of the same version as it is, if not told to.
    install = (f"--force-reinstall --no-deps ./{wheel}", f"'./{wheel}[cluster]'")
    anew = "".join(f"  - cd ~/calstudy/code && pip install {words}\n" for words in install)
    return re.sub(r".+ --editable .+\n", anew, text)


# ---- what a node must offer ----------------------------------------------------------------------


def shape(needs: Mapping[str, Resources], cpus: int | None, gpus: int | None) -> NodeShape:
    """The node asked for; what is not given becomes enough for the trials that share its GPUs.

    needs: by label, what a trial needs. Raises UserError if trials of a label fit no such node.
    """
    if gpus is None:
        gpus = int(any(need.gpu for need in needs.values()))
    if cpus is None:
        cpus = max(CPUS, *(_cpus_for(need, gpus) for need in needs.values()))
    for label, need in needs.items():
        _refuse_unfit(label, need, NodeShape(cpus, gpus))
    return NodeShape(cpus, gpus)


def _cpus_for(need: Resources, gpus: int) -> int:
    """Enough for the trials of a label that share the GPUs; for one without GPUs."""
    if need.gpu == 0 or gpus == 0:
        return math.ceil(need.cpu)
    return math.ceil(need.cpu * fitting({"CPU": math.inf, "GPU": gpus}, Resources(0, need.gpu)))


def _refuse_unfit(label: str, need: Resources, node: NodeShape) -> None:
    mend = "Ask for more, or change the study's `resources`."
    for option, there, kind, least in (
        ("--gpus", node.gpus, "GPUs", need.gpu),
        ("--cpus", node.cpus, "CPUs", need.cpu),
    ):
        if there < least:
            found = f"a node of {there} {kind} fits no trial of {label}, which needs {least:g}"
            raise UserError(f"{option}: {found}", mend)


# ---- Slurm ---------------------------------------------------------------------------------------


def slurm(request: Request, time: str, storage: Path) -> str:
    """A batch script. Raises UserError: a time that is none of Slurm's."""
    if not SLURM_TIME.fullmatch(time):
        mend = "Write minutes, HH:MM:SS or D-HH:MM:SS, as sbatch takes them."
        raise UserError(f"--time: '{time}' is no time", mend)
    if _minutes(time) < LEAST_MINUTES:
        raise UserError(
            f"--time: {time} is too short: Slurm tells the job to stop two to three minutes before",
            f"Give at least {LEAST_MINUTES} minutes.",
        )
    return filled(
        "slurm.sbatch",
        study=request.spec.name,
        spec=_in_quotes(request.file),
        nodes=request.nodes,
        cpus=request.shape.cpus,
        gres=f"#SBATCH --gres=gpu:{request.shape.gpus}" if request.shape.gpus else "",
        time=time,
        storage=_in_quotes(storage),
    )


def _minutes(time: str) -> float:
    """Of one of Slurm's times."""
    days, _, rest = time.rpartition("-")
    numbers = list(map(int, rest.split(":")))
    units = (60, 1, 1 / 60) if days or len(numbers) == 3 else (1, 1 / 60)
    return int(days or 0) * 24 * 60 + sum(map(mul, numbers, units))


def _in_quotes(path: Path) -> str:
    """A path between single quotes of a shell."""
    return str(path).replace("'", "'\\''")


# ---- Kubernetes ----------------------------------------------------------------------------------


def kubernetes_name(name: str) -> str:
    """The nearest name that Kubernetes takes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_NAME].strip("-") or "study"


def kuberay(request: Request, file: str) -> str:
    """A claim, the study as a ConfigMap, and a RayJob. Raises SpecError for a relative data path,
    UserError for more than a ConfigMap holds."""
    refuse_relative_paths(request.file)
    name = kubernetes_name(request.spec.name)
    carried = _carried(request)
    limits = {"memory": "28Gi"}
    if request.shape.gpus:
        limits["nvidia.com/gpu"] = str(request.shape.gpus)
    configmap, items = _configmap(name, carried)
    return filled(
        "kuberay.yaml",
        study=request.spec.name,
        name=name,
        file=file,
        configmap=yaml.dump(configmap, Dumper=_Readable, sort_keys=False, width=200).rstrip(),
        items=_flow(items),
        nodes=request.nodes,
        cpus=request.shape.cpus,
        limits=_flow(limits),
        version=_version("calstudy"),
        ray=_version("ray"),
    )


def refuse_relative_paths(file: Path) -> None:
    """Raise SpecError for a relative path of data or ledger: it would mean another file there."""
    written = strict_yaml.read(file)
    sources = {
        "data": written["data"],
        **{f"shift.{name}": of for name, of in (written.get("shift") or {}).items()},
    }
    paths = []
    for key, source in sources.items():
        if isinstance(source, dict):
            paths += [(f"{key}.{name}", source.get(name)) for name in path_options(source)]
    for key, path in (*paths, ("ledger", written.get("ledger"))):
        if isinstance(path, str) and "://" not in path and not os.path.isabs(path):
            raise SpecError(
                file.name,
                key,
                f"'{path}' is a relative path",
                "Give the absolute path on the cluster's nodes.",
            )


def _configmap(name: str, carried: Mapping[str, bytes]) -> tuple[dict[str, Any], list[Any]]:
    """The ConfigMap of files by path, and which key of it lies where: a key has no slash."""
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    items = []
    for number, (path, content) in enumerate(carried.items()):
        key = f"file-{number}"
        items.append({"key": key, "path": path})
        try:
            found.setdefault("data", {})[key] = content.decode()
        except UnicodeDecodeError:
            found.setdefault("binaryData", {})[key] = base64.b64encode(content).decode()
    return found, items


class _Readable(yaml.SafeDumper):
    """Texts of several lines as they are."""


def _as_written(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _as_written)


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).strip()


def _carried(request: Request) -> dict[str, bytes]:
    """By path below /study: the study's file, and what of its extensions it uses."""
    text = request.file.read_text()
    found: dict[str, bytes] = {}
    if request.spec.extensions is not None:
        folder = Path(request.spec.extensions)
        text = strict_yaml.dump({**strict_yaml.read(request.file), "extensions": EXTENSIONS})
        for path in own_files(folder):
            found[f"{EXTENSIONS}/{path.relative_to(folder)}"] = path.read_bytes()
    found = {"study.yaml": text.encode(), **found}
    size = sum(map(len, found.values()))
    if size > CONFIGMAP_BYTES:
        raise UserError(
            f"extensions: with the study's file they have {size:,} bytes; a ConfigMap holds"
            f" {CONFIGMAP_BYTES:,}",
            "Move what the study does not use out of them, or build them into the image.",
        )
    return found


# ---- machines that install calstudy --------------------------------------------------------------


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)
