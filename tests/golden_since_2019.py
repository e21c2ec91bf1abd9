"""Values and gradients that the released code of methods since 2019 gave, on A and B of golden.py
and on S: six samples of four classes, written out.

DualFocalLoss e1ddb6b, MDCA-Calibration cece2e5, FOURM-LAB/DCA 045ee26, ACLS bbd8a37, logitnorm_ood
0a60eef, ESD 3b41dea, torch-uncertainty 0.13.0 (MaxSup); inverse focal: the formula, there is no
code.
"""

import json
from pathlib import Path
from typing import Any

import torch

from tests import golden
from tests.golden import Case

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
INPUTS = {
    "A": Case(golden.INPUTS["A"].logits.double(), golden.INPUTS["A"].labels, 1e-9),
    "B": golden.INPUTS["B"]._replace(tolerance=1e-9),
    "S": Case(
        torch.tensor(GOLDEN["inputs"]["S"]["logits"], dtype=torch.float64),
        torch.tensor(GOLDEN["inputs"]["S"]["labels"]),
        1e-9,
    ),
}
