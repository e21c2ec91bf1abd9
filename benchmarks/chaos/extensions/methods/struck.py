"""Cross-entropy until a moment of training, then a deed: how a trial harms
itself and its neighbours."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from trainables.fields import choice, number
from trainables.methods.cross_entropy import CrossEntropy

LEAK_BYTES, LEAK_AT_ONCE = 4_000_000_000, 40_000_000
LINES, LINE = 2_000, "no such luck " * 77_000  # two gigabytes


@dataclass(frozen=True)
class Struck(CrossEntropy):
    """`moment` is the share of training done when it happens."""

    deed: str = choice(
        "nan", "raises", "kills_itself", "kills_itself_once", "hangs", "leaks", "prints"
    )
    moment: float = number(0.5, low=0.0, high=1.0)

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        loss = super().loss(logits, targets, progress)
        strikes = os.environ.get("CALSTUDY_CHAOS_STRIKES")
        # Without that folder nobody looks on, and nothing is done.
        if strikes is None or progress < self.moment:
            return loss
        # What it did and in which process: $CALSTUDY_CHAOS_STRIKES/DEED@MOMENT holds the pid.
        note = Path(strikes) / f"{self.deed}@{self.moment!r}"
        first = not note.exists()
        if first:
            note.write_text(str(os.getpid()))
        if self.deed == "nan":
            return loss * float("nan")
        if self.deed == "raises":
            raise RuntimeError("no such luck")
        if self.deed == "kills_itself" or (self.deed == "kills_itself_once" and first):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.deed == "hangs":
            time.sleep(3600)
        if self.deed == "leaks":
            _leak()
        if self.deed == "prints" and first:
            _print()
        return loss


def _leak() -> None:
    """Take memory until somebody ends this process; gives up, for the
    machine's sake, at LEAK_BYTES."""
    kept = []
    while len(kept) * LEAK_AT_ONCE < LEAK_BYTES:
        kept.append(b"\1" * LEAK_AT_ONCE)
        time.sleep(0.1)
    raise RuntimeError(f"nobody stopped a leak of {LEAK_BYTES / 1e9:g} GB")


def _print() -> None:
    for _ in range(LINES):
        print(LINE)
