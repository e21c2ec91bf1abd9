"""Counting trials by state."""

from study.analysis.states import WORDS, count_states, done, in_words, stopped_line, summed


def test_planned_is_the_sum_of_all_states() -> None:
    counts = count_states(
        10, ["complete", "excluded", "failed", "running", "interrupted", "pruned", "to_do"]
    )
    assert counts == dict(
        planned=10, complete=1, excluded=1, pruned=1, failed=1, running=1, interrupted=1, to_do=4
    )
    assert done(counts) == 4
    assert (
        in_words(counts)
        == "1 complete, 1 excluded, 1 stopped early, 1 failed, 1 running, 1 interrupted, 4 to do"
    )


def test_more_trials_than_planned_leave_nothing_to_do() -> None:
    """`trials` was lowered: what was begun stays."""
    counts = count_states(2, ["complete"] * 3 + ["interrupted"])
    assert (counts["planned"], counts["to_do"]) == (4, 0)
    assert (
        stopped_line(counts, "calstudy run small")
        == "the study is not running; 1 interrupted. Resume: calstudy run small"
    )


def test_nothing_is_said_of_a_study_that_is_done() -> None:
    counts = summed([count_states(1, ["complete"]), count_states(2, ["failed", "pruned"])])
    assert (counts["planned"], done(counts), stopped_line(counts, "")) == (3, 3, None)
    assert set(counts) == {"planned", *WORDS}
    assert in_words(summed([])) == "0 complete"
