"""Registered models whose tags someone edited."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from study.audit.registered import check_registered
from study.tracking.registered import Registered, RegisteredVersion


@pytest.mark.parametrize("tag", ["[]", "7", "null", '"x"', "{", "[" * 100_000])
def test_a_damaged_tag_is_named(tmp_path: Path, tag: str) -> None:
    version = RegisteredVersion("m", 1, str(tmp_path), {"calstudy.artifacts": tag})
    study = SimpleNamespace(name="small", directory=tmp_path / "small")
    registered = Registered([version], [])
    facts = SimpleNamespace(
        study=study, registered=registered, uri=f"sqlite:///{tmp_path}/mlflow.db", exporting=False
    )
    (offender,) = check_registered(cast("Any", facts)).offenders
    assert "models:/m/1" in str(offender) and "its tag calstudy.artifacts is damaged" in str(
        offender
    )
