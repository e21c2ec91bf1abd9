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


def test_a_study_that_was_not_run_records_nothing() -> None:
    assert Recorded.from_plain({}) == Recorded()
