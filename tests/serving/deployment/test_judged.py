"""Rows of another day as a model would be served them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.deployment.judged import Judged, as_served
from merlin_sim.serving.servable import Column, ServedColumns


def column(name: str, largest: int | None, dtype: str = "int64") -> Column:
    return Column(name, name, np.dtype(dtype), largest)


COLUMNS = ServedColumns(
    users=(column("who", 3),),
    targets=(column("item", 9), column("kind", 4)),
    histories=(column("seen", 9), column("kinds_seen", 4)),
    intervals=column("ages", None, "float32"),
    longest=3,
    is_ragged=False,
    target_numbers=(column("price", None, "float32"),),
)


def batch(seen, kinds_seen, ages):
    rows = len(seen)
    return {
        "who": np.array([3, 4][:rows]),
        "item": np.array([10, 9][:rows]),
        "kind": np.array([4, 5][:rows]),
        "seen": np.array(seen),
        "kinds_seen": np.array(kinds_seen),
        "ages": np.array(ages, np.float32),
        "price": np.array([99.0, 100.0][:rows], np.float32),
    }


def test_ids_without_a_vector_are_unknown_and_leave_histories():
    given = batch(
        [[0, 1, 12, 2], [7, 8, 9, 9]], [[0, 1, 2, 3], [4, 5, 1, 2]], [[0, 5, 6, 7], [1, 2, 3, 4]]
    )
    found = as_served(given, COLUMNS)
    assert found["who"].tolist() == [3, 0]
    assert found["item"].tolist() == [0, 9]
    assert found["kind"].tolist() == [4, 0]
    assert found["price"].tolist() == [99.0, 100.0]
    assert found["seen"].tolist() == [[0, 1, 2], [8, 9, 9]]
    assert found["kinds_seen"].tolist() == [[0, 1, 3], [0, 1, 2]]
    assert found["ages"].tolist() == [[0, 5, 7], [2, 3, 4]]


def test_a_shorter_dataset_is_padded():
    found = as_served(batch([[5, 6]], [[1, 2]], [[3, 4]]), COLUMNS)
    assert found["seen"].tolist() == [[0, 5, 6]]
    assert found["ages"].tolist() == [[0, 3, 4]]


def test_what_the_model_knows_stays_as_it_is():
    given = batch([[0, 1, 2]], [[0, 1, 2]], [[0, 1, 2]])
    given["item"] = np.array([9])
    for name, values in as_served(given, COLUMNS).items():
        assert np.array_equal(values, given[name])


@pytest.mark.parametrize("score", [np.nan, np.inf, -0.1, 1.5])
def test_scores_that_are_no_probabilities_judge_nothing(score):
    """Of NaN neither AUC nor log loss says anything, which is no reason to pass."""
    scores = np.float32([0.5, score])
    judged = Judged(Path("model"), COLUMNS, None, {}, lambda columns: scores)
    with pytest.raises(MerlinSimError, match="model: expected click probabilities. Received: "):
        judged.score(batch([[1], [2]], [[1], [2]], [[1], [2]]))
    scores = np.float32([0.0, 1.0])
    assert judged.score(batch([[1], [2]], [[1], [2]], [[1], [2]])) is scores
