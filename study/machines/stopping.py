"""Stopping before the end: because of a signal, or because nobody reads what is printed any more.

A preemption (Slurm, systemd, `timeout`) signals Ray's processes at the same moment as this one.
What then waits for them waits for a minute, until Ray ends the process. So `Ending` gives the
orderly way GRACE seconds and then ends the process itself, which loses nothing: every fact is in
the ledger first.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from study.machines.early_signals import INTERRUPTED, code_is_decided, last_word
from study.machines.end_processes import MARK, SIGNALS, end_all, end_all_in_place_of_this

CLOSED = "a closed output"
ANSWER = "stopping; once more ends it now."
ANSWER_SECONDS = 0.2  # a stop that takes less says its last word alone
SAME_SECONDS = 0.5  # `timeout` sends its signal twice: to the process, then to its group
GRACE = 10.0  # seconds from the request until the orderly way is over
LAST_SECONDS = 5.0  # after that, for the last acts
FINISHING = 300.0  # before all that, for what is not to be ended midway
_folders: set[str] = set()  # temporary ones, of this process


class Interrupted(KeyboardInterrupt):
    """Ends what the main thread does. Of KeyboardInterrupt itself Python notes that it passed
    through an `exec` of text, as dataclasses have while they are imported, and then ends a `python
    -m` by SIGINT, whatever exit code the program gives."""


class Stopping:
    """Records that a stop was requested, and by what (`caught`). A second signal ends the process
    at once.

    What is not `deferred` is interrupted, as by Ctrl-C. Signals that were ignored at the start
    (nohup) stay ignored.
    """

    def __init__(self) -> None:
        self.caught: str | None = None
        self.resume: str | None = None  # the command that goes on, once there is one
        # Of a process that is ended before it could end in order.
        self.last_acts: list[Callable[[], object]] = []
        self._deferred = False
        self._finishing = threading.Lock()
        self._noted: float | None = None
        found = {number: signal.getsignal(number) for number in SIGNALS}
        self._before = {
            number: handler
            for number, handler in found.items()
            if handler not in (None, signal.SIG_IGN)
        }

    def __enter__(self) -> Stopping:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Install the handlers; again after joining Ray, which takes over SIGTERM."""
        for number in self._before:
            signal.signal(number, self._note)

    def requested(self) -> bool:
        """Whether to stop."""
        return self.caught is not None

    def request(self, by: str) -> None:
        """Stop, if that was not requested before. Any thread may call it."""
        self.caught = self.caught or by

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What is done here looks at `requested` itself."""
        before = self._deferred
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = before

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """What is done here, unless a stop is `requested`, is not ended midway; it may take
        FINISHING seconds."""
        with self._finishing:
            yield

    def _note(self, number: int, frame: object) -> None:
        signal.alarm(0)  # Ray's, if it was still joining: see `without_its_sigterm`
        now = time.monotonic()
        again = self._noted is not None
        if self._noted is not None and now - self._noted > SAME_SECONDS:
            self._noted_again(signal.Signals(number))
            return
        self._noted = self._noted or now
        self.request(signal.Signals(number).name)
        if not (again or self._deferred):
            raise Interrupted

    def _noted_again(self, number: signal.Signals) -> None:
        """A second signal has its usual effect."""
        signal.signal(number, self._before[number])
        signal.raise_signal(number)


class Voice(Protocol):
    """A console: what `study.terminal.console` has."""

    quiet: bool
    stderr: bool
    when_closed: Callable[[], None]

    def say(self, line: str) -> None: ...

    def silence(self, patience: float) -> None: ...

    def on_broken_pipe(self) -> None: ...


class Ending(Stopping):
    """Ends a command: its process, and those it started, end soon after the request, with
    INTERRUPTED and a last word.

    Soon is GRACE + LAST_SECONDS where the main thread does not come back from what it waits for,
    after what it is `finishing`; after a second signal it is LAST_SECONDS at most.
    """

    def __init__(self, console: Voice, errors: Voice) -> None:
        super().__init__()
        self._console = console
        self._errors = errors
        self._lock = threading.Lock()
        self._said = False
        self._is_answered = False
        self._over = False
        self._speaking = threading.Lock()
        self._heard: float | None = None  # when the first signal was
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Ending:
        os.environ[MARK] = uuid.uuid4().hex
        # The main thread may be in C++ code, where no handler runs: the number of a signal arrives
        # here at once.
        self._wakeup_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._heard_before = {each: each.when_closed for each in (self._console, self._errors)}
        for each in self._heard_before:
            each.when_closed = self._closed
        threading.Thread(target=self._watch, name="stopping", daemon=True).start()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        code_is_decided()
        self._over = True  # what is not heard by now changes nothing
        if not self.requested():
            super().__exit__(kind, error, trace)
            signal.set_wakeup_fd(self._wakeup_before)
            for each, heard in self._heard_before.items():
                each.when_closed = heard
            os.write(self._waker, b"\0")
            return
        # Its handlers stay, and its thread: it still ends a process that does not end itself.
        self._over = False
        # Ray's agents may wait long for a control store that is gone.
        end_all(os.environ[MARK], list(_folders))
        if error is not None and getattr(error, "code", None) != INTERRUPTED:
            # A fault at this moment is most likely a consequence; one that is not is met again by
            # the next run.
            self.say()
            raise SystemExit(INTERRUPTED) from None

    def request(self, by: str) -> None:
        super().request(by)
        os.write(self._waker, b"\0")

    def say(self) -> None:
        """The last word, once."""
        with self._speaking:
            if self._may_speak():
                self._speaker().say(self._word())

    def _answer(self) -> None:
        """Say that a signal was heard, unless the last word was said."""
        time.sleep(ANSWER_SECONDS)
        with self._speaking:
            if not (self._said or self._is_answered):
                self._is_answered = True
                self._speaker().say(ANSWER)

    def _speaker(self) -> Voice:
        return self._errors if self._console.quiet else self._console

    def _word(self) -> str:
        return last_word(str(self.caught), self.resume)

    def _may_speak(self) -> bool:
        with self._lock:
            said = self._said
            self._said = True
        return not said

    def _closed(self) -> None:
        first = not self.requested()
        self.request(CLOSED)
        if first:  # else it is a consequence, and no second signal
            _thread.interrupt_main()

    # ---- the thread that watches -----------------------------------------------------------------

    def _watch(self) -> None:
        watched = select.poll()
        watched.register(self._wake, select.POLLIN)
        # Its reader may be gone long before a line is due.
        watched.register(2 if self._console.stderr else 1, 0)
        while not (self.requested() or self._over):
            for file, event in watched.poll():
                if file == self._wake:
                    self._hear(0.0)
                elif event & (select.POLLERR | select.POLLHUP):
                    self._console.on_broken_pipe()
                else:  # it is no open file
                    watched.unregister(file)
        if not self._over:
            self._wait_for_the_orderly_way()
            self._end()
        os.close(self._wake)
        os.close(self._waker)

    def _hear(self, seconds: float) -> bool:
        """Wait for a signal, or for another thread; whether it was a signal after the first one and
        its twin."""
        if not select.select([self._wake], [], [], seconds)[0]:
            return False
        number = os.read(self._wake, 1)[0]
        if number not in self._before:
            return False
        now = time.monotonic()
        self._heard = self._heard or now
        name = signal.Signals(number).name
        self.request(name)
        if self.caught == name:
            threading.Thread(target=self._answer, name="answering", daemon=True).start()
        return now - self._heard > SAME_SECONDS

    def _wait_for_the_orderly_way(self) -> None:
        """Until it has had what it is `finishing` and GRACE seconds, or a second signal comes."""
        began = time.monotonic()
        until = began + FINISHING
        while (left := until - time.monotonic()) > 0:
            if self._finishing.acquire(blocking=False):
                self._finishing.release()
                break
            if self._hear(min(left, 0.1)):
                return
        until = time.monotonic() + GRACE
        while (left := until - time.monotonic()) > 0:
            if self._hear(left):
                return

    def _note(self, number: int, frame: object) -> None:
        if not self._over:
            super()._note(number, frame)

    def _noted_again(self, number: signal.Signals) -> None:
        """The watching thread hears it too, and ends the process."""

    def _end(self) -> None:
        """What the main thread was to do, without it."""
        acting = threading.Thread(target=self._act, daemon=True)
        acting.start()
        acting.join(LAST_SECONDS)
        self._speaking.acquire(timeout=1.0)  # the main thread may be in the midst of it
        if self._may_speak():
            shown = (2,) if self._console.quiet or self._console.stderr else (1, 2)
            # The main thread may come back just now, and would add to it.
            for each in (self._console, self._errors):
                each.silence(0.5)
            any(_written(file, self._word()) for file in shown)
        end_all_in_place_of_this(INTERRUPTED, os.environ[MARK], list(_folders))

    def _act(self) -> None:
        for act in self.last_acts:
            with suppress(Exception):
                act()


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[str]:
    """A temporary folder that `Ending` removes too."""
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=place, ignore_cleanup_errors=True
    ) as folder:
        _folders.add(folder)
        yield folder
    _folders.discard(folder)


def _written(file: int, line: str) -> bool:
    """Write past Python's buffers and locks, which the main thread may hold; whether there was
    somebody to read it."""
    with suppress(OSError, ValueError):
        # The live view hides the cursor.
        shown = f"\033[?25h\n{line}\n" if os.isatty(file) else f"{line}\n"
        return bool(select.select([], [file], [], 0.5)[1]) and os.write(file, shown.encode()) > 0
    return False
