"""Download a published file once and verify it, or give the reasons for the failure in one line."""

import shutil
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock

from trainables.files.atomic import replacing
from trainables.files.digest import file_digest

# Timeout: otherwise a network that drops packets blocks forever.
SILENCE_SECONDS = 30.0


class DownloadError(Exception):
    """Each URL tried and its error."""


def download(urls: Sequence[str], target: Path, algorithm: str, digest: str) -> None:
    """Download to `target` the file whose digest starts so, from the first URL that has it.

    Concurrent processes wait for the one that downloads. Raises DownloadError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.is_file() and file_digest(target, algorithm).startswith(digest):
            return
        failures = []
        for url in urls:
            try:
                _take(url, target, algorithm, digest)
                return
            except (OSError, HTTPException, ValueError) as error:
                # No network, a broken response, another file.
                failures.append(f"{url}: {' '.join(str(error).split()) or type(error).__name__}")
        raise DownloadError("; ".join(failures))


def _take(url: str, target: Path, algorithm: str, digest: str) -> None:
    # Some servers reject Python's default user agent.
    request = urllib.request.Request(url, headers={"User-Agent": "calstudy"})
    with (
        urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer,
        replacing(target) as file,
    ):
        shutil.copyfileobj(answer, file, 2**20)
        file.flush()
        found = file_digest(Path(file.name), algorithm)
        if not found.startswith(digest):
            raise ValueError(
                f"is a different file, {algorithm} {found[: len(digest)]}, not {digest}"
            )
