from __future__ import annotations

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.criteo.build_criteo import TEST, TRAIN, VALIDATION, DaySplit, Span
from merlin_sim.workflows.criteo.criteo_columns import parse_thresholds

FILES = ["day_0", "day_1", "day_2"]


def test_the_last_day_is_halved_as_published():
    first, second, last = DaySplit().spans(FILES, [10, 20, 5])
    assert first == [Span(TRAIN, 0, 10)] and second == [Span(TRAIN, 0, 20)]
    assert last == [Span(VALIDATION, 0, 2), Span(TEST, 2, 5)]


def test_files_may_validate_as_a_whole():
    spans = DaySplit(("day_0",)).spans(FILES, [10, 20, 5])
    assert spans == [[Span(VALIDATION, 0, 10)], [Span(TRAIN, 0, 20)], [Span(TEST, 0, 5)]]


def test_shares_go_by_rows_across_files():
    spans = DaySplit(validation_share=0.2, test_share=0.1).spans(FILES, [60, 30, 10])
    assert spans[0] == [Span(TRAIN, 0, 60)]
    assert spans[1] == [Span(TRAIN, 0, 10), Span(VALIDATION, 10, 30)]
    assert spans[2] == [Span(TEST, 0, 10)]
    (only,) = DaySplit(test_share=0.25).spans(["day_0"], [8])
    assert only == [Span(TRAIN, 0, 6), Span(TEST, 6, 8)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"test_share": 1.0}, "together below 1"),
        ({"validation_share": 0.5}, "needs a `test_share`"),
        ({"test_share": 0.5, "validation_files": ("day_0",)}, "Received: both"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(MerlinSimError, match=said):
        DaySplit(**options)


def test_something_has_to_be_left_to_train_on():
    with pytest.raises(MerlinSimError, match="Nothing would be left to train on"):
        DaySplit().trained_on(["day_0"])
    with pytest.raises(MerlinSimError, match="should be some of day_0, day_1, day_2"):
        DaySplit(("day_7",)).trained_on(FILES)


@pytest.mark.parametrize("text", ["", "x", "15,3", "15,26:1", "15,-1:2", "3:20", "15,3:x"])
def test_thresholds_that_cannot_be_read_are_refused(text):
    with pytest.raises(MerlinSimError, match="15,3:20, where 3 is cat_3"):
        parse_thresholds(text)
