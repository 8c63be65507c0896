"""What a search keeps of the long history: the split, the top k, each unit, one's own units."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.models import OptionError, SIMModel, SIMOptions
from merlin_sim.models.blocks.search import top_k_mask as top_k_mask_module
from merlin_sim.models.blocks.search.attention_units import ExactSearchUnit, MultiHeadSearchUnit
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.blocks.search.search_and_attention import (
    SEARCH_UNITS,
    LongHistory,
    SearchResult,
    SearchUnit,
    Target,
    marks_of,
    register_search_unit,
)
from merlin_sim.models.blocks.search.search_units import (
    CollisionSearchUnit,
    GeneralSearchUnit,
    HardSearchUnit,
    HashSearchUnit,
    RandomProjection,
)
from merlin_sim.models.blocks.search.top_k_mask import top_k_mask
from merlin_sim.models.options import PUBLISHED_SEARCHES


def test_each_candidate_sees_the_positions_before_its_end_and_not_one_more():
    split, real = HistorySplit(3, 2), tf.constant([[False, *[True] * 7]])
    ids = tf.constant([[0, 1, 2, 3, 4, 5, 6, 7]])
    ends = tf.constant([[8, 6, 5, 1, 0]])
    (parts, masks) = split(ids, ends), split.masks(real, ends)
    assert parts.long.numpy().tolist() == [[0, 1, 2, 3, 4, 5]]
    seen = [ids[0].numpy()[:6][mask].tolist() for mask in masks.long[0].numpy()]
    assert seen == [[3, 4, 5], [1, 2, 3], [1, 2], [], []]
    assert parts.short.numpy().tolist() == [[[6, 7], [4, 5], [3, 4], [0, 0], [0, 0]]]
    assert masks.short.numpy().tolist() == [[[True] * 2] * 3 + [[False] * 2] * 2]


def test_without_ends_the_last_positions_are_the_short_history(arrays):
    long, short = HistorySplit(2, 1)(tf.constant([[1, 2, 3]]))
    assert long.numpy().tolist() == [[1, 2]] and short.numpy().ravel().tolist() == [3]
    split, real = HistorySplit(4, 2), arrays.mask(5, 6)
    for ours, theirs in zip(split.masks(real, tf.fill([5, 3], 6)), split.masks(real), strict=True):
        np.testing.assert_array_equal(ours, tf.repeat(theirs, 3, axis=1))


def expected_mask(weights, top_k):
    best = tf.math.top_k(weights, min(top_k, weights.shape[1]))
    expected = np.zeros(weights.shape, bool)
    np.put_along_axis(expected, best.indices.numpy(), best.values.numpy() > 0, axis=1)
    return expected


@settings(max_examples=60)
@given(
    weights=hnp.arrays(np.float32, (3, 9), elements=st.sampled_from([0.0, 0.125, 0.25, 0.5])),
    top_k=st.integers(1, 12),
)
def test_the_choice_is_that_of_top_k_ties_included(weights, top_k):
    found = top_k_mask(tf.constant(weights), top_k)
    np.testing.assert_array_equal(found, expected_mask(weights, top_k))


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "XLA"])
@pytest.mark.parametrize("most_ranked", [None, 512, 8], ids=["CPU", "GPU", "GPU, many positions"])
def test_the_choice_is_the_same_on_every_device(most_ranked, compiled, monkeypatch):
    monkeypatch.setattr(top_k_mask_module, "MOST_RANKED", most_ranked)
    mark = tf.function(lambda given: top_k_mask(given, 3), jit_compile=compiled, autograph=False)
    for levels in (2, 4, 10_000):  # few levels: many ties, at zero too
        chance = np.random.default_rng(levels)
        weights = chance.integers(0, levels, (50, 9)).astype(np.float32) / levels
        with gpu_forms(most_ranked is not None):
            found = mark(tf.constant(weights))
        np.testing.assert_array_equal(found, expected_mask(weights, 3))
    assert top_k_mask(tf.zeros([0, 9]), 3).shape == (0, 9)


@pytest.mark.parametrize("make", [GeneralSearchUnit, lambda top_k: HashSearchUnit(16, top_k)])
def test_neither_padding_nor_what_comes_later_is_kept_however_near(make, arrays):
    """Also where the history is shorter than the number of positions that are kept."""
    masks = arrays.masks(5, 3, 6)
    seen_by_all = tf.reduce_all(masks, axis=1)[:, :, tf.newaxis]
    vectors = tf.where(seen_by_all, -tf.ones([5, 6, 4]), tf.ones([5, 6, 4]))
    history = LongHistory(vectors, masks, {})
    for top_k in (1, 4, 6, 50):
        found = make(top_k)(Target(tf.ones([5, 3, 4]), {}), history)
        assert not (found.selected & ~masks).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=-1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(masks.numpy(), axis=-1)))


def test_hard_search_keeps_the_newest_of_the_targets_category():
    categories = tf.constant([[3, 3, 1, 3, 2, 3], [0, 0, 1, 2, 2, 1], [0, 0, 0, 0, 0, 0]])
    # 4 is nowhere; 0 pads and must not match padding
    target = Target(tf.ones([3, 1, 1]), {"category": tf.constant([[3], [4], [0]])})
    mask = (categories > 0)[:, tf.newaxis]
    history = LongHistory(tf.ones([3, 6, 1]), mask, {"category": categories})
    found = HardSearchUnit("category", 2)(target, history)
    expected = [[False, False, False, True, False, True], [False] * 6, [False] * 6]
    np.testing.assert_array_equal(found.selected[:, 0], expected)
    assert found.weights is None, "it scored nothing"
    # The newest are those that the candidate sees.
    ends = tf.constant([[[6], [5], [3]]])
    target = Target(tf.ones([1, 3, 1]), {"category": tf.constant([[3, 3, 1]])})
    of_one = {"category": categories[:1]}
    history = LongHistory(tf.ones([1, 6, 1]), tf.range(6) < ends, of_one)
    found = HardSearchUnit("category", 2)(target, history).selected.numpy()
    assert [np.flatnonzero(kept).tolist() for kept in found[0]] == [[3, 5], [1, 3], [2]]


@pytest.mark.parametrize("top_k", [1, 3, 50])
def test_the_nearest_codes_are_kept_and_the_newer_of_equal_ones(arrays, top_k):
    target, history = arrays.target_and_history(5)
    unit = HashSearchUnit(bits=5, top_k=top_k)
    selected = unit(target, history).selected.numpy()
    projection, mask = unit.projection.projection.numpy(), history.mask.numpy()
    of_target = target.vector.numpy() @ projection >= 0
    of_history = history.vectors.numpy() @ projection >= 0
    for user, index in np.ndindex(5, 3):
        distance = (of_target[user, index] != of_history[user]).sum(axis=1)
        seen = np.flatnonzero(mask[user, index])
        nearest = sorted(seen, key=lambda t: (distance[t], -t))[:top_k]  # noqa: B023
        assert np.flatnonzero(selected[user, index]).tolist() == sorted(nearest)


def test_of_equal_codes_the_newest_are_kept_however_many_bits_and_positions():
    """Bits x positions is beyond the whole numbers that float32 can tell apart."""
    bits, length = 4096, 5000
    vectors = tf.ones([1, length, 4])
    mask = tf.constant([[[True] * (length - 1) + [False]]])
    found = HashSearchUnit(bits, 3)(Target(tf.ones([1, 1, 4]), {}), LongHistory(vectors, mask, {}))
    assert np.flatnonzero(found.selected).tolist() == [length - 4, length - 3, length - 2]


def test_signs_of_a_known_projection_that_is_never_trained():
    projection = RandomProjection(2)
    projection.build(tf.TensorShape([None, 2]))
    projection.projection.assign([[1.0, -1.0], [1.0, 1.0]])
    for training in (True, False):
        codes = projection(tf.constant([[2.0, 1.0], [-2.0, 1.0], [0.0, 0.0]]), training=training)
        np.testing.assert_array_equal(codes, [[1, -1], [-1, 1], [1, 1]])
    assert not projection.trainable_variables and len(projection.non_trainable_variables) == 1


def test_codes_agree_as_often_as_the_angle_says():
    tf.keras.utils.set_random_seed(4)
    codes = RandomProjection(20_000)(tf.constant([[1.0, 0.0], [5.0, 5.0]])).numpy()
    np.testing.assert_allclose(np.mean(codes[0] == codes[1]), 0.75, atol=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HistorySplit(-1, 1), "`long_length.* = -1"),
        (lambda: HistorySplit(1, -1), "`short.* = -1"),
        (
            lambda: GeneralSearchUnit(0),
            "`top_k` should be a positive integer. Received: `top_k` = 0.",
        ),
        (lambda: HardSearchUnit(5), "`category_feature` should name a column"),
        (lambda: HashSearchUnit(bits=0), "`bits` should be a positive integer"),
        (lambda: CollisionSearchUnit(hashes=0), "`hashes`"),
        (lambda: CollisionSearchUnit(bits_per_hash=25), "`bits_per_hash`"),
    ],
)
def test_refused_options(make, message):
    with pytest.raises(OptionError, match=message):
        make()


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


def test_a_registered_search_is_an_option_by_its_name(newest, make_schema):
    model = SIMModel.from_schema(make_schema(), search="newest", **SMALL)
    assert isinstance(model.body.search_unit, NewestSearch) and model.body.search_unit.count == 3
    assert set(PUBLISHED_SEARCHES) <= set(SEARCH_UNITS)
    with pytest.raises(OptionError, match="`search` should be .*'newest'"):
        SIMOptions(search="oldest")


@pytest.mark.slow
def test_units_are_passed_in_and_survive_the_configuration(make_schema, make_columns, as_batch):
    schema = make_schema()
    columns, label = as_batch(make_columns(schema, 5, lengths=[10] * 5), 10, ragged=True)
    model = SIMModel.from_schema(
        schema, search_unit=NewestSearch(2), attention_unit=MultiHeadSearchUnit(2, 8), **SMALL
    )
    copy = SIMModel.from_config(json.loads(json.dumps(model.get_config())))
    assert copy.body.search_unit.count == 2
    assert type(copy.body.attention_unit) is MultiHeadSearchUnit
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(columns), model(columns))
    plain = SIMModel.from_schema(schema, heads=2, **SMALL)
    plain.set_weights(model.get_weights())
    assert np.abs(plain(columns) - model(columns)).max() > 0, "the search is another one"
    assert np.isfinite(model.compute_step(columns, label)[0].total_loss)


@pytest.mark.slow
def test_a_unit_whose_find_is_one_for_all_scores_many_candidates(
    make_schema, make_columns, as_batch
):
    schema = make_schema(ragged=False)
    model = SIMModel.from_schema(schema, search_unit=NewestSearch(2), **SMALL)
    user, _ = as_batch(make_columns(schema, 1, lengths=[10]), 10, ragged=False)
    targets = tf.constant([[1, 2, 3]], tf.int64)
    rows = {name: tf.repeat(column, 3, axis=0) for name, column in user.items()}
    expected = model.forward({**rows, "item_0": targets[0], "item_1": targets[0]}).logits
    scores = model.forward({**user, "item_0": targets, "item_1": targets}).logits
    np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-6)


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
