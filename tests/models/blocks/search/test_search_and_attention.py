"""Units of one's own in SIM."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import OptionError, SIMModel, SIMOptions
from merlin_sim.models.blocks.search.attention_units import ExactSearchUnit, MultiHeadSearchUnit
from merlin_sim.models.blocks.search.search_and_attention import (
    SEARCH_UNITS,
    SearchResult,
    SearchUnit,
    register_search_unit,
)
from merlin_sim.models.options import PUBLISHED_SEARCHES

SMALL = {"embedding_dim": 4, "long_seq_length": 6, "top_k": 3}


@tf.keras.utils.register_keras_serializable(package="merlin_sim_tests")
class NewestSearch(SearchUnit):
    """Keeps the newest positions, whatever the target; scores nothing."""

    def __init__(self, count=2, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.count = count

    @classmethod
    def from_options(cls, options, **kwargs):
        return cls(options.top_k, **kwargs)

    def call(self, target, history):
        seen = tf.cast(history.mask, tf.int32)
        rank = tf.cumsum(seen, axis=-1, reverse=True)  # 1 is the newest that the candidate sees
        return SearchResult(history.mask & (rank <= self.count))

    def get_config(self):
        return {**super().get_config(), "count": self.count}


@pytest.fixture
def newest():
    register_search_unit("newest")(NewestSearch)
    yield
    del SEARCH_UNITS["newest"]


def batch_of(schema, make_columns, as_batch, rows=5):
    return as_batch(make_columns(schema, rows, lengths=[10] * rows), 10, ragged=True)


def test_the_published_units_stand_in_the_tables():
    assert set(PUBLISHED_SEARCHES) <= set(SEARCH_UNITS)


def test_a_registered_search_is_an_option_by_its_name(newest, make_schema, make_columns, as_batch):
    schema = make_schema()
    model = SIMModel.from_schema(schema, search="newest", **SMALL)
    assert isinstance(model.body.search_unit, NewestSearch) and model.body.search_unit.count == 3
    batch, label = batch_of(schema, make_columns, as_batch)
    assert np.isfinite(model.compute_step(batch, label)[0].total_loss)
    with pytest.raises(OptionError, match="`search` should be .*'newest'"):
        SIMOptions(search="oldest")


@pytest.mark.slow
@pytest.mark.parametrize("attention", [ExactSearchUnit, lambda: MultiHeadSearchUnit(2, 8)])
def test_units_are_passed_in_and_survive_the_configuration(
    attention, make_schema, make_columns, as_batch
):
    schema = make_schema()
    model = SIMModel.from_schema(
        schema, search_unit=NewestSearch(2), attention_unit=attention(), **SMALL
    )
    batch, label = batch_of(schema, make_columns, as_batch)
    copy = SIMModel.from_config(json.loads(json.dumps(model.get_config())))
    assert copy.body.search_unit.count == 2
    assert type(copy.body.attention_unit) is type(model.body.attention_unit)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(batch), model(batch))
    plain = SIMModel.from_schema(
        schema, heads=2 if attention is not ExactSearchUnit else None, **SMALL
    )
    plain.set_weights(model.get_weights())
    assert np.abs(plain(batch) - model(batch)).max() > 0, "the search is another one"
    assert np.isfinite(model.compute_step(batch, label)[0].total_loss)


@pytest.mark.slow
def test_a_unit_whose_find_is_one_for_all_scores_many_candidates(
    make_schema, make_columns, as_batch
):
    schema = make_schema()
    model = SIMModel.from_schema(schema, search_unit=NewestSearch(2), **SMALL)
    batch, _ = batch_of(schema, make_columns, as_batch, rows=1)
    one = {**batch, "item_0": tf.constant([[1, 2, 3]]), "item_1": tf.constant([[1, 2, 3]])}
    rows = [
        model.forward(
            {**batch, "item_0": one["item_0"][0, i : i + 1], "item_1": one["item_1"][0, i : i + 1]}
        )
        for i in range(3)
    ]
    expected = np.concatenate([row.logits for row in rows])
    np.testing.assert_allclose(model.forward(one).logits, expected, rtol=2e-5, atol=2e-6)


def test_what_is_no_unit_is_refused(make_schema):
    with pytest.raises(OptionError, match="`search_unit` should be a SearchUnit"):
        SIMModel.from_schema(make_schema(), search_unit=ExactSearchUnit(), **SMALL)


def test_times_that_a_unit_reads_have_to_be_there(make_schema):
    with pytest.raises(OptionError, match="history_time_intervals"):
        unit = MultiHeadSearchUnit(2, 8, time_dim=4)
        SIMModel.from_schema(make_schema(), attention_unit=unit, **SMALL)
