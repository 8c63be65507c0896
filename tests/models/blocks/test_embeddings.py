"""Tables of embeddings: one for each domain, sparse gradients, and time intervals."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.models import DINBlock, DLRMBlock
from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.embeddings.feature_embedding import (
    FeatureEmbedding,
    TimeIntervalEmbedding,
)
from merlin_sim.models.blocks.embeddings.table_lookup import table_lookup
from merlin_sim.models.towers import TwoTowerBlock

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
