"""Tables of embeddings, whole or by a plan, and the padding of the ids that they are given."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import DINBlock, DLRMBlock, build_model
from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.embeddings import sharded_tables as initial_table
from merlin_sim.models.blocks.embeddings.feature_embedding import (
    FeatureEmbedding,
    TimeIntervalEmbedding,
)
from merlin_sim.models.blocks.embeddings.left_padding import LeftPadding
from merlin_sim.models.blocks.embeddings.sharded_tables import (
    InitialTable,
    sharded_tables,
    table_parts,
)
from merlin_sim.models.blocks.embeddings.table_lookup import table_lookup
from merlin_sim.models.known_families import find_family
from merlin_sim.models.towers import TwoTowerBlock
from merlin_sim.parallel.placement.plan import PlanOptions, Shard, Table
from merlin_sim.parallel.placement.planner import make_plan

IDS = [[1, 2], [[1, 3], [3, 3]], [0]]


@pytest.fixture
def schema(make_schema):
    schema = make_schema(users=(9,), items=(20, 6), history_length=4)
    return schema.excluding_by_name(["label"])


def test_a_domain_has_one_table_with_a_row_for_every_id(schema):
    embedding = FeatureEmbedding(schema, dim=200)
    embedding.build(None)
    shapes = {weight.shape[0] for weight in embedding.trainable_variables}
    assert shapes == {10, 21, 7} and len(embedding.trainable_variables) == 3
    for table in embedding.trainable_variables:  # uniform within the published limit
        limit = table.shape[0] ** -0.5
        largest = np.abs(table.numpy()).max()
        assert 0.95 * limit < largest <= limit
    vectors = embedding({name: tf.constant([5]) for name in schema.column_names})
    np.testing.assert_array_equal(vectors["item_0"], vectors["item_0_hist"])
    np.testing.assert_array_equal(vectors["item_0"], vectors["item_0_neg_hist"])
    assert not np.allclose(vectors["item_0"], vectors["item_1"])


def test_columns_without_a_domain_or_of_domains_that_disagree_are_named(make_schema):
    small, large = make_schema(items=(6,)), make_schema(items=(7,))
    bare = small["item_0"].with_properties({"domain": {}})
    with pytest.raises(OptionError, match="'item_0' cannot be embedded"):
        FeatureEmbedding(Schema([bare]))
    with pytest.raises(OptionError, match=r"'item_0' share one table.*7, 'item_0_hist': 8"):
        FeatureEmbedding(Schema([small["item_0"], large["item_0_hist"]]))


@pytest.mark.parametrize("block", [DINBlock, TwoTowerBlock, DLRMBlock])
def test_a_table_with_more_rows_than_32_bits_count_is_refused(block):
    largest = 2**31 - 1
    tags = {"item": "target_item_features", "clicked": "positive_history"}
    if block is DLRMBlock:
        tags = {"item": Tags.CATEGORICAL}
    columns = [ColumnSchema("label", dtype="int64", tags=[Tags.BINARY_CLASSIFICATION, Tags.TARGET])]
    for name, tag in tags.items():
        dims = {} if name == "item" else {"dims": (None, (0, 5))}
        properties = {"domain": {"min": 0, "max": largest, "name": "item"}}
        columns.append(ColumnSchema(name, dtype="int64", tags=[tag], properties=properties, **dims))
    with pytest.raises(OptionError) as error:
        block.from_schema(Schema(columns))
    said = str(error.value)
    assert "'item'" in said and "2,147,483,648" in said and "at most 2,147,483,647" in said


def gradient_of(lookup, table):
    with tf.GradientTape() as tape:
        first, second, third = lookup(table, [tf.constant(part) for part in IDS])
        loss = tf.reduce_sum(first**2) + tf.reduce_sum(second**3) + tf.reduce_sum(third)
    return tape.gradient(loss, table)


@pytest.mark.parametrize("compiled", [None, False, True], ids=["eager", "graph", "XLA"])
def test_the_gradient_of_a_lookup_is_that_of_plain_gathers(compiled):
    table = tf.Variable(np.random.default_rng(0).normal(size=[6, 3]).astype(np.float32))
    step = (
        gradient_of
        if compiled is None
        else tf.function(gradient_of, jit_compile=compiled, autograph=False)
    )
    ours = step(table_lookup, table)
    theirs = gradient_of(lambda table, ids: [tf.gather(table, part) for part in ids], table)
    assert isinstance(ours, tf.IndexedSlices)
    np.testing.assert_allclose(tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs), rtol=1e-6)
    rows = ours.indices.numpy()
    assert len(rows) == len(set(rows.tolist()))


@pytest.mark.parametrize("with_gradient", [True, False])
def test_the_table_is_never_read_whole(with_gradient):
    lookup = functools.partial(table_lookup, with_gradient=with_gradient)
    table = tf.Variable(np.ones([6, 3], np.float32))
    step = tf.function(gradient_of, autograph=False).get_concrete_function(lookup, table)
    assert "ReadVariableOp" not in {operation.type for operation in step.graph.get_operations()}
    np.testing.assert_array_equal(lookup(table, [tf.constant([[1, 2]])])[0], np.ones([1, 2, 3]))


def test_rows_of_time_intervals_are_powers_of_two():
    embedding = TimeIntervalEmbedding(1, buckets=40)
    rows = embedding.bucket(tf.constant(2.0 ** np.arange(31) - 1, tf.float32))
    np.testing.assert_array_equal(rows, np.arange(31))
    impossible = TimeIntervalEmbedding(1).bucket(tf.constant([-1.0, np.nan, -np.inf, np.inf]))
    assert impossible.numpy().tolist() == [0, 0, 0, 31]


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


def draw(shard: Shard) -> np.ndarray:
    tf.keras.utils.set_random_seed(4)
    return InitialTable(0.5, shard, rows=20, width=6)([shard.rows, shard.columns]).numpy()


def test_parts_begin_as_the_whole_does(monkeypatch):
    monkeypatch.setattr(initial_table, "BLOCK_ROWS", 7)
    whole = draw(Shard("item", 0, 0, 20, 0, 6))
    assert len(np.unique(whole)) > 110 and 0.4 < np.abs(whole).max() <= 0.5
    for first, rows in ((0, 7), (3, 9), (13, 7), (14, 0)):
        part = draw(Shard("item", 0, first, rows, 0, 6))
        np.testing.assert_array_equal(part, whole[first : first + rows])
    np.testing.assert_array_equal(draw(Shard("item", 0, 0, 20, 2, 3)), whole[:, 2:5])


def test_what_knows_of_no_other_ranks_is_refused(make_schema, tmp_path):
    schema = make_schema(users=(30,), items=(60, 8))
    family = find_family("din")
    tables = family.tables(schema, family.options.parse({"embedding_dim": 4}))
    plan = make_plan(tables, PlanOptions(ranks=1, samples=8, cut="whole"))
    with sharded_tables(plan, Ranks()):
        model = build_model("din", schema, embedding_dim=4)
    assert table_parts(model)
    model.compile("adam")
    for method, argument in (
        ("save", tmp_path / "model"),
        ("save_weights", tmp_path / "weights"),
    ):
        with pytest.raises(MerlinSimError, match=f"`{method}` should be called on a model with"):
            getattr(model, method)(argument)
    assert list(tmp_path.iterdir()) == []
    plan = make_plan([Table("user_0", 5, 4)], PlanOptions(1, 8, cut="whole"))
    with sharded_tables(plan, Ranks()), pytest.raises(MerlinSimError, match="the plan should have"):
        build_model("din", schema, embedding_dim=4)
