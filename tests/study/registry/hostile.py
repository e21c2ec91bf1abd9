"""What someone who can write a version's files, but not the registry, may put there. Each
leaves a mark if it runs."""

import json
import re
import zipfile
from pathlib import Path


def code_in_the_graph(model: Path, mark: Path) -> None:
    """Torch hands every `expr_str` of a model.pt2 to sympy, which evaluates it."""
    code = f"__import__('pathlib').Path({str(mark)!r}).touch() or 1"
    with zipfile.ZipFile(model) as archive:
        members = [(member, archive.read(member)) for member in archive.infolist()]
    found = 0
    with zipfile.ZipFile(model, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members:
            if member.filename.endswith("models/model.json"):
                text, found = re.subn(
                    r'("expr_str": )"[^"]*"', lambda at: at[1] + json.dumps(code), content.decode()
                )
                content = text.encode()
            archive.writestr(member.filename, content)
    assert found


def extensions_in_the_record(artifacts: Path, folder: Path, mark: Path) -> None:
    """The record names a data set of its own, and the folder in which its code lies."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "mine.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    )
    path = artifacts / "calstudy" / "record.json"
    record = json.loads(path.read_text())
    record["config"] |= {
        "data": {**record["config"]["data"], "name": "mine"},
        "extensions": str(folder),
    }
    path.write_text(json.dumps(record))
