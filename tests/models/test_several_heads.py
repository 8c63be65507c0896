"""A block before the outputs of several targets: a click, a purchase and a rating."""

from __future__ import annotations

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.models import DINBlock, OptionError, SIMBlock, build_model

SIM = {
    "embedding_dim": 4,
    "stage_two_mlp_dims": (8,),
    "long_seq_length": 7,
    "top_k": 3,
    "stage_one_mlp_dims": (8,),
    "aux_mlp_dims": (8, 4),
}
TARGETS = {
    "bought": [Tags.TARGET, Tags.BINARY_CLASSIFICATION],
    "rating": [Tags.TARGET, Tags.REGRESSION, Tags.CONTINUOUS],
}
HEADS = ["label/binary_output", "bought/binary_output", "rating/regression_output"]


@pytest.fixture
def schema(make_schema):
    others = [
        ColumnSchema(n, dtype="float32" if n == "rating" else "int64", tags=tags)
        for n, tags in TARGETS.items()
    ]
    return Schema([*make_schema(), *others])


@pytest.fixture
def batch(make_schema, make_columns, as_batch):
    columns, labels = as_batch(make_columns(make_schema(), 24), 10, ragged=True)
    rng = np.random.default_rng(0)
    bought = tf.constant(rng.integers(0, 2, 24))
    return columns, {
        "label": labels,
        "bought": bought,
        "rating": tf.constant(rng.normal(size=24).astype(np.float32)),
    }


def write(path, schema, make_columns, make_schema):
    columns = make_columns(make_schema(), 60)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(columns)
    frame["bought"], frame["rating"] = rng.integers(0, 2, 60), rng.normal(size=60)
    frame["rating"] = frame["rating"].astype("float32")
    frame.to_parquet(path)
    return lambda: mm.Loader(
        merlin.io.Dataset(str(path), engine="parquet", schema=schema), batch_size=20, shuffle=False
    )


@pytest.mark.slow
def test_three_heads_train_evaluate_predict_save_and_load(
    schema, make_columns, make_schema, tmp_path
):
    loader = write(tmp_path / "rows.parquet", schema, make_columns, make_schema)
    block = DINBlock.from_schema(schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model = mm.Model(block.connect(mm.MLPBlock([4])), mm.OutputBlock(schema))
    model.compile("adam")
    history = model.fit(loader(), epochs=4, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert all(f"{name}_loss" in history for name in HEADS)
    tested = model.evaluate(loader(), verbose=0, return_dict=True)
    assert {f"{HEADS[1]}/auc", f"{HEADS[2]}/root_mean_squared_error"} <= set(tested)
    predicted = model.predict(loader())
    assert set(predicted) == set(HEADS)
    assert all(part.shape == (60, 1) for part in predicted.values())
    model.save(str(tmp_path / "saved"))
    loaded = mm.Model.load(str(tmp_path / "saved"))
    for name, part in loaded.predict(loader()).items():
        np.testing.assert_allclose(part, predicted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_label_has_the_published_objective_and_the_others_their_own(weighted, schema, batch):
    """Half of the click's cross-entropy beside the first stage's; of the others all of it."""
    columns, targets = batch
    weight = tf.linspace(0.0, 2.0, 24) if weighted else None
    model = mm.Model(SIMBlock.from_schema(schema, **SIM), mm.OutputBlock(schema))
    alone = build_model("sim", schema, **SIM)
    model(columns)
    block, outputs = model.blocks
    alone.body.set_weights(block.get_weights())
    alone.output_block.set_weights(outputs[HEADS[0]].get_weights())
    published, _ = alone.compute_step(columns, targets["label"], weight)
    model.compile("adam", run_eagerly=True)
    tested = model.test_step((columns, targets, weight))
    predicted = model(columns)
    factors = np.ones(24) if weight is None else weight.numpy()
    bought, rating = (predicted[name].numpy()[:, 0] for name in HEADS[1:])
    truth = targets["bought"].numpy()
    others = -np.log(np.where(truth == 1, bought, 1.0 - bought))
    others = others + (rating - targets["rating"].numpy()) ** 2
    expected = float(published.total_loss) + np.mean(factors * others)
    np.testing.assert_allclose(tested["loss_batch"], expected, rtol=1e-4)


def test_the_label_of_the_blocks_own_losses_may_be_chosen(schema):
    assert SIMBlock.from_schema(schema, **SIM).channels.label == "label"
    block = SIMBlock.from_schema(schema, label="bought", **SIM)
    assert block.channels.label == "bought"
    assert SIMBlock.from_config(block.get_config()).channels.label == "bought"
    with pytest.raises(OptionError, match="`label` should be 'label' or 'bought' or 'rating'"):
        SIMBlock.from_schema(schema, label="clicked", **SIM)


def test_a_task_of_merlins_older_kind_is_refused(schema, batch):
    columns, targets = batch
    model = mm.Model(SIMBlock.from_schema(schema, **SIM), mm.BinaryClassificationTask("bought"))
    model.compile("adam", run_eagerly=True)
    with pytest.raises(OptionError, match=r"outputs such as mm\.BinaryOutput"):
        model.train_step((columns, targets["bought"]))
