from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.models import DINBlock, DLRMBlock
from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.embeddings.feature_embedding import FeatureEmbedding
from merlin_sim.models.towers import TwoTowerBlock


@pytest.fixture
def schema(make_schema):
    schema = make_schema(users=(9,), items=(20, 6), history_length=4)
    return schema.excluding_by_name(["label"])


@pytest.mark.slow
def test_contract(contract_step, arrays, schema):
    def inputs(batch):
        ids = {"user_0": arrays.ids(9, batch), "item_0": arrays.ids(20, batch)}
        ids["item_1"] = arrays.ids(6, batch)
        ids["item_0_hist"] = (arrays.ids(20, batch, 3), arrays.ids(20, batch, 1))
        return (ids,)

    contract_step(lambda: FeatureEmbedding(schema, dim=3), inputs)


def test_a_domain_has_one_table_with_a_row_for_every_id(schema):
    embedding = FeatureEmbedding(schema, dim=3)
    embedding.build(None)
    shapes = {weight.shape[0] for weight in embedding.trainable_variables}
    assert shapes == {10, 21, 7} and len(embedding.trainable_variables) == 3
    vectors = embedding({name: tf.constant([5]) for name in schema.column_names})
    np.testing.assert_array_equal(vectors["item_0"], vectors["item_0_hist"])
    np.testing.assert_array_equal(vectors["item_0"], vectors["item_0_neg_hist"])
    assert not np.allclose(vectors["item_0"], vectors["item_1"])


def test_tables_start_uniform_within_the_published_limit(schema):
    embedding = FeatureEmbedding(schema, dim=200)
    embedding.build(None)
    for table in embedding.trainable_variables:
        limit = table.shape[0] ** -0.5
        largest = np.abs(table.numpy()).max()
        assert 0.95 * limit < largest <= limit


def test_the_gradient_is_sparse_and_names_each_row_once(schema):
    embedding = FeatureEmbedding(schema, dim=3)
    ids = {
        "item_0": tf.constant([5, 5]),
        "item_0_hist": (tf.constant([[5, 6]]), tf.constant([[7]])),
    }
    with tf.GradientTape() as tape:
        vectors = embedding(ids)
        loss = tf.add_n([tf.reduce_sum(part) for part in tf.nest.flatten(vectors)])
    table = embedding.tables["item_0"].table.embeddings
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    found = dict(zip(gradient.indices.numpy().tolist(), gradient.values.numpy()[:, 0], strict=True))
    assert found == {5: 3.0, 6: 1.0, 7: 1.0}


def test_a_frozen_table_has_no_gradient_and_the_others_have(schema):
    embedding = FeatureEmbedding(schema, dim=3)
    embedding.build(None)
    embedding.tables["item_0"].trainable = False
    with tf.GradientTape() as tape:
        vectors = embedding({"item_0": tf.constant([5]), "user_0": tf.constant([5])})
        loss = tf.reduce_sum(vectors["item_0"]) + tf.reduce_sum(vectors["user_0"])
    gradients = tape.gradient(loss, embedding.trainable_variables)
    assert len(gradients) == 2 and sum(gradient is not None for gradient in gradients) == 1


def test_a_column_without_a_domain_is_named(schema):
    bare = schema["item_0"].with_properties({"domain": {}})
    with pytest.raises(OptionError, match="'item_0' cannot be embedded"):
        FeatureEmbedding(schema.__class__([bare]))


def test_columns_of_a_domain_that_disagree_are_named(make_schema):
    small, large = make_schema(items=(6,)), make_schema(items=(7,))
    columns = [small["item_0"], large["item_0_hist"]]
    with pytest.raises(OptionError, match=r"'item_0' share one table.*7, 'item_0_hist': 8"):
        FeatureEmbedding(small.__class__(columns))


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
