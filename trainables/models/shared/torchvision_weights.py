"""The files of torchvision's published weights, downloaded once."""

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import torch

from trainables.files.digest import known_digest
from trainables.files.download import DownloadError, download
from trainables.problems import FieldError


def published_file(url: str, of: str) -> Path:
    """The file of that URL on this machine, whose name ends with the start of its sha256.

    of: the network. Raises FieldError.
    """
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name
    digest = file.stem.rpartition("-")[2]
    with suppress(OSError):
        if known_digest(file).startswith(digest):
            return file
    try:
        download([url], file, "sha256", digest)
    except DownloadError as error:
        problem = f"those of {of} cannot be downloaded ({error})"
        fix = f"Download the file elsewhere and copy it to {file} on every node."
        raise FieldError("weights", problem, fix) from None
    return file
