"""Draws the pictures of docs/start from the demo study, which it trains first: `make docs`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "demo"  # where the commands run: what they print has no path
STUDY = "noisy_digits"
PLACE = ROOT / "docs" / "start"
SIZES = {"report.png": "1280,800", "report_phone.png": "390,844"}
COMMANDS = (
    ("run", str(ROOT / "study" / "specs" / f"{STUDY}.yaml")),
    ("confirm", STUDY),
    ("figures", STUDY),
    ("report", STUDY),
)


def main() -> None:
    """What the study has is not trained again."""
    HOME.mkdir(parents=True, exist_ok=True)
    made = HOME / "studies" / STUDY
    for words in COMMANDS:
        subprocess.run(
            [sys.executable, "-m", "study.cli", *words, "--storage", "studies"],
            cwd=HOME,
            check=True,
        )
    shutil.copyfile(made / "figures" / "front.png", PLACE / "front.png")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print(f"no Chromium: {' and '.join(SIZES)} stay as they are")
        return
    for name, size in SIZES.items():
        subprocess.run(
            [
                *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--window-size={size}", f"--screenshot={PLACE / name}"),
                (made / "report.html").as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


if __name__ == "__main__":
    main()
