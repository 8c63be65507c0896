"""The blocks in plain Merlin models, before one output or those of several targets."""

from __future__ import annotations

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_sim as ms
from merlin_sim.models import DIENBlock, DINBlock, OptionError, SIMBlock, build_model
from merlin_sim.models.registry import family_of

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4)}
DIEN = {**SMALL, "long_seq_length": 7, "aux_mlp_dims": (8, 4)}
SIM = {**DIEN, "top_k": 3, "stage_one_mlp_dims": (8,)}
OPTIONS = {"din": SMALL, "dien": DIEN, "sim": SIM}
BLOCKS = {"din": DINBlock, "dien": DIENBlock, "sim": SIMBlock}
TARGETS = {
    "bought": [Tags.TARGET, Tags.BINARY_CLASSIFICATION],
    "rating": [Tags.TARGET, Tags.REGRESSION, Tags.CONTINUOUS],
}
HEADS = ["label/binary_output", "bought/binary_output", "rating/regression_output"]


def loader_of(path, schema, batch_size=20):
    table = merlin.io.Dataset(str(path), engine="parquet", schema=schema)
    return mm.Loader(table, batch_size=batch_size, shuffle=False)


def logit(probability):
    probability = np.asarray(probability, np.float64)
    return np.log(probability) - np.log1p(-probability)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loss_weights", "ragged", "in_graph"),
    [("din", 0.7, False, True), ("sim", None, True, False)],
)
def test_a_chain_on_merlins_loader_trains_like_the_model(
    kind, loss_weights, ragged, in_graph, make_dataset
):
    """One step of each: the published objective, unless the output's weight is given."""
    dataset = make_dataset(ragged=ragged)
    tf.keras.utils.set_random_seed(3)
    model = build_model(kind, dataset.schema, **OPTIONS[kind])
    for variable in model.trainable_variables:  # away from zero biases and equal slopes
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    block = BLOCKS[kind].from_schema(dataset.schema, **OPTIONS[kind])
    chain = mm.Model(block, mm.BinaryOutput("label"))
    (path,) = dataset.files("train")
    columns, labels = next(iter(loader_of(path, dataset.schema)))
    chain(columns)
    assert [w.shape for w in chain.weights] == [w.shape for w in model.weights]
    chain.set_weights(model.get_weights())
    ours = model.forward(columns).logits
    assert np.std(ours) > 0.01
    np.testing.assert_allclose(logit(chain(columns)), ours, rtol=1e-5, atol=1e-5)

    weight, sgd = tf.linspace(0.0, 3.0, 20), tf.keras.optimizers.legacy.SGD
    by_output = loss_weights and {"label/binary_output": loss_weights}
    chain.compile(sgd(0.5), loss_weights=by_output)
    model.compile(sgd(0.5), loss_weights=loss_weights)
    tested = chain.test_step((columns, labels, weight))
    train = tf.function(chain.train_step, autograph=False) if in_graph else chain.train_step
    logs = train((columns, labels, weight))
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(columns, labels, weight)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    sgd(0.5).apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    for reported in (tested, logs):
        np.testing.assert_allclose(reported["loss_batch"], losses.total_loss, rtol=1e-5)
    for ours, theirs in zip(chain.weights, model.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["dien", "sim"])
def test_without_the_auxiliary_loss_the_other_losses_are_the_same(
    kind, make_schema, make_columns, as_batch
):
    schema, bare = make_schema(), make_schema(negatives=False)
    with pytest.raises(OptionError, match=r"negative_history.*Received: none.*`auxiliary_loss`"):
        BLOCKS[kind].from_schema(bare, **OPTIONS[kind])
    batch, labels = as_batch(make_columns(schema, 12), 10, ragged=True)
    full = build_model(kind, schema, **OPTIONS[kind])
    options = {**OPTIONS[kind], "auxiliary_loss": False}
    del options["aux_mlp_dims"]
    model = build_model(kind, bare, **options)
    network = {v.ref() for v in full.body.auxiliary.variables}
    kept = [v for v in full.trainable_variables if v.ref() not in network]
    for ours, theirs in zip(model.trainable_variables, kept, strict=True):
        ours.assign(theirs)
    columns = {name: c for name, c in batch.items() if "_neg_hist" not in name}
    losses, logits = model.compute_step(columns, labels)
    expected, expected_logits = full.compute_step(batch, labels)
    assert losses.dien_aux_loss == 0.0 and expected.dien_aux_loss > 0.0
    np.testing.assert_allclose(losses.classification_loss, expected.classification_loss, rtol=1e-6)
    np.testing.assert_allclose(logits, expected_logits, rtol=1e-6)
    assert losses.total_loss == losses.classification_loss
    assert not any(column.endswith("neg_hist") for column in model.training_columns)


def test_a_block_reports_its_output_and_its_columns(schema):
    block = DINBlock.from_schema(schema, **SMALL)
    assert block.compute_output_shape(None).as_list() == [None, 4]
    assert block.schema.column_names == schema.excluding_by_name("label").column_names
    bare = DINBlock.from_schema(schema, **{**SMALL, "stage_two_mlp_dims": ()})
    assert bare.output_dim == bare.classified_dim


@pytest.fixture
def schema_of_targets(schema):
    others = [
        ColumnSchema(n, dtype="float32" if n == "rating" else "int64", tags=tags)
        for n, tags in TARGETS.items()
    ]
    return Schema([*schema, *others])


@pytest.mark.slow
def test_three_heads_train_evaluate_predict_save_and_load(
    schema, schema_of_targets, make_columns, tmp_path
):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(make_columns(schema, 60))
    frame["bought"] = rng.integers(0, 2, 60)
    frame["rating"] = rng.normal(size=60).astype("float32")
    frame.to_parquet(tmp_path / "rows.parquet")
    few = schema_of_targets.excluding_by_name(
        ["user_0", "item_1", "item_1_hist", "item_1_neg_hist"]
    )

    def loader():
        return loader_of(tmp_path / "rows.parquet", few)

    block = DINBlock.from_schema(few, embedding_dim=2, stage_two_mlp_dims=(4,))
    model = mm.Model(block, mm.OutputBlock(few))
    model.compile("adam", run_eagerly=True)
    history = model.fit(loader(), epochs=2, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert all(f"{name}_loss" in history for name in HEADS)
    tested = model.evaluate(loader(), verbose=0, return_dict=True)
    assert {f"{HEADS[1]}/auc", f"{HEADS[2]}/root_mean_squared_error"} <= set(tested)
    predicted = model.predict(loader())
    assert set(predicted) == set(HEADS)
    model.save(str(tmp_path / "saved"))
    loaded = mm.Model.load(str(tmp_path / "saved"))
    again = [loaded(columns) for columns, _ in loader()]
    for name, part in predicted.items():
        assert part.shape == (60, 1)
        found = np.concatenate([outputs[name] for outputs in again])
        np.testing.assert_allclose(found, part, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_label_has_the_published_objective_and_the_others_their_own(
    schema_of_targets, schema, make_columns, as_batch
):
    """Half of the click's cross-entropy beside the first stage's; of the others all of it."""
    columns, labels = as_batch(make_columns(schema, 24), 10, ragged=True)
    rng = np.random.default_rng(0)
    bought, rating = rng.integers(0, 2, 24), rng.normal(size=24).astype(np.float32)
    targets = {"label": labels, "bought": tf.constant(bought), "rating": tf.constant(rating)}
    block = SIMBlock.from_schema(schema_of_targets, **SIM)
    model = mm.Model(block, mm.OutputBlock(schema_of_targets))
    alone = build_model("sim", schema_of_targets, **SIM)
    model(columns)
    alone.body.set_weights(block.get_weights())
    alone.output_block.set_weights(model.blocks[1][HEADS[0]].get_weights())
    model.compile("adam", run_eagerly=True)
    of_bought, of_rating = (model(columns)[name].numpy()[:, 0] for name in HEADS[1:])
    others = -np.log(np.where(bought == 1, of_bought, 1.0 - of_bought)) + (of_rating - rating) ** 2
    for weight in (None, tf.linspace(0.0, 2.0, 24)):
        published, _ = alone.compute_step(columns, labels, weight)
        tested = model.test_step((columns, targets, weight))
        factors = np.ones(24) if weight is None else weight.numpy()
        expected = float(published.total_loss) + np.mean(factors * others)
        np.testing.assert_allclose(tested["loss_batch"], expected, rtol=1e-4)


def test_the_label_of_the_blocks_own_losses_may_be_chosen(schema_of_targets):
    schema = schema_of_targets
    assert SIMBlock.from_schema(schema, **SIM).channels.label == "label"
    block = SIMBlock.from_schema(schema, label="bought", **SIM)
    assert block.channels.label == "bought"
    copy = SIMBlock.from_config(block.get_config())
    assert copy.channels.label == "bought" and copy.options == block.options
    with pytest.raises(OptionError, match="`label` should be 'label' or 'bought' or 'rating'"):
        SIMBlock.from_schema(schema, label="clicked", **SIM)


def test_outputs_whose_losses_would_not_be_the_blocks_are_refused(schema, make_columns, as_batch):
    batch, labels = as_batch(make_columns(schema, 12), 10, ragged=True)
    weighed = mm.ColumnBasedSampleWeight(weight_column_name="user_0")
    for output, message in (
        (mm.BinaryOutput("label", post=weighed), "'label' should leave sample weights as they are"),
        (mm.BinaryClassificationTask("label"), r"outputs such as mm\.BinaryOutput"),
    ):
        chain = mm.Model(SIMBlock.from_schema(schema, **SIM), output)
        chain.compile("sgd", run_eagerly=True)
        with pytest.raises(OptionError, match=message):
            chain.train_step((batch, {"label": labels}))


def test_what_a_composed_model_does_not_take_is_said(
    make_schema, make_columns, as_batch, make_dataset
):
    columns, labels = as_batch(make_columns(make_schema(), 24), 10, ragged=True)
    block = DINBlock.from_schema(make_schema(), **SMALL)
    model = mm.Model(block, mm.BinaryOutput("label"))
    model.compile("adam", run_eagerly=True)
    with pytest.raises(OptionError, match=r"expected a Merlin loader.*ragged_60_0.*directory"):
        model.fit(make_dataset(ragged=True), batch_size=20, verbose=0)
    rows, throughput = tf.data.Dataset.from_tensors((columns, labels)), ms.callbacks.Throughput()
    with pytest.raises(ms.MerlinSimError, match="Throughput is for .* of a model of this package"):
        model.fit(rows, callbacks=[throughput], verbose=0)
    with pytest.raises(ms.MerlinSimError, match="composed of blocks.*exported by `export_model`"):
        family_of(model)
