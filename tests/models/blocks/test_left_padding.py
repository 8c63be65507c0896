"""Histories of every form that a loader gives, padded on the left."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.embeddings.left_padding import LeftPadding


def as_loader_gives(rows):
    values = tf.constant([value for row in rows for value in row], tf.int64)
    offsets = tf.constant(np.cumsum([0] + [len(row) for row in rows]), tf.int32)
    return {"clicks__values": values, "clicks__offsets": offsets}


def pad(columns, length=3):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LeftPadding({"clicks": length})(columns)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=6))
def test_every_form_gives_the_same_newest_positions(rows):
    expected = [([0, 0, 0] + row)[-3:] for row in rows]
    padded = tf.constant([([0] * 5 + row)[-5:] for row in rows], tf.int64)
    ragged = tf.ragged.constant(rows, dtype=tf.int64, ragged_rank=1)
    forms = [as_loader_gives(rows), {"clicks": ragged}, {"clicks": padded}]
    forms += [{"clicks": padded[:, :, tf.newaxis]}, {"clicks": tf.expand_dims(ragged, -1)}]
    for columns in forms:
        np.testing.assert_array_equal(pad(columns)["clicks"], expected)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_graphs_that_do_not_know_the_width(width):
    padding = LeftPadding({"clicks": 3})
    signature = {"clicks": tf.TensorSpec([None, None], tf.int64)}
    function = tf.function(padding.call, input_signature=[signature], autograph=False)
    given = np.arange(1, width + 1)[None]
    expected = [([0, 0, 0] + given[0].tolist())[-3:]]
    padded = function({"clicks": tf.constant(given)})["clicks"]
    np.testing.assert_array_equal(padded, expected)


def test_other_columns_and_the_batch_given_are_left_alone():
    columns = {"user": tf.constant([1]), **as_loader_gives([[], []])}
    padded = pad(columns)
    assert padded["clicks"].numpy().tolist() == [[0, 0, 0]] * 2
    assert set(padded) == {"user", "clicks"} and set(pad({"user": tf.constant([1])})) == {"user"}
    assert set(columns) == {"user", "clicks__values", "clicks__offsets"}
    with pytest.raises(OptionError, match="needs both"):
        pad({"clicks__values": tf.constant([1])})


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_a_history_that_is_too_long_is_reported_once(form):
    padding = LeftPadding.from_config(LeftPadding({"clicks": 3}).get_config())
    rows = [[1, 2, 3, 4], [5]]
    columns = as_loader_gives(rows) if form == "ragged" else {"clicks": tf.constant([[1, 2, 3, 4]])}
    with pytest.warns(UserWarning, match="'clicks' has a history of 4 positions .* at most 3"):
        assert padding(columns)["clicks"].numpy()[0].tolist() == [2, 3, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        padding(columns)
        padded = LeftPadding({"clicks": 3})({"clicks": tf.constant([[0, 0, 1, 2], [0, 0, 0, 0]])})
    assert padded["clicks"].numpy().tolist() == [[0, 1, 2], [0, 0, 0]], "too long is padding alone"
