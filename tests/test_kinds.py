"""What groups of samples are called, by the column that names them: words as people write them."""

import pytest

from trainables.kinds import count_of, unit_of


@pytest.mark.parametrize(
    ("column", "unit", "one"),
    [
        ("patient", "patients", "patient"),
        ("patient_id", "patients", "patient"),
        ("PatientID", "patients", "patient"),
        ("patients", "patients", "patient"),
        ("Study", "studies", "study"),
        ("day", "days", "day"),
        ("class", "classes", "class"),
        ("house", "houses", "house"),
        ("box", "boxes", "box"),
        ("branch", "branches", "branch"),
        ("group", "groups", "group"),
        ("id", "ids", "id"),
        ("groups", "groups", "group"),
        ("drive 2", "groups", "group"),
        ("", "groups", "group"),
    ],
)
def test_a_column_says_what_its_groups_are_called(column: str, unit: str, one: str) -> None:
    assert unit_of(column) == unit
    assert (count_of(1, unit), count_of(1214, unit)) == (f"1 {one}", f"1,214 {unit}")
