"""One study under fire: its driver, the moments to strike at, what must be true after each
fault and at the end."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks.chaos import proofs
from benchmarks.chaos.attempts import Attempt, Loss, attempts_of, losses, rows
from benchmarks.chaos.processes import ACTOR, MARK, command_line, marked, wait_for
from study.store.study import StudyFolder, open_directory
from study.store.trials import TrialRecord

CHECKOUT = Path(__file__).resolve().parents[2]
RECOVERY_SECONDS = 240.0
FINISH_SECONDS = 600.0
# MLflow is tried again after a minute at the latest.
AUDIT_SECONDS = 90.0
REFUSAL_SECONDS = 120.0
FAILED, MISTAKE, INTERRUPTED = 1, 2, 75  # exit codes of `calstudy run`
# Of Python and of Ray's C++.
TRACES = ("Traceback (most recent call last)", "StackTrace Information", "*** SIG")
LACKS = "not in MLflow yet"  # what a driver says that ended while the tracking server was away
# The moment of a fault: so many seconds after trials are seen to train.
LATEST_MOMENT = 3.0
# A study that is finished before its faults are played is given so many times its trials.
GROWTH = 1.34
STUDY: dict[str, Any] = {
    "data": "digits",
    "model": {"name": "mlp", "width": 512, "depth": 3},
    "methods": ["cross_entropy", "focal", "mbls"],
    "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
    "trials": 3,
    "epochs": 60,
    "checkpoint_seconds": 1.0,
}


@dataclass(frozen=True)
class Seen:
    """A study at one moment: the trials that trained, and all attempts."""

    training: dict[str, Attempt]
    attempts: dict[str, list[Attempt]]


@dataclass(frozen=True)
class Ended:
    """How a driver ended: its exit code (less than 0: a signal), and how many
    seconds after the fault."""

    exit: int
    seconds: float


@dataclass(frozen=True)
class Strike:
    """What a fault did, and what then must happen."""

    pid: int | None
    taken_up: int = 0  # how many running trials must at least be handed out again
    # What was to be taken up again, where that came some time after the fault's beginning.
    seen: Seen | None = None
    trial: str | None = None  # the only one it was about; what others lose is not its doing
    # See Loss.floor; by trial and attempt.
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    recovered: Callable[[], Any] | None = None  # instead of the rule for all
    and_then: Callable[[], Any] = lambda: True  # what is waited for after that
    check: Callable[[], list[str]] = list  # what is wrong once it has recovered


Fault = Callable[["Stage"], Strike]


def by_kind(*faults: Fault) -> dict[str, Fault]:
    """The kind of a fault is its function's name."""
    return {fault.__name__: fault for fault in faults}


class Ground:
    """Where a study runs; as it is here, this machine. Each ground has its own faults."""

    faults: ClassVar[dict[str, Fault]]  # by kind
    study: ClassVar[dict[str, Any]] = {}  # keys over those of STUDY
    words: tuple[str, ...] = ()  # of `calstudy run`, after the study's file
    ledger: str | None = None  # of its study; None: the study's own
    tracking: str | None = None  # the MLflow to audit; None: the embedded one
    # Whether faults come from inside, not at a moment the harness chooses.
    strikes_by_itself = False
    most_faults = 12  # in one study

    def __init__(self, directory: Path, mark: str, rng: random.Random) -> None:
        self.directory, self.mark, self.random = directory, mark, rng
        self.storage = directory / "studies"

    def __enter__(self) -> Ground:
        self.storage.mkdir()
        (self.directory / "tmp").mkdir()
        return self

    def __exit__(self, *fault: object) -> None:
        """Leave nothing behind; the processes of the round have been ended."""

    @classmethod
    def refusal(cls) -> str | None:
        """Why this machine has no such ground; None where it has."""
        return None

    @classmethod
    def keys(cls, times: dict[str, int]) -> dict[str, Any]:
        """Keys of a study in which faults happen so often, by kind."""
        return {}

    def environment(self) -> dict[str, str]:
        """Of every process of the round."""
        folder = str(self.directory / "tmp")
        return {
            MARK: self.mark,
            "RAY_TMPDIR": folder,
            "TMPDIR": folder,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
        }

    def stays(self, pid: int) -> bool:
        """Whether a process is the ground's own and outlives a driver."""
        return False

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program where drivers run."""
        return subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, **environment}, **options)


class Stage:
    """One round while it plays."""

    def __init__(self, name: str, ground: Ground, keys: dict[str, Any]) -> None:
        self.name, self.ground, self.random = name, ground, ground.random
        sampler = {"name": "random", "seed": self.random.randrange(1000)}
        plain = {
            "name": name,
            **STUDY,
            "sampler": sampler,
            "ledger": ground.ledger,
            **ground.study,
            **keys,
        }
        self.spec_file = ground.directory / f"{name}.yaml"
        self.spec_file.write_text(yaml.safe_dump(plain))
        self.trials: int = plain["trials"]
        self.checkpoint_seconds: float = plain["checkpoint_seconds"]
        self.output = ground.directory / "output"
        self.directory = ground.storage / name
        self.driver: subprocess.Popen[Any] | None = None
        self.next_environment: dict[str, str] = {}  # of the next driver alone
        self.problems: list[str] = []
        self._lacked = 0  # how often a driver before this one left MLflow incomplete
        self._read = 0  # how much of the output was looked at for tracebacks
        self._struck_at = time.monotonic()
        self._ended: Ended | None = None  # by the fault that is played
        self._may_end = True  # whether the end of the driver is somebody's wish
        self._accounted: set[tuple[str, int]] = set()
        self.floors: dict[tuple[str, int], int] = {}

    # ---- the driver ------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the driver is."""
        return self.driver is not None and self.driver.poll() is None

    def start(self) -> None:
        """`calstudy run`, the first time or again."""
        if (
            self.driver is not None
            and not self._may_end
            and (self.driver.returncode or not self.complete())
        ):
            last = self.output.read_text(errors="replace").strip().rpartition("\n")[2]
            self.problems.append(
                f"the driver ended by itself, exit {self.driver.returncode}: {last}"
            )
        environment = {**self.ground.environment(), **self.next_environment}
        self._may_end, self.next_environment = False, {}
        self._lacked = self.printed(LACKS)
        with self.output.open("a") as output:
            self.driver = self.ground.popen(
                self._command, environment, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def _command(self) -> list[str]:
        words = [
            "run",
            str(self.spec_file),
            "--storage",
            str(self.ground.storage),
            "--trials",
            str(self.trials),
        ]
        return [sys.executable, "-m", "study.cli", *words, *self.ground.words]

    def refused(self, words: str, environment: dict[str, str] | None = None) -> list[str]:
        """What is wrong with a `calstudy run` that must end at once, in one line with these words.

        The driver at work, if there is one, stays that.
        """
        command, pipe = self._command, subprocess.PIPE
        environment = {**self.ground.environment(), **(environment or {})}
        process = Ground.popen(
            self.ground, command, environment, stdout=pipe, stderr=pipe, text=True
        )
        try:
            said, complaint = process.communicate(timeout=REFUSAL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            wait_for(lambda: self.alive or not self.actors(), RECOVERY_SECONDS)
            return [f"not refused after {REFUSAL_SECONDS:g} s"]
        lines = [line for line in complaint.splitlines() if line.strip()]
        with self.output.open("a") as output:
            output.write(f"[refused: exit {process.returncode}]\n{said}{complaint}")
        wrong = [] if process.returncode == MISTAKE else [f"not refused: exit {process.returncode}"]
        wrong += [] if len(lines) == 1 else [f"refused in {len(lines)} lines"]
        last = lines[-1] if lines else ""
        return wrong + ([] if words in last else [f"refused without '{words}': {last}"])

    def see_to_driver(self) -> None:
        """Have one at work: run again where there is none, with more trials
        where all are finished."""
        if not self.alive:
            self.trials = math.ceil(self.trials * GROWTH) if self.complete() else self.trials
            self.start()

    def driver_pid(self) -> int:
        """Of the program itself, wherever it was started. ProcessLookupError where it has ended."""
        for pid in marked(self.ground.mark, "-m study.cli run"):
            if command_line(pid).startswith(sys.executable):
                return pid
        raise ProcessLookupError

    def signal_driver(self, number: signal.Signals, patience: float = 90.0) -> int:
        """Send it and wait for the end; the pid it was."""
        pid = self.driver_pid()
        self.driver_may_end()
        os.kill(pid, number)
        self.wait_for_end(
            patience, number.name, -number if number == signal.SIGKILL else INTERRUPTED
        )
        return pid

    def stop_driver(self) -> int:
        """Have it end, in one way or the other, and all that trains with it; the pid it was."""
        pid = self.signal_driver(self.random.choice([signal.SIGKILL, signal.SIGTERM]))
        wait_for(lambda: not self.actors(), RECOVERY_SECONDS)
        return pid

    def driver_may_end(self) -> None:
        """Its end, when it comes, is the fault's doing."""
        self._may_end = True

    def wait_for_end(self, patience: float, what: str, code: int) -> None:
        """Of the driver, after what was done to it, and with this exit code; or with 0
        where all is finished."""
        assert self.driver is not None
        try:
            self.driver.wait(patience)
        except subprocess.TimeoutExpired:
            self.problems.append(f"the driver was still there {patience:g} s after {what}")
            with suppress(ProcessLookupError):
                os.kill(self.driver_pid(), signal.SIGKILL)
            self.driver.wait()
            return
        found = self.driver.returncode
        self._ended = Ended(found, round(time.monotonic() - self._struck_at, 1))
        # Killed while it was going anyway.
        if found != code and not (found <= 0 and self.complete()):
            self.problems.append(f"the driver ended by {what} with exit {found}, not {code}")

    def actors(self) -> list[int]:
        """The processes that train."""
        return marked(self.ground.mark, ACTOR)

    def printed(self, words: str) -> int:
        """How often the drivers of this round have said it."""
        return self.output.read_text(errors="replace").count(words) if self.output.exists() else 0

    # ---- the study -------------------------------------------------------------------------------

    def study(self) -> StudyFolder:
        """As it is on disk now."""
        return open_directory(self.directory, self.name)

    def records(self) -> dict[str, TrialRecord]:
        """By name; none before there is a ledger."""
        if not (self.directory / "study.yaml").exists():
            return {}
        return {record.name: record for record in self.study().records()}

    def complete(self) -> bool:
        """Whether every planned trial is finished."""
        if not (self.directory / "study.yaml").exists():
            return False
        return not self.study().lacking(self.study().records())

    def training(self) -> dict[str, Attempt]:
        """The trials in the midst of an attempt that has trained an epoch, by name."""
        newest = {name: tried[-1] for name, tried in attempts_of(self.directory).items() if tried}
        return {
            name: newest[name]
            for name, record in self.records().items()
            if record.state == "running"
            and name in newest
            and newest[name].number == record.attempt
            and newest[name].seconds
        }

    def until_training(self, ready: Callable[[], Any] = lambda: True) -> None:
        """Wait until trials train (and `ready`); start the driver where there is none to do it.

        Raises TimeoutError.
        """
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            self.see_to_driver()
            # An actor: by its records alone a trial of the driver before this one trains too.
            if self.actors() and self.training() and ready():
                return
            time.sleep(0.2)
        raise TimeoutError(
            f"{self.name}: no trial trains; the driver's output:\n{self.output.read_text()[-2000:]}"
        )

    # ---- a fault ---------------------------------------------------------------------------------

    def play(self, kind: str) -> dict[str, Any]:
        """One fault, its recovery and the audit; the line to record."""
        strike, seen, moment = self._struck(self.ground.faults[kind])
        self.floors |= strike.floors
        begun = time.monotonic()
        recovered = strike.recovered or (
            lambda: self._goes_on(strike.taken_up, strike.seen or seen)
        )
        if not (wait_for(recovered, RECOVERY_SECONDS, 0.3) and strike.and_then()):
            self.problems.append(f"it had not recovered after {RECOVERY_SECONDS:g} s")
        seconds = time.monotonic() - begun
        repeated, promised = self._account(strike.trial)
        line = {"time": round(moment, 3), "kind": kind, "pid": strike.pid, "study": self.name}
        told: dict[str, Any] = {
            "recovered_seconds": round(seconds, 1),
            "repeated": repeated,
            "promised": promised,
        }
        told["ended"] = None if self._ended is None else asdict(self._ended)
        audit = self.audit()
        problems, self.problems = [*self.problems, *strike.check(), *self._traces()], []
        return {**line, **told, "audit": audit, "problems": problems}

    def seen(self) -> Seen:
        """The study as it is now."""
        attempts = attempts_of(self.directory)
        return Seen(self.training(), attempts)

    def _struck(self, fault: Fault) -> tuple[Strike, Seen, float]:
        """The fault, at a moment when trials train; the study just before it, and the time."""
        while True:
            if not self.ground.strikes_by_itself:
                self.until_training()
                time.sleep(self.random.uniform(0.0, LATEST_MOMENT))
            seen, moment = self.seen(), time.time()
            self._struck_at, self._ended = time.monotonic(), None
            try:
                return fault(self), seen, moment
            except ProcessLookupError:  # what was to be struck has just ended by itself
                continue

    def _goes_on(self, taken_up: int, seen: Seen) -> bool:
        """Whether epochs are trained again, and what was lost has been made up for."""
        if not self.alive:
            if self.complete():
                return True
            self.start()
        records, after, training = self.records(), attempts_of(self.directory), seen.training
        finished = {name for name in training if records[name].state != "running"}
        again = {name for name, was in training.items() if after[name][-1].number > was.number}
        caught_up = all(
            name in finished or after[name][-1].epoch >= was.epoch for name, was in training.items()
        )
        return (
            rows(after) > rows(seen.attempts)
            and len(finished | again) >= min(taken_up, len(training))
            and caught_up
        )

    def _losses(self) -> dict[tuple[str, int], Loss]:
        tried = attempts_of(self.directory)
        return losses(tried, self.records(), self.checkpoint_seconds, self.floors)

    def _account(self, trial: str | None) -> tuple[int, int]:
        """Epochs repeated since this was last asked (of a trial), and the most that is promised."""
        fresh = {
            key: loss
            for key, loss in self._losses().items()
            if key not in self._accounted and trial in (None, loss.lost.trial)
        }
        self._accounted |= fresh.keys()
        return sum(loss.epochs for loss in fresh.values()), sum(
            loss.promised for loss in fresh.values()
        )

    def _traces(self) -> list[str]:
        """Tracebacks the drivers have printed since this was last asked."""
        text = self.output.read_text(errors="replace")
        new, self._read = text[self._read :], len(text)
        return [f"the driver printed '{trace}'" for trace in TRACES if trace in new]

    def audit(self) -> dict[str, Any]:
        """`calstudy audit` of the study."""
        return proofs.audited(self.study(), self.ground.tracking, AUDIT_SECONDS)

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self) -> dict[str, Any]:
        """Let the study be finished; the line that closes it, with every proof there is."""
        deadline = time.monotonic() + FINISH_SECONDS
        while not self._done():
            if time.monotonic() > deadline:
                self.problems.append(f"it was not finished after {FINISH_SECONDS:g} s")
                break
            if not self.alive:
                self.start()
            time.sleep(0.3)
        repeated, promised = self._account(None)
        study, attempts = self.study(), attempts_of(self.directory)
        problems = [
            *self.problems,
            *self._traces(),
            *proofs.left_alive(self.processes),
            *proofs.promises_kept(list(self._losses().values())),
            *proofs.proposed_as_undisturbed(study),
            *proofs.trained_as_undisturbed(study, attempts, self.random),
        ]
        line = {"time": round(time.time(), 3), "kind": "end", "pid": None, "study": self.name}
        told = {"recovered_seconds": 0.0, "repeated": repeated, "promised": promised}
        return {**line, **told, "audit": self.audit(), "problems": problems}

    def _done(self) -> bool:
        """Whether a driver ended well with all trials finished, and in MLflow: what that
        lacks the next one writes."""
        well = self.driver is not None and self.driver.poll() == 0
        return well and self.complete() and self.printed(LACKS) == self._lacked

    def processes(self) -> list[int]:
        """What must have ended once the driver has."""
        return [pid for pid in marked(self.ground.mark) if not self.ground.stays(pid)]
