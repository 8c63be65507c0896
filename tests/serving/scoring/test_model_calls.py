"""What is cut comes together again."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.serving.scoring.ids_request import IdsRequest, merge_requests
from merlin_sim.serving.scoring.model_calls import candidate_parts, row_parts
from merlin_sim.serving.servables.served_columns import Column, ServedColumns


def columns(is_ragged):
    def column(name):
        return Column(name, name, np.dtype("int64"), 99)

    return ServedColumns(
        (column("user"),), (column("book"),), (column("read"),), None, 3, is_ragged
    )


def rows(is_ragged):
    tensors = {"user": np.arange(5), "book": np.arange(10, 15)}
    if is_ragged:
        offsets = np.array([0, 2, 2, 5, 6, 8], np.int32)
        return tensors | {"read__values": np.arange(8), "read__offsets": offsets}
    return tensors | {"read": np.arange(15).reshape(5, 3)}


@pytest.mark.parametrize("most", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("is_ragged", [True, False])
def test_rows(is_ragged, most):
    whole = rows(is_ragged)
    parts = list(row_parts(whole, columns(is_ragged), most))
    assert [len(part["book"]) for part in parts] == [
        len(r) for r in np.split(range(5), range(most, 5, most))
    ]
    requests = [IdsRequest(part, len(part["book"]), False) for part in parts]
    merged = merge_requests(requests, columns(is_ragged))
    for name, expected in whole.items():
        np.testing.assert_array_equal(merged[name], expected)
    if is_ragged:
        assert all(part["read__offsets"][0] == 0 for part in parts)
        assert parts[0]["read__offsets"].dtype == np.int32


def test_candidates_keep_their_user():
    whole = {"user": np.array([7]), "book": np.arange(5), "read": np.ones([1, 3])}
    parts = list(candidate_parts(whole, columns(False), 2))
    assert [part["book"].tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert all(part["user"].tolist() == [7] and part["read"].shape == (1, 3) for part in parts)


def test_no_rows_are_one_empty_part():
    empty = {"user": np.zeros(0), "book": np.zeros(0), "read": np.zeros([0, 3])}
    assert [len(part["book"]) for part in row_parts(empty, columns(False), 4)] == [0]
    assert [len(part["book"]) for part in candidate_parts(empty, columns(False), 4)] == [0]
