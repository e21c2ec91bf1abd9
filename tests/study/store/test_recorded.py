"""What a study records is written in the bytes that it was read from."""

import pytest

from search_spaces import strict_yaml
from study.store.recorded import Recorded

LEAST = """\
id: 7f3a
created: 2026-11-25T01:41:02+00:00
data_digest: d1635
classes:
- cat
- dog
sizes:
  train: 900
  validation: 287
  test: 360
versions:
  torch: 2.15.0
meaning:
  methods: {}
tracking: null
"""
LATER = """\
ledger_made: true
kept_by_other_rules: true
pruned: true
confirmation:
  name: digits-confirm
  openings: 2
matters_at_opening:
  ece: 0.005
"""
ALL = (
    LEAST.replace(
        "tracking: null\n",
        "serves: raw\ntemperature_fit: temperature\nmajority: 0.1\n"
        "home:\n  path: /studies/digits\n  inode: 7\ntracking: http://h:1\n",
    )
    + LATER
)


@pytest.mark.parametrize("text", [LEAST, ALL])
def test_what_is_recorded_is_written_as_it_was_read(text: str) -> None:
    recorded = Recorded.from_plain(strict_yaml.parse(text))
    assert strict_yaml.dump(recorded.to_plain()) == text


def test_masks_are_said_to_be_of_images_and_pixels() -> None:
    """Groups are the images, or the source's own; of train nothing is measured."""
    sizes = {"train": 367, "validation": 101, "test": 1}
    rows = {"train": 375_808, "validation": 103_424, "test": 1_024}
    recorded = Recorded(sizes=sizes, rows=rows, marked=True, groups=dict(sizes), unit="images")
    assert recorded.shown("validation") == "101 validation images (103,424 pixels)"
    assert recorded.sizes_of("test") == ["1 image", "1,024 pixels"]
    assert recorded.all_sizes == "train 367; validation 101 (103,424 pixels); test 1 (1,024 pixels)"
    assert (recorded.measured("validation"), recorded.counted) == (103_424, "pixels")
    assert recorded.unit_in("validation") == "images"
    assert recorded.resampled("validation") == "101 images"
    assert recorded.too_few("test") == "1 image is too few to resample; 10 are needed"
    drives = {"train": 20, "validation": 4, "test": 1}
    own = Recorded(sizes=sizes, rows=rows, marked=True, groups=drives, unit="drives")
    assert own.shown("validation") == "101 validation images (103,424 pixels, 4 drives)"
    assert own.all_sizes.startswith("train 367 (20 drives); validation 101 (103,424 pixels, 4")
    assert own.unit_in("validation") == "drives" and own.units("validation") == (4, "drives")


def test_others_are_said_to_be_samples() -> None:
    sizes = {"train": 900, "validation": 287, "test": 360}
    recorded = Recorded(sizes=sizes)
    assert recorded.shown("validation") == "287 validation samples"
    assert (recorded.measured("test"), recorded.counted) == (360, "samples")
    assert recorded.unit_in("test") is None
    patients = Recorded(
        sizes=sizes, groups={"train": 90, "validation": 28, "test": 36}, unit="eyes"
    )
    assert patients.shown("test") == "360 test samples (36 eyes)"
    assert patients.sizes_of("test") == ["360 samples", "36 eyes"]
    assert patients.unit_in("test") == "eyes"


def test_a_study_that_was_not_run_records_nothing() -> None:
    assert Recorded.from_plain({}) == Recorded()
