"""A method of a user's own, whose trials wait for a gate."""

from pathlib import Path

PATIENT = """
import time
from dataclasses import dataclass
from pathlib import Path

from trainables.methods.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class Patient(CrossEntropy):
    \"\"\"Slow while the gate is shut.\"\"\"

    def loss(self, logits, targets, progress):
        if not Path({gate!r}).exists():
            time.sleep(0.2)
        return super().loss(logits, targets, progress)
"""


def write_extensions(folder: Path, gate: Path) -> None:
    (folder / "methods").mkdir(parents=True)
    (folder / "methods" / "patient.py").write_text(PATIENT.format(gate=str(gate)))
