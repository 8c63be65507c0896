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
    Target,
    marks_of,
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


@pytest.fixture
def batch(make_schema, make_columns, as_batch):
    return as_batch(make_columns(make_schema(), 5, lengths=[10] * 5), 10, ragged=True)


def test_a_registered_search_is_an_option_by_its_name(newest, make_schema):
    model = SIMModel.from_schema(make_schema(), search="newest", **SMALL)
    assert isinstance(model.body.search_unit, NewestSearch) and model.body.search_unit.count == 3
    assert set(PUBLISHED_SEARCHES) <= set(SEARCH_UNITS)
    with pytest.raises(OptionError, match="`search` should be .*'newest'"):
        SIMOptions(search="oldest")


@pytest.mark.slow
@pytest.mark.parametrize("heads", [None, 2])
def test_units_are_passed_in_and_survive_the_configuration(heads, make_schema, batch):
    schema, (columns, label) = make_schema(), batch
    attention = MultiHeadSearchUnit(heads, 8) if heads else ExactSearchUnit()
    model = SIMModel.from_schema(
        schema, search_unit=NewestSearch(2), attention_unit=attention, **SMALL
    )
    copy = SIMModel.from_config(json.loads(json.dumps(model.get_config())))
    assert copy.body.search_unit.count == 2
    assert type(copy.body.attention_unit) is type(attention)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(columns), model(columns))
    plain = SIMModel.from_schema(schema, heads=heads, **SMALL)
    plain.set_weights(model.get_weights())
    assert np.abs(plain(columns) - model(columns)).max() > 0, "the search is another one"
    assert np.isfinite(model.compute_step(columns, label)[0].total_loss)


@pytest.mark.slow
def test_a_unit_whose_find_is_one_for_all_scores_many_candidates(make_schema, batch):
    model = SIMModel.from_schema(make_schema(), search_unit=NewestSearch(2), **SMALL)
    names = ("item_0", "item_1")
    rows = {name: tf.repeat(c[:1], 3, axis=0) for name, c in batch[0].items() if "__" not in name}
    user = {"user_0": rows["user_0"][:1]}
    for name, values in batch[0].items():
        if name.endswith("__values"):
            rows[name] = tf.tile(values[:10], [3])
            user[name] = values[:10]
        elif name.endswith("__offsets"):
            rows[name] = tf.range(0, 40, 10)
            user[name] = tf.constant([0, 10])
    of_rows = {**rows, **{name: tf.constant([1, 2, 3], tf.int64) for name in names}}
    of_user = {**user, **{name: tf.constant([[1, 2, 3]], tf.int64) for name in names}}
    expected = model.forward(of_rows).logits
    np.testing.assert_allclose(model.forward(of_user).logits, expected, rtol=2e-5, atol=2e-6)


def test_what_is_no_unit_is_refused_and_times_that_a_unit_reads_have_to_be_there(make_schema):
    with pytest.raises(OptionError, match="`search_unit` should be a SearchUnit"):
        SIMModel.from_schema(make_schema(), search_unit=ExactSearchUnit(), **SMALL)
    with pytest.raises(OptionError, match="history_time_intervals"):
        unit = MultiHeadSearchUnit(2, 8, time_dim=4)
        SIMModel.from_schema(make_schema(), attention_unit=unit, **SMALL)


def test_one_row_of_marks_serves_an_unknown_number_of_candidates():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 4])], autograph=False)
    def marks(vectors):
        found = SearchResult(tf.constant([[[True, False, True]]]))
        return marks_of(Target(vectors, {}), found)

    assert marks(tf.zeros([1, 2, 4])).numpy().tolist() == [[[1.0, 0.0, 1.0]] * 2]
