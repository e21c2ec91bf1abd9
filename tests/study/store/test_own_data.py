"""Where the data of a study's own folder are, as its files say."""

from pathlib import Path

from study.store.own_data import as_recorded, moved_with_study


def test_a_path_is_relative_in_the_studys_folder_alone(tmp_path: Path) -> None:
    here = tmp_path / "mine"

    def recorded(path: Path, confirms: str | None = None, name: str = "arrays") -> object:
        found = as_recorded({"name": name, "path": str(path)}, here, confirms)
        assert isinstance(found, dict)
        return found["path"]

    assert recorded(here / "data") == "data"
    assert recorded(tmp_path / "search" / "data", confirms="search") == "../search/data"
    for other in (tmp_path / "search" / "data", here / "other", tmp_path):
        assert recorded(other) == str(other)
    assert recorded(here / "data", name="table") == str(here / "data")
    assert as_recorded("digits", here, None) == "digits"


def test_a_models_data_are_found_where_the_study_is_now(tmp_path: Path) -> None:
    data = {"name": "arrays", "path": str(tmp_path / "first" / "mine" / "data")}
    second = tmp_path / "second"
    assert moved_with_study(data, second) == data  # nowhere: reading them says so
    (second / "mine" / "data").mkdir(parents=True)
    assert moved_with_study(data, second)["path"] == str(second / "mine" / "data")
    (tmp_path / "first" / "mine" / "data").mkdir(parents=True)
    assert moved_with_study(data, second) == data
    assert moved_with_study({"name": "digits"}, second) == {"name": "digits"}
