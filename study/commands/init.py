"""Write a file that starts a study where the GPUs are."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from study.terminal.console import console, errors
from trainables.files.output import write_output
from trainables.problems import UserError, nearest

if TYPE_CHECKING:
    from study.machines.cluster_files import Request
    from study.machines.wheel import Wheel

STANDARD_OUTPUT = "-"
HEAD_POLICY = "aws-head-policy.json"
EMBEDDINGS = "embeddings.yaml"


@dataclass(frozen=True)
class Options:
    """What was asked; None: not given."""

    kind: str
    spec: Path | None
    nodes: int
    gpus: int | None
    cpus: int | None
    time: str
    storage: str | None
    output: str | None

    def file(self, default: str) -> str:
        return default if self.output in (None, STANDARD_OUTPUT) else str(self.output)


@dataclass(frozen=True)
class Written:
    """A file's name and text, what to say of it, and the next commands. wheel: what it installs,
    which is written beside it."""

    file: str
    text: str
    then: tuple[str, ...]
    said: tuple[str, ...] = ()
    wheel: Wheel | None = None
    # Other files, by name.
    beside: Mapping[str, bytes] = field(default_factory=dict)


def _kind(context: click.Context, option: click.Parameter, given: str) -> str:
    if given not in KINDS:
        raise click.BadParameter(f"there is no '{given}'. {nearest(given, KINDS)}")
    return given


@click.command()
@click.argument("kind", callback=_kind, metavar="KIND")
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Nodes for trials, of Kubernetes at most so many; default: 1.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0),
    metavar="N",
    help="GPUs of a node; default: 1 if a trial needs one.",
)
@click.option(
    "--cpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="CPUs of a node; default: what the trials that share its GPUs need, at least 8.",
)
@click.option(
    "--time", default="4:00:00", metavar="T", help="Slurm's limit of a job; default: 4:00:00."
)
@click.option(
    "--storage", metavar="DIR", help="Folder of studies, for Slurm; default: ./studies, absolute."
)
@click.option(
    "-o", "--output", metavar="FILE", help="Another name of the file; -: standard output."
)
def init(
    kind: str,
    spec: Path | None,
    nodes: int,
    gpus: int | None,
    cpus: int | None,
    time: str,
    storage: str | None,
    output: str | None,
) -> None:
    """Write a file that starts a study, and say what to do with it.

    KIND is study (a study to begin with), embeddings (a study of rows of numbers, and a table),
    slurm (a batch script for SPEC), kuberay (a RayJob for SPEC), docker (a Dockerfile), aws or
    local (a cluster for `ray up`). The last three install the wheel that is written beside them.
    No file is overwritten.
    """
    written = KINDS[kind](Options(kind, spec, nodes, gpus, cpus, time, storage, output))
    for line in written.said:
        errors.print(line)
    if output == STANDARD_OUTPUT:
        sys.stdout.write(written.text)
        return
    contents = {written.file: written.text.encode(), **written.beside}
    if (wheel := written.wheel) is not None:
        contents[str(Path(written.file).with_name(wheel.name))] = wheel.content
    for name, content in contents.items():
        _refuse_if_there(Path(name), content, wheel is not None)
    for name, content in contents.items():
        if not Path(name).exists():
            write_output(Path(name), content)
            console.say(f"wrote {name}")
    for command in written.then:
        console.say(f"next: {command}")


def _refuse_if_there(file: Path, content: bytes, with_wheel: bool) -> None:
    """The very content may be, with a wheel: several files install the same one."""
    if not (file.is_symlink() or file.exists()):
        return
    if with_wheel and file.is_file() and file.read_bytes() == content:
        return
    mend = "Move it away." if with_wheel else "Move it away, or name another with --output."
    raise UserError(f"{file}: is there already", mend)


# ---- kinds ---------------------------------------------------------------------------------------


def _study(options: Options) -> Written:
    from study.machines.cluster_files import filled
    from study.schema.errors import SpecError

    file = options.file(str(options.spec or "study.yaml"))
    name = Path(file).stem
    if not name.replace("-", "").replace("_", "").isalnum() or name != name.lower():
        raise SpecError(
            file, "", f"'{name}' is no name of a study", "Use a-z, 0-9, _ and - before .yaml."
        )
    then = f"calstudy plan {quote(file)}"
    return Written(file, filled("study.yaml", name=name, plan=then), (then,))


def _embeddings(options: Options) -> Written:
    file = Path(options.file(EMBEDDINGS))
    text = (Path(__file__).parents[1] / "specs" / EMBEDDINGS).read_text()
    text = text.partition("\n")[2]  # the schema stays where it is
    table = str(file.with_name("embeddings.parquet"))
    then = f"calstudy run {quote(str(file))}"
    return Written(str(file), text, (then,), beside={table: _digits_table()})


def _digits_table() -> bytes:
    """A parquet file of scikit-learn's digits, as an encoder would leave them: a column of lists
    of 64 numbers, and one of labels."""
    import pyarrow
    import pyarrow.parquet

    from trainables.data.digits import Digits

    digits = Digits().read().train
    values = pyarrow.array(digits.images.reshape(-1).astype("float32"))
    lists = pyarrow.FixedSizeListArray.from_arrays(values, 64)
    written = io.BytesIO()
    table = pyarrow.table({"embedding": lists, "label": digits.labels})
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()


def _request(options: Options) -> Request:
    """Raises UsageError without SPEC, SpecError, UserError if its trials fit no such node."""
    from study.machines.cluster_files import Request, shape
    from study.schema.reading import read_spec
    from study.schema.spec import refuse_confirmation

    if options.spec is None:
        raise click.UsageError(f"give SPEC: the study that {options.kind} is to run.")
    spec = read_spec(options.spec)
    refuse_confirmation(spec, options.spec.name)
    return Request(spec, options.spec, options.nodes, shape(spec.needs, options.cpus, options.gpus))


def _slurm(options: Options) -> Written:
    from study.machines.cluster_files import slurm
    from study.store.study import storage_root

    request = _request(options)
    given = options.storage
    storage = storage_root(given, request.spec.storage)  # refuses a URL
    if given is not None and not Path(given).expanduser().is_absolute():
        mend = "Give the absolute path of a folder that every node sees."
        raise UserError(f"--storage: '{given}' is a relative path", mend)
    file = options.file(f"{request.file.stem}.sbatch")
    return Written(file, slurm(request, options.time, storage), (f"sbatch {quote(file)}",))


def _kuberay(options: Options) -> Written:
    from study.machines.cluster_files import kuberay, kubernetes_name

    request = _request(options)
    if options.storage is not None:
        mend = "Leave it out: the claim in the file is mounted at /storage."
        raise UserError("--storage: the pods' storage is a volume", mend)
    file = options.file(f"{request.file.stem}.rayjob.yaml")
    name = kubernetes_name(request.spec.name)
    said: tuple[str, ...] = ()
    if name != request.spec.name:
        said = (f"'{request.spec.name}' is no name in Kubernetes; the RayJob is '{name}'.",)
    then = (
        "kubectl create secret generic calstudy-token"
        ' --from-literal=auth_token="$(openssl rand -hex 32)"',
        f"kubectl apply -f {quote(file)}",
    )
    return Written(file, kuberay(request, quote(file)), then, said)


def _docker(options: Options) -> Written:
    from study.machines.cluster_files import filled
    from study.machines.wheel import installed_wheel

    wheel = installed_wheel()
    text = filled("Dockerfile", version=wheel.version, wheel=wheel.name, sha256=wheel.sha256)
    then = (f"docker build -t REGISTRY/calstudy:{wheel.version} .",)
    return Written(options.file("Dockerfile"), text, then, wheel=wheel)


def _local(options: Options) -> Written:
    from study.machines.cluster_files import cluster_of_wheel

    return _for_ray_up(options, "cluster.yaml", cluster_of_wheel)


def _aws(options: Options) -> Written:
    from study.machines.cluster_files import filled

    found = _for_ray_up(options, "aws.yaml", lambda wheel: filled("aws.yaml", wheel=wheel))
    policy = str(Path(found.file).with_name(HEAD_POLICY))
    return replace(found, beside={policy: filled(HEAD_POLICY).encode()})


def _for_ray_up(options: Options, default: str, text: Callable[[str], str]) -> Written:
    """text: the file's, by the name of the wheel that it installs."""
    from study.machines.wheel import installed_wheel

    file, wheel = options.file(default), installed_wheel()
    then = (f"change the lines marked <- in {quote(file)}", f"ray up -y {quote(file)}")
    return Written(file, text(wheel.name), then, wheel=wheel)


KINDS: dict[str, Callable[[Options], Written]] = {
    "study": _study,
    "embeddings": _embeddings,
    "slurm": _slurm,
    "kuberay": _kuberay,
    "docker": _docker,
    "aws": _aws,
    "local": _local,
}
