"""A window that is filled row by row gives the batches that are looked up row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merlin_sim.dataloader.batches import filled_window
from merlin_sim.dataloader.batches.filled_window import FilledWindow
from merlin_sim.dataloader.rows.decoded_rows import DecodedRows, ListColumn, ScalarColumn
from merlin_sim.dataloader.rows.gathered_rows import GatheredRows

WIDTHS = {"history": 4}
COMPACT = frozenset({"history"})


def decoded(rows, random, kind=np.int64):
    lengths = random.integers(0, 7, rows)  # longer than the width too
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = {
        "label": ScalarColumn(random.integers(0, 2, rows).astype(np.int8)),
        "history": ListColumn(random.integers(0, 100, offsets[-1]).astype(kind), offsets),
    }
    return DecodedRows(columns, rows, "file", 0)


def fill(window, piece, start, stop):
    bring = window.expect(start, stop)
    for name, column in piece.columns.items():  # columns come one by one, in any order
        bring({name: column})


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 3)), max_size=5),
    st.integers(1, 9),
    st.sampled_from([1, 16, 1024]),
    st.integers(0, 2**32 - 1),
)
def test_every_row_comes_to_its_place(monkeypatch, ranges, batches, block_rows, seed):
    monkeypatch.setattr(filled_window, "BLOCK_ROWS", block_rows)
    random = np.random.default_rng(seed)
    kinds = (np.int16, np.int32, np.int64)
    pieces = [
        (decoded(before + rows + after, random, random.choice(kinds)), before, before + rows)
        for before, rows, after in ranges
    ]
    total = sum(stop - start for _, start, stop in pieces)
    batch_rows = total // batches
    used = batch_rows * batches
    if used < total:  # a window has as many rows as its batches
        pieces.append((decoded(batches - (total - used), random), 0, batches - (total - used)))
        batch_rows += 1
    order = random.permutation(batch_rows * batches).reshape(batches, batch_rows)
    layout = decoded(0, random)
    window = FilledWindow(list(order), layout, WIDTHS, COMPACT)
    for piece in pieces:
        fill(window, *piece)
    looked_up = GatheredRows(pieces, layout, WIDTHS, COMPACT)
    for index in range(batches):
        expected = looked_up.take(order[index])
        for name, values in window.batch(index).items():
            assert values.dtype == expected[name].dtype
            np.testing.assert_array_equal(values, expected[name])


def test_rows_between_those_that_are_wanted_are_passed_over(monkeypatch):
    monkeypatch.setattr(filled_window, "BLOCK_ROWS", 2)
    random = np.random.default_rng(0)
    piece = decoded(3000, random)
    wanted = [np.array([2999, 4, 5]), np.array([700, 0, 1001])]
    window = FilledWindow(wanted, decoded(0, random), WIDTHS)
    fill(window, piece, 0, 1001)
    with pytest.raises(RuntimeError, match="2 rows of a window"):
        window.batch(0)
    fill(window, piece, 1001, 3000)
    for index, rows in enumerate(wanted):
        labels = piece.columns["label"].values[rows]
        np.testing.assert_array_equal(window.batch(index)["label"], labels)


@pytest.mark.parametrize("batch_rows", [64, 100, 4096])
def test_batches_of_usual_sizes_begin_where_tensorflow_need_not_copy(batch_rows):
    random = np.random.default_rng(0)
    order = np.arange(3 * batch_rows).reshape(3, batch_rows)
    window = FilledWindow(list(order), decoded(0, random), WIDTHS, COMPACT)
    fill(window, decoded(3 * batch_rows, random), 0, 3 * batch_rows)
    for index in range(3):
        for name, values in window.batch(index).items():
            assert values.ctypes.data % 64 == 0, name
