"""The blocks in plain Merlin models."""

from __future__ import annotations

import json

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import DIENBlock, DINBlock, OptionError, SIMBlock, build_model

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4)}
DIEN = {**SMALL, "long_seq_length": 7, "aux_mlp_dims": (8, 4)}
OPTIONS = {"din": SMALL, "dien": DIEN, "sim": {**DIEN, "top_k": 3, "stage_one_mlp_dims": (8,)}}
BLOCKS = {"din": DINBlock, "dien": DIENBlock, "sim": SIMBlock}
every_block = pytest.mark.parametrize("kind", sorted(BLOCKS))


def chained(kind, schema, **options):
    block = BLOCKS[kind].from_schema(schema, **{**OPTIONS[kind], **options})
    return mm.Model(block, mm.BinaryOutput("label"))


def loader_of(dataset, batch_size=20):
    files = [str(path) for path in dataset.files("train")]
    table = merlin.io.Dataset(files, engine="parquet", schema=dataset.schema)
    return mm.Loader(table, batch_size=batch_size, shuffle=False)


def logit(probability):
    probability = np.asarray(probability, np.float64)
    return np.log(probability) - np.log1p(-probability)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ragged"), [("sim", True), ("din", False)])
def test_a_chain_on_merlins_loader_gives_the_models_logits(kind, ragged, make_dataset):
    dataset = make_dataset(ragged=ragged)
    tf.keras.utils.set_random_seed(3)
    model = build_model(kind, dataset.schema, **OPTIONS[kind])
    for variable in model.trainable_variables:  # away from zero biases and equal slopes
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    chain = chained(kind, dataset.schema)
    columns, _ = next(iter(loader_of(dataset)))
    chain(columns)
    assert [w.shape for w in chain.weights] == [w.shape for w in model.weights]
    chain.set_weights(model.get_weights())
    theirs = np.concatenate([chain(columns) for columns, _ in loader_of(dataset)])
    ours = np.concatenate([model.forward(c).logits for c, _ in loader_of(dataset)])
    assert np.std(ours) > 0.01
    np.testing.assert_allclose(logit(theirs), ours, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loss_weights", "in_graph"),
    [
        ("din", 0.7, False),
        ("sim", None, True),
    ],
)
def test_a_chain_trains_like_the_model(kind, loss_weights, in_graph, make_dataset):
    """One step of each: the published objective, unless the output's weight is given."""
    dataset = make_dataset(ragged=True)
    model, chain = (make(kind, dataset.schema) for make in (small_model, chained))
    columns, labels = next(iter(loader_of(dataset)))
    weight = tf.linspace(0.0, 3.0, 20)
    chain(columns)
    chain.set_weights(model.get_weights())
    sgd = tf.keras.optimizers.legacy.SGD
    by_output = loss_weights and {"label/binary_output": loss_weights}
    chain.compile(sgd(0.5), loss_weights=by_output)
    model.compile(sgd(0.5), loss_weights=loss_weights)
    tested = chain.test_step((columns, labels, weight))
    train = tf.function(chain.train_step, autograph=False) if in_graph else chain.train_step
    logs = train((columns, labels, weight))
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(columns, labels, weight)
    np.testing.assert_allclose(tested["loss_batch"], losses.total_loss, rtol=1e-5)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    sgd(0.5).apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    np.testing.assert_allclose(logs["loss_batch"], losses.total_loss, rtol=1e-5)
    for ours, theirs in zip(chain.weights, model.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def small_model(kind, schema):
    return build_model(kind, schema, **OPTIONS[kind])


@pytest.mark.parametrize("kind", ["dien", "sim"])
def test_without_negative_histories_the_auxiliary_loss_has_to_be_off(kind, make_schema):
    schema = make_schema(negatives=False)
    with pytest.raises(OptionError, match=r"negative_history.*Received: none.*`auxiliary_loss`"):
        BLOCKS[kind].from_schema(schema, **OPTIONS[kind])


@pytest.mark.parametrize("kind", ["dien", "sim"])
def test_without_the_auxiliary_loss_the_other_losses_are_the_same(
    kind, make_schema, make_columns, as_batch
):
    schema = make_schema()
    batch, labels = as_batch(make_columns(schema, 12), 10, ragged=True)
    full = small_model(kind, schema)
    options = {**OPTIONS[kind], "auxiliary_loss": False}
    del options["aux_mlp_dims"]
    model = build_model(kind, make_schema(negatives=False), **options)
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


def test_weights_that_an_output_makes_itself_are_refused(make_schema, make_columns, as_batch):
    """They would not reach the losses within the block."""
    schema = make_schema()
    batch, labels = as_batch(make_columns(schema, 12), 10, ragged=True)
    of_users = mm.ColumnBasedSampleWeight(weight_column_name="user_0")
    block = DIENBlock.from_schema(schema, **DIEN)
    chain = mm.Model(block, mm.BinaryOutput("label", post=of_users))
    chain.compile("sgd", run_eagerly=True)
    with pytest.raises(OptionError, match="'label' should leave sample weights as they are"):
        chain.train_step((batch, {"label": labels}))


@pytest.mark.slow
def test_pre_and_post_of_merlins_model_work_on_a_chain(make_dataset):
    dataset = make_dataset(ragged=True)
    block = DINBlock.from_schema(dataset.schema, **SMALL)
    half = tf.keras.layers.Lambda(lambda probability: probability / 2.0)
    plain = mm.Model(block, mm.BinaryOutput("label"))
    halved = mm.Model(*plain.blocks, post=half)
    columns, _ = next(iter(loader_of(dataset)))
    np.testing.assert_allclose(halved(columns), plain(columns) / 2.0, rtol=1e-6)


@pytest.mark.parametrize("option", ["pre", "post", "context", "prep_features"])
def test_a_model_refuses_what_it_would_ignore(option, make_schema):
    model = small_model("din", make_schema())
    with pytest.raises(OptionError, match=f"does not take `{option}`.*mm.Model"):
        type(model)(make_schema(), model.options, **{option: tf.keras.layers.Activation("relu")})


@every_block
def test_config_makes_a_copy(kind, make_schema):
    block = BLOCKS[kind].from_schema(make_schema(), **OPTIONS[kind])
    config = json.loads(json.dumps(block.get_config()))
    copy = type(block).from_config(config)
    assert copy.get_config() == block.get_config()
    assert copy.options == block.options


@every_block
def test_a_block_reports_its_output_and_its_columns(kind, make_schema):
    schema = make_schema()
    block = BLOCKS[kind].from_schema(schema, **OPTIONS[kind])
    assert block.compute_output_shape(None).as_list() == [None, 4]
    assert block.schema.column_names == schema.excluding_by_name("label").column_names
    bare = BLOCKS[kind].from_schema(schema, **{**OPTIONS[kind], "stage_two_mlp_dims": ()})
    assert bare.output_dim == bare.classified_dim
