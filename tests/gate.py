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
            time.sleep({seconds})
        return super().loss(logits, targets, progress)
"""


def write_extensions(folder: Path, gate: Path, seconds: float = 0.2) -> None:
    """`patient`, whose steps take so many seconds more while there is no gate. Few long steps cost
    less than many short ones: an epoch is measured, recorded and reported."""
    (folder / "methods").mkdir(parents=True)
    code = PATIENT.format(gate=str(gate), seconds=seconds)
    (folder / "methods" / "patient.py").write_text(code)
