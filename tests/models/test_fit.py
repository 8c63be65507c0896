"""fit, evaluate and predict as a Keras user expects them, on the step of the command line."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from ranking_rows import random_rows, ranking_schema
from steps_in_graph import on_batches

from merlin_sim.dataloader.loader import Loader
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import MODELS, OptionError, build_model
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import SGD, Adam, LazyAdam, make_optimizer
from merlin_sim.parallel.steps.train_step import TrainStep

pytestmark = pytest.mark.slow

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4)}
DIEN = {**SMALL, "long_seq_length": 7, "aux_mlp_dims": (8, 4)}
DLRM = {"embedding_dim": 2, "bottom_mlp_dims": (2,), "top_mlp_dims": (1,)}
OPTIONS = {"din": SMALL, "sim": {**DIEN, "top_k": 3, "stage_one_mlp_dims": (8,)}}
BATCH = 16
IN_ORDER = {"batch_size": BATCH, "shuffle": False, "verbose": 0}


def small_model(model_type, schema, dtype="float32"):
    tf.keras.utils.set_random_seed(1)
    options = build_model(model_type, schema, **OPTIONS[model_type]).options
    tf.keras.utils.set_random_seed(1)
    return MODELS[model_type](schema, options, dtype=dtype)


def feed_of(model, dataset):
    return open_loader(dataset, "train", list(model.training_columns), BATCH, Ranks())


def steps_by_hand(model, dataset, optimizer, epochs, active=False):
    optimizer = make_optimizer(optimizer, model.trainable_variables, 0.05)
    step = TrainStep(model, optimizer, LossScale(active), Ranks())
    loader = feed_of(model, dataset)
    train = on_batches(step, loader.make)
    for _ in range(epochs):
        for given in loader.inputs():
            result = train(given)
    return optimizer, result


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_same_weights(ours, theirs):
    assert_same(ours.trainable_variables, theirs.trainable_variables)


@pytest.fixture(scope="module")
def dataset(make_datasets, tmp_path_factory):
    """Forty rows: two batches and a half."""
    return make_datasets(tmp_path_factory.mktemp("data"))(ragged=True, rows=40)


@pytest.fixture(scope="module")
def rows(make_schema, make_columns, as_batch):
    """Padded columns of a few rows, and their labels."""
    schema = make_schema(ragged=False)
    return schema, *as_batch(make_columns(schema, 40), 10, ragged=False)


@pytest.fixture(scope="module")
def still(dataset):
    """A model whose weights never change, in graphs that several tests run."""
    model = small_model("din", dataset.schema)
    model.compile(SGD(0.0), metrics=[])
    return model


def test_fit_ends_with_the_weights_of_the_step(dataset):
    """In mixed precision, which scales the loss."""
    fitted, stepped = (small_model("din", dataset.schema, "mixed_float16") for _ in range(2))
    fitted.compile(LazyAdam(0.05))
    assert type(fitted.optimizer) is LazyAdam and fitted.loss_scale.active
    history = fitted.fit(dataset, epochs=2, **IN_ORDER).history
    by_hand, last = steps_by_hand(stepped, dataset, "lazy_adam", epochs=2, active=True)
    assert_same_weights(fitted, stepped)
    names = [[variable.name for variable in of.variables] for of in (fitted.optimizer, by_hand)]
    assert names[0] == names[1]
    assert_same(fitted.optimizer.variables, by_hand.variables)
    assert history["loss_batch"][-1] == last.losses[0].numpy()
    assert fitted.loss_scale.good_steps.numpy() == 6
    # A gradient that overflows changes no weight and halves the scale.
    before = fitted.get_weights()
    fitted.loss_scale.scale.assign(3e38)
    fitted.fit(dataset, steps_per_epoch=1, **IN_ORDER)
    assert_same(before, fitted.get_weights())
    assert fitted.loss_scale.scale.numpy() == np.float32(1.5e38)


def test_one_program_leaves_all_as_it_was_where_a_gradient_overflows(dataset, monkeypatch):
    def wait(*branches, **named):
        raise AssertionError("a GPU would wait for this choice")

    monkeypatch.setattr(tf, "cond", wait)
    model = small_model("din", dataset.schema, "mixed_float16")
    with gpu_forms(True):
        model.compile(Adam(0.05), metrics=[], jit_compile=True)
        fit = functools.partial(model.fit, dataset, **IN_ORDER)
        begun = model.get_weights()
        fit()
        state = [*model.trainable_variables, *model.optimizer.variables]
        before = [variable.numpy() for variable in state]
        assert not np.array_equal(begun[0], model.get_weights()[0])
        model.loss_scale.scale.assign(3e38)
        fit(steps_per_epoch=1)
    assert_same(before, state)
    assert model.loss_scale.scale.numpy() == np.float32(1.5e38)
    assert model.loss_scale.good_steps.numpy() == 0


def test_orders_depend_on_the_seed_and_the_epoch(dataset, still):
    losses = []
    for seed in (3, 3, 4):
        tf.keras.utils.set_random_seed(seed)
        fitted = still.fit(dataset, batch_size=20, epochs=2, verbose=0)
        losses.append(fitted.history["loss_batch"])
        np.testing.assert_allclose(*fitted.history["loss"], rtol=1e-5)  # of every row, once
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][0] != losses[0][1]


def test_predictions_stand_in_stored_order(dataset, still):
    expected = [still(columns) for columns, _ in feed_of(still, dataset)]
    received = still.predict(dataset, batch_size=7)
    np.testing.assert_allclose(received, np.concatenate(expected), rtol=1e-6)
    np.testing.assert_array_equal(still.predict(dataset, batch_size=7, steps=2), received[:14])


def test_epochs_of_so_many_steps_go_on_through_the_data(dataset, still):
    iterations = still.optimizer.iterations
    before = iterations.numpy()
    history = still.fit(dataset, epochs=3, steps_per_epoch=2, **IN_ORDER).history
    assert iterations.numpy() == before + 6
    # A pass has three batches: the epochs end with its second, its first and its third.
    ends = [batch for _ in range(2) for batch in feed_of(still, dataset)][1::2]
    expected = [still.compute_step(*batch, training=False)[0].total_loss for batch in ends]
    np.testing.assert_allclose(history["loss_batch"], expected, rtol=1e-5)
    still.fit(dataset, epochs=5, initial_epoch=3, **IN_ORDER)
    assert iterations.numpy() == before + 6 + 2 * 3
    feed = feed_of(still, dataset)  # one's own
    assert isinstance(feed, Loader)
    still.fit(feed, epochs=2, verbose=0)
    assert iterations.numpy() == before + 6 + 4 * 3 and feed.epoch == 2
    assert still.evaluate(feed, verbose=0, return_dict=True)["loss"] > 0


def test_keras_callbacks(dataset, tmp_path):
    model = small_model("din", dataset.schema)
    model.compile("adam", metrics=["auc"], run_eagerly=True)
    callbacks = tf.keras.callbacks
    seen = callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rates.append(float(model.optimizer.lr))
    )
    rates = []
    history = model.fit(
        dataset,
        batch_size=BATCH,
        epochs=9,
        validation_data=dataset,
        validation_batch_size=20,
        verbose=0,
        callbacks=[
            callbacks.LearningRateScheduler(lambda epoch, rate: 0.125 if epoch == 0 else rate),
            seen,
            callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=100.0),
            callbacks.EarlyStopping("val_loss", patience=2, min_delta=100.0),
            callbacks.ModelCheckpoint(tmp_path / "weights", "val_auc", save_weights_only=True),
            callbacks.TensorBoard(tmp_path / "board", update_freq="epoch"),
        ],
    ).history
    assert rates == [0.125, 0.125, 0.0625]
    assert set(history) >= {"loss", "auc", "val_loss", "val_auc", "lr"}
    assert len(history["loss"]) == 3
    assert list((tmp_path / "board" / "validation").iterdir())
    copy = small_model("din", dataset.schema)
    copy.compile("adam")
    copy.load_weights(tmp_path / "weights")
    assert_same_weights(copy, model)
    assert_same(copy.optimizer.variables, model.optimizer.variables)


class MakesFunctionsAnew(tf.keras.callbacks.Callback):
    """Does so as one does after changing what is trained."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.make_train_function(force=True)

    def on_test_begin(self, logs=None):
        self.model.make_test_function(force=True)

    def on_predict_begin(self, logs=None):
        self.model.make_predict_function(force=True)


def test_functions_that_are_made_anew_are_those_of_the_dataset(dataset, still):
    found = []
    for callbacks in ([], [MakesFunctionsAnew()]):
        given = {"batch_size": BATCH, "verbose": 0, "callbacks": callbacks}
        history = still.fit(dataset, shuffle=False, **given).history
        loss = still.evaluate(dataset, return_dict=True, **given)["loss"]
        found.append((history, loss, still.predict(dataset, **given)))
    assert found[0][:2] == found[1][:2]
    np.testing.assert_array_equal(found[0][2], found[1][2])


def test_class_weights_are_sample_weights(dataset):
    by_class, by_sample = (small_model("din", dataset.schema) for _ in range(2))
    feed = open_loader(dataset, "train", list(by_class.training_columns), 40, Ranks())
    ((columns, labels),) = list(feed)
    by_class.compile(SGD(0.5), metrics=[], run_eagerly=True)
    by_sample.compile(SGD(0.5), metrics=[], weighted_metrics=["auc"], run_eagerly=True)
    by_class.fit(dataset, batch_size=40, shuffle=False, class_weight={0: 0.5, 1: 3.0}, verbose=0)
    weight = tf.where(labels > 0, 3.0, 0.5)
    fitted = by_sample.fit(columns, labels, 40, sample_weight=weight, shuffle=False, verbose=0)
    for one, other in zip(by_class.get_weights(), by_sample.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert "weighted_auc" in fitted.history


class PositiveBatches(tf.keras.metrics.Sum):
    """A metric of one's own, whose `if` on a tensor Keras takes to a graph by autograph."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        if tf.reduce_any(y_true > 0):
            super().update_state(1.0)


def test_keras_own_optimizers_and_a_metric_that_chooses_work_eagerly_and_compiled():
    form = {"cardinalities": (4, 5), "numbers": 1}
    columns = {name: tf.constant(values) for name, values in random_rows(40, **form).items()}
    labels, models = columns.pop("clicked"), []
    for _ in range(2):
        tf.keras.utils.set_random_seed(1)
        models.append(build_model("dlrm", ranking_schema(**form), **DLRM))
    optimizers = tf.keras.optimizers.legacy.SGD(0.5), tf.keras.optimizers.SGD(0.5)
    for model, optimizer in zip(models, optimizers, strict=True):
        is_eager = optimizer is optimizers[0]
        metrics = [PositiveBatches(name="positive")]
        model.compile(optimizer, metrics=metrics, run_eagerly=is_eager)
        assert model.optimizer is optimizer
        fitted = model.fit(columns, labels, batch_size=20, shuffle=False, verbose=0)
        assert fitted.history["positive"] == [2.0]
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_an_error_in_the_data_keeps_its_words(make_dataset):
    dataset = make_dataset(ragged=True, rows=40)
    (path,) = dataset.files("train")
    frame = pd.read_parquet(path)
    frame.loc[39, "label"] = 7
    frame.to_parquet(path, row_group_size=10)
    model = small_model("din", dataset.schema)
    model.compile("adam", metrics=[], run_eagerly=True)
    with pytest.raises(MerlinSimError, match=r"part_0.parquet.*label"):
        model.fit(dataset, batch_size=10, shuffle=False, verbose=0)


REFUSED = [
    ({"loss": {"other": "mse"}}, "`loss` should be for the one output, 'label/binary_output'"),
    ({"loss": ["mse", "mse"]}, "`loss` should be for the one output"),
    ({"loss_weights": {"other": 2.0}}, "`loss_weights` should be for the one output"),
    ({"metrics": {"other": ["auc"]}}, "`metrics` should be for the one output"),
    ({"loss_weights": "heavy"}, "`loss_weights` should be a number. Received: 'heavy'"),
]


def test_metrics_of_the_one_output_are_reported_and_what_cannot_be_honoured_is_refused(rows):
    schema, columns, labels = rows
    model = small_model("din", schema)
    for arguments, message in REFUSED:
        with pytest.raises(OptionError, match=message):
            model.compile("adam", **arguments)
    for metrics, name in (
        (["mse"], "mean_squared_error"),
        ({"label/binary_output": ["precision"]}, "precision"),
    ):
        model.compile("adam", metrics=metrics, run_eagerly=True)
        logs = model.evaluate(columns, labels, batch_size=20, verbose=0, return_dict=True)
        assert set(logs) == {"loss", "loss_batch", name} and 0 <= logs[name] <= 1


def test_a_loss_given_to_compile_takes_the_place_of_the_evaluated_one(rows):
    schema, columns, labels = rows
    model = small_model("sim", schema)

    def objective(**arguments):
        model.compile("adam", **arguments)
        return model.compute_step(columns, labels)[0]

    published = objective()
    same = objective(loss="binary_crossentropy")
    np.testing.assert_allclose(same.total_loss, published.total_loss, rtol=1e-5)
    doubled = objective(loss=tf.keras.losses.BinaryCrossentropy(), loss_weights=[1.0])
    nothing = objective(loss=lambda labels, probabilities: 0.0 * probabilities[:, 0])
    evaluated = published.total_loss - nothing.total_loss
    np.testing.assert_allclose(doubled.total_loss - nothing.total_loss, 2 * evaluated, rtol=1e-4)
    squared = objective(
        loss={"label/binary_output": "mse"}, loss_weights={"label/binary_output": 2}
    )
    probabilities = model(columns)[:, 0].numpy()
    expected = 2 * np.mean((labels.numpy() - probabilities) ** 2)
    np.testing.assert_allclose(squared.total_loss - nothing.total_loss, expected, rtol=1e-4)
    assert objective().total_loss == published.total_loss


def test_xla_compiles_once_where_steps_run_eagerly(rows, monkeypatch):
    schema, columns, labels = rows
    model = small_model("din", schema)
    model.compile("sgd", run_eagerly=True, jit_compile=True)
    traced, forward = [], model.forward

    def noting(*given, **options):
        traced.append(0)
        return forward(*given, **options)

    monkeypatch.setattr(model, "forward", noting)
    for _ in range(2):
        model.test_step((columns, labels))
        model.predict_step((columns,))
    assert len(traced) == 2
