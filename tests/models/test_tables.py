"""Embedding tables that are handed to a block: shared, pretrained, regularised."""

from __future__ import annotations

import json

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from ranking_rows import ranking_schema

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import DINBlock, OptionError, SIMBlock, build_model
from merlin_sim.models.blocks.embeddings.feature_embedding import FeatureEmbedding
from merlin_sim.parallel.ranks import collectives

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8,)}
SIM = {
    **SMALL,
    "long_seq_length": 7,
    "top_k": 3,
    "stage_one_mlp_dims": (8,),
    "aux_mlp_dims": (8, 4),
}
DLRM = {"embedding_dim": 4, "bottom_mlp_dims": (4,)}
ITEM_ROWS = 21


def table_of(schema, column="item_0", dim=4, **options):
    return mm.EmbeddingTable(dim, schema[column], **options)


@pytest.fixture
def batch(make_schema, make_columns, as_batch):
    return as_batch(make_columns(make_schema(), 12), 10, ragged=True)


@pytest.mark.parametrize("name", ["item_0", "item_0_hist"])
def test_a_table_is_taken_by_the_name_of_its_domain_or_of_a_column(name, make_schema):
    schema = make_schema()
    table = table_of(schema)
    model = build_model("sim", schema, tables={name: table}, **SIM)
    assert model.body.embedding.tables["item_0"] is table
    widths = sorted(t.input_dim for t in model.body.embedding.tables.values())
    assert widths == [7, 10, ITEM_ROWS]  # the others are made


@pytest.mark.parametrize("kind", ["sim", "two_tower"])
def test_a_pretrained_table_may_be_frozen_and_of_its_own_width(kind, make_schema, batch):
    schema, (columns, labels) = make_schema(), batch
    vectors = np.random.default_rng(0).normal(size=(ITEM_ROWS, 6)).astype(np.float32)
    table = mm.EmbeddingTable.from_pretrained(
        pd.DataFrame(vectors), trainable=False, name="item_0", col_schema=schema["item_0"]
    )
    options = {"sim": SIM, "two_tower": {"embedding_dim": 4}}[kind]
    model = build_model(kind, schema, tables={"item_0": table}, **options)
    model.compile("adam")
    plain = (
        {n: c for n, c in columns.items() if "_neg" not in n} if kind == "two_tower" else columns
    )
    before = model.body.embedding.tables["item_1"].table.embeddings.numpy()
    model.train_step((plain, labels))
    np.testing.assert_array_equal(table.table.embeddings, vectors)
    assert not np.allclose(model.body.embedding.tables["item_1"].table.embeddings, before)
    assert all(v is not table.table.embeddings for v in model.trainable_variables)


def test_two_blocks_share_a_table_that_both_are_given(make_schema, batch):
    schema, (columns, labels) = make_schema(negatives=False), batch
    columns = {name: c for name, c in columns.items() if "_neg" not in name}
    tables = {"item_0": table_of(schema)}
    blocks = {
        name: DINBlock.from_schema(schema, tables=tables, attention=name, **SMALL)
        for name in ("dot", "activation_unit")
    }
    both = mm.ParallelBlock(blocks, aggregation="concat")
    model = mm.Model(both, mm.BinaryOutput("label"))
    model.compile("adam", run_eagerly=True)
    model.train_step((columns, {"label": labels}))
    heights = [v.shape[0] for v in model.trainable_variables if v.shape[-1] == 4]
    assert heights.count(ITEM_ROWS) == 1 and heights.count(7) == 2


@pytest.mark.parametrize("make", [mm.InputBlockV2, mm.Embeddings])
def test_the_tables_of_a_merlin_block_are_taken(make, make_schema, batch):
    schema, (columns, _) = make_schema(), batch
    embeddings = mm.Embeddings(schema.excluding_by_name(["label"]), dim=4, sequence_combiner=None)
    given = embeddings if make is mm.Embeddings else make(schema, categorical=embeddings)
    block = SIMBlock.from_schema(schema, tables=given, **SIM)
    assert block.embedding.tables["item_1"] in list(embeddings.layers)
    assert mm.Model(block, mm.BinaryOutput("label"))(columns).shape == (12, 1)


@pytest.mark.parametrize("kept", ["embeddings_regularizer", "l2_batch_regularization_factor"])
def test_what_regularises_a_table_of_all_rows_or_the_batchs_counts(kept, make_schema, batch):
    schema, (columns, labels) = make_schema(), batch
    is_whole = kept == "embeddings_regularizer"
    more = {kept: tf.keras.regularizers.L2(0.1) if is_whole else 0.1}
    model, block = (
        make(tables={"user_0": table_of(schema, "user_0", **more)})
        for make in (
            lambda **given: build_model("sim", schema, **given, **SIM),
            lambda **given: SIMBlock.from_schema(schema, **given, **SIM),
        )
    )
    chain = mm.Model(block, mm.BinaryOutput("label"))
    chain(columns)
    chain.set_weights(model.get_weights())
    rows = model.body.embedding.tables["user_0"].table.embeddings.numpy()
    read = rows if is_whole else rows[columns["user_0"].numpy()]
    losses, _ = model.compute_step(columns, labels)
    parts = losses.classification_loss + losses.dien_aux_loss
    np.testing.assert_allclose(losses.total_loss - parts, 0.1 * np.sum(read**2), rtol=1e-4)
    chain.compile("adam", run_eagerly=True)
    tested = chain.test_step((columns, {"label": labels}))
    np.testing.assert_allclose(tested["loss_batch"], losses.total_loss, rtol=1e-5)


def test_rows_of_several_ranks_regularise_a_table_as_those_of_one(make_schema, monkeypatch):
    schema = make_schema().select_by_name(["user_0"])
    table = table_of(schema, "user_0", l2_batch_regularization_factor=0.1)
    embedding = FeatureEmbedding(schema, 4, {"user_0": table})

    def regularised(*ids):
        embedding({"user_0": tf.constant(ids)})
        return sum(embedding.losses)

    alone = regularised(1, 2, 3, 3)
    monkeypatch.setattr(collectives, "joined", lambda: Ranks(0, 2))
    mean = (regularised(1, 2) + regularised(3, 3)) / 2  # as losses are averaged over ranks
    np.testing.assert_allclose(mean, alone, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["din", "dlrm"])
def test_a_model_with_tables_is_made_again_and_loaded(
    kind, make_schema, make_columns, as_batch, tmp_path
):
    schema = ranking_schema() if kind == "dlrm" else make_schema()
    column, options = ("category_1", DLRM) if kind == "dlrm" else ("item_0", SMALL)
    dim = 4 if kind == "dlrm" else 6
    table = table_of(schema, column, dim, embeddings_regularizer="l2")
    model = build_model(kind, schema, tables={column: table}, **options)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert [v.shape for v in copy.variables] == [v.shape for v in model.variables]
    assert len(copy.body.regularization()) == len(model.body.regularization()) == 1
    if kind == "din":
        columns, _ = as_batch(make_columns(schema, 12), 10, ragged=True)
        model.save(tmp_path / "saved")
        loaded = type(model).load(tmp_path / "saved")
        np.testing.assert_allclose(loaded(columns), model(columns), rtol=1e-6)


class OtherTable(mm.EmbeddingTable):
    def call(self, inputs, **kwargs):
        return 2.0 * super().call(inputs, **kwargs)


REFUSED = [
    (lambda s: {"item_9": table_of(s)}, r"name domains or columns.*Received: \['item_9'\]"),
    (lambda s: {"item_0": table_of(s, "item_1")}, "'item_0' should be one with 21 rows.*7 rows"),
    (lambda s: {"item_0": tf.keras.layers.Embedding(21, 4)}, "should be an mm.EmbeddingTable"),
    (lambda s: {"item_0": OtherTable(4, s["item_0"])}, "should be an mm.EmbeddingTable"),
    (lambda s: {"item_0": table_of(s, sequence_combiner="mean")}, "sequence_combiner"),
    (lambda s: mm.InputBlockV2(s), r"mm\.Embeddings\(.*, dim=16, sequence_combiner=None\)"),
    (lambda s: {"item_0": table_of(s, activity_regularizer="l2")}, "activity_regularizer"),
    (lambda s: mm.MLPBlock([4]), "a Merlin block with their tables"),
]


def test_a_table_that_would_not_be_read_as_given_is_refused(make_schema):
    schema = make_schema()
    for make, said in REFUSED:
        with pytest.raises(OptionError, match=said):
            DINBlock.from_schema(schema, tables=make(schema), **SMALL)
    of_rows = ranking_schema()
    wide = {"category_1": table_of(of_rows, "category_1", 8)}  # vectors are multiplied
    with pytest.raises(OptionError, match="'category_1' should have vectors of the length 4"):
        build_model("dlrm", of_rows, tables=wide, **DLRM)
