"""Keras's fit with the callbacks of a run, as a notebook has them: exact resumes, logs, metrics."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from processes import entries
from small_runs import DIN

import merlin_sim as ms
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.parallel.ranks.interruption import Interrupted
from merlin_sim.parallel.steps.optimizers import Adam
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow

BATCH = 64
"""300 rows are five steps an epoch."""


@pytest.fixture(scope="module")
def dataset(sim_dataset):
    return ms.DatasetDirectory.open(sim_dataset)


@pytest.fixture(scope="module")
def with_validation(validated):
    return ms.DatasetDirectory.open(validated)


def compiled(dataset, optimizer=None, **options):
    tf.keras.utils.set_random_seed(4)
    model = ms.DINModel.from_dataset(dataset, **DIN)
    model.compile(optimizer or Adam(0.02), metrics=[ms.metrics.AUC()], **options)
    tf.keras.utils.set_random_seed(4)
    return model


def fitted(dataset, callbacks=(), epochs=2, **options):
    model = compiled(dataset, **options)
    model.fit(dataset, batch_size=BATCH, epochs=epochs, callbacks=list(callbacks), verbose=0)
    return model


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A fit of two epochs, evaluated after each, that nothing stops: the model and its log."""
    directory = tmp_path_factory.mktemp("whole")
    logger = ms.callbacks.JSONLogger(directory)
    return fitted(dataset, [logger, ms.callbacks.Evaluation(dataset, batch_size=BATCH)]), directory


class StopAfter(tf.keras.callbacks.Callback):
    """Ends a fit after so many steps, as a killed process would."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if self.model.progress.steps == self.steps:
            raise KeyboardInterrupt


def assert_same(one, other):
    for ours, theirs in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_fit_that_was_killed_within_an_epoch_goes_on_to_the_bit(dataset, whole, tmp_path):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", every=3)
    with pytest.raises(KeyboardInterrupt):
        fitted(dataset, [ms.callbacks.JSONLogger(tmp_path / "killed"), saved, StopAfter(8)])
    assert CheckpointStore(tmp_path / "saved").names()[0] == "step-0000000006"
    tf.keras.utils.set_random_seed(99)  # another order, were it not for the checkpoint's
    logger = ms.callbacks.JSONLogger(tmp_path / "again")
    again = compiled(dataset)
    tf.keras.utils.set_random_seed(99)
    again.fit(
        dataset,
        batch_size=BATCH,
        epochs=2,
        callbacks=[logger, ms.callbacks.Checkpoint(tmp_path / "saved", resume=True)],
        verbose=0,
    )
    assert_same(again, whole[0])
    assert [e["step"] for e in entries(tmp_path / "again", "step")] == [7, 8, 9, 10]
    for name in ("total_loss", "train_auc"):
        (ours,), (_, theirs) = (
            [entry[name] for entry in entries(which, "epoch")]
            for which in (tmp_path / "again", whole[1])
        )
        assert ours == theirs


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: Adam(0.02, use_ema=True, ema_momentum=0.5),
        lambda: tf.keras.optimizers.Adam(0.02),
        lambda: "rmsprop",
    ],
    ids=["averages", "of Keras", "compile's own"],
)
def test_a_fit_that_goes_on_ends_as_one_that_nothing_stopped(dataset, tmp_path, optimizer):
    """With dropout, averaged weights, and a rate that depends on the one before."""
    tf.keras.backend.experimental.enable_tf_random_generator()

    def fit(seed, **checkpoint):
        tf.keras.utils.set_random_seed(4)
        model = ms.DINModel.from_dataset(dataset, **DIN, dropout_rate=0.5)
        model.compile(optimizer(), metrics=[])
        lower = tf.keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
        saved = ms.callbacks.Checkpoint(tmp_path / "saved", **checkpoint)
        tf.keras.utils.set_random_seed(seed)
        model.fit(dataset, batch_size=BATCH, epochs=2, callbacks=[lower, saved], verbose=0)
        return model

    whole = fit(seed=4)
    shutil.rmtree(tmp_path / "saved/step-0000000010")
    assert_same(fit(seed=99, resume=True), whole)


def test_what_is_logged_of_training_is_not_that_of_validation_data(
    dataset, with_validation, whole, tmp_path
):
    model = compiled(dataset)
    model.fit(
        dataset,
        batch_size=BATCH,
        validation_data=with_validation,
        callbacks=[ms.callbacks.JSONLogger(tmp_path / "validated")],
        verbose=0,
    )
    plain, validated = (entries(p, "epoch")[0] for p in (whole[1], tmp_path / "validated"))
    assert validated["train_auc"] == plain["train_auc"]


def test_steps_of_an_execution_change_nothing(dataset, whole, tmp_path):
    one, log = whole
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH, times_per_epoch=2)
    logger = ms.callbacks.JSONLogger(tmp_path)
    several = fitted(dataset, [logger, evaluation], steps_per_execution=3)
    assert_same(one, several)
    ours, theirs = (entries(path, "step") for path in (tmp_path, log))
    assert [e["step"] for e in ours] == [e["step"] for e in theirs] == list(range(1, 11))
    assert [e["total_loss"] for e in ours] == [e["total_loss"] for e in theirs]
    epochs = [[e["train_auc"] for e in entries(path, "epoch")] for path in (tmp_path, log)]
    assert epochs[0] == epochs[1]
    assert [e["step"] for e in entries(tmp_path, "evaluation")] == [3, 8]  # behind steps 2 and 7


def test_an_execution_after_one_of_a_single_step_does_all_its_steps(dataset):
    model = compiled(dataset, steps_per_execution=4)
    for steps in (1, 8):
        model.fit(dataset, batch_size=BATCH, steps_per_epoch=steps, verbose=0)
    assert model.optimizer.iterations.numpy() == 1 + 8


def test_a_whole_step_may_be_one_program(dataset):
    """As on one GPU: samples made, gradients of whole tables, update and metrics, by XLA."""
    plain = fitted(dataset, epochs=1)
    with gpu_forms(True):
        model = compiled(dataset, jit_compile=True, steps_per_execution=2)
        assert model._is_one_program
        model.fit(dataset, batch_size=BATCH, epochs=1, verbose=0)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_callbacks_of_keras_hear_of_what_was_held_out(with_validation):
    dataset = with_validation
    plateau = tf.keras.callbacks.ReduceLROnPlateau("val_auc", mode="max", min_delta=1, patience=1)
    stopping = tf.keras.callbacks.EarlyStopping("test_auc", mode="max", min_delta=1, patience=2)
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    heard = {}
    noting = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: heard.update(logs))
    model = fitted(dataset, [evaluation, noting, plateau, stopping], epochs=9)
    assert heard["val_auc"] == heard["validation_auc"] != heard["test_auc"]
    assert heard["val_loss"] == heard["validation_log_loss"]
    assert model.progress.epoch == 2  # the third epoch was the last
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02 * 0.1**2)
    assert evaluation.last.metrics["test_auc"] > 0.5


def test_test_data_choose_nothing(dataset, with_validation):
    """Without a validation part a callback that monitors one is refused before the first step."""
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    stopping = tf.keras.callbacks.EarlyStopping("val_auc", mode="max", patience=2)
    message = "EarlyStopping monitors val_auc: expected validation data. Found: test alone. Make"
    with pytest.raises(ms.MerlinSimError, match=message):
        fitted(dataset, [evaluation, stopping])
    assert (
        fitted(dataset, [evaluation], epochs=1)
        .history.history.keys()
        .isdisjoint({"val_auc", "val_loss"})
    )
    model = compiled(dataset)
    model.fit(
        dataset,
        batch_size=BATCH,
        validation_data=with_validation,
        callbacks=[evaluation, stopping],
        verbose=0,
    )


def test_a_directory_s_validation_data_are_its_validation_part(dataset, with_validation):
    model = compiled(with_validation)
    model.fit(with_validation, batch_size=BATCH, validation_data=with_validation, verbose=0)
    files = with_validation.files("validation")
    (auc,) = (metric for metric in model.metrics if isinstance(metric, ms.metrics.AUC))
    assert auc.samples == sum(pq.read_metadata(file).num_rows for file in files)
    message = f"{dataset.path}: `validation_data`.* the mapping validation. Found: train, test"
    with pytest.raises(ms.OptionError, match=message):
        model.fit(with_validation, batch_size=BATCH, validation_data=dataset, verbose=0)


def test_a_metric_of_ones_own_takes_no_published_name(dataset):
    of_ones_own = [tf.keras.metrics.AUC(num_thresholds=3, name="auc")]
    twice = [tf.keras.metrics.Recall(k, name="recall") for k in (0.5, 0.6)]
    for extra, wrong in ((of_ones_own, "auc"), (twice, "recall, recall")):
        with pytest.raises(MerlinSimError, match=f"other than auc, .* Received: {wrong}"):
            ms.callbacks.Evaluation(dataset, batch_size=BATCH, extra=extra)


def test_an_evaluation_of_a_second_model_is_its_own(dataset):
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    for seed in (1, 2):
        model = compiled(dataset)
        model.set_weights([weight + 0.1 * seed for weight in model.get_weights()])
        model.fit(dataset, batch_size=BATCH, callbacks=[evaluation], verbose=0)
    own = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    own.set_model(model)
    assert evaluation.last.metrics == own.evaluate()


def test_what_callbacks_of_keras_keep_is_resumed(with_validation, tmp_path):
    dataset = with_validation

    def callbacks():
        return [
            ms.callbacks.Evaluation(dataset, batch_size=BATCH),
            tf.keras.callbacks.ReduceLROnPlateau("val_auc", mode="max", min_delta=1, patience=2),
            ms.callbacks.Checkpoint(tmp_path / "saved", resume=True),
        ]

    fitted(dataset, callbacks(), epochs=2)
    model = fitted(dataset, callbacks(), epochs=3)  # the second without a better one
    assert float(model.optimizer.learning_rate) == pytest.approx(0.002)


def test_a_signal_ends_a_fit_and_saves_it(dataset, tmp_path):
    class Ask:
        def __init__(self):
            self.asked = 0

        def __bool__(self):
            self.asked += 1
            return self.asked > 3

    callbacks = [ms.callbacks.StopOnSignal(Ask()), ms.callbacks.Checkpoint(tmp_path / "saved")]
    with pytest.raises(Interrupted, match="stopped on request in epoch 1 after 4 steps: saved in"):
        fitted(dataset, callbacks)
    assert CheckpointStore(tmp_path / "saved").names() == ["step-0000000004"]


class AskAfter:
    """Asks to stop once so many steps are done."""

    def __init__(self, steps):
        self.steps, self.asked = steps, 0

    def __bool__(self):
        self.asked += 1
        return self.asked > self.steps


def test_a_fit_that_is_stopped_while_it_is_evaluated_goes_on_with_the_evaluation(
    dataset, whole, tmp_path
):
    def callbacks():
        return [
            ms.callbacks.JSONLogger(tmp_path / "results", append=True),
            ms.callbacks.Evaluation(dataset, batch_size=BATCH),
            ms.callbacks.Checkpoint(tmp_path / "saved", resume=True),
        ]

    with pytest.raises(Interrupted, match="in epoch 1 after 5 steps"):
        fitted(dataset, [ms.callbacks.StopOnSignal(AskAfter(5)), *callbacks()])
    assert not entries(tmp_path / "results", "epoch")
    again = fitted(dataset, callbacks())
    assert [e["step"] for e in entries(tmp_path / "results", "step")] == list(range(1, 11))
    ours = entries(tmp_path / "results", "epoch")
    assert_same(again, whole[0])
    for name in ("total_loss", "train_auc", "test_auc"):
        theirs = [entry[name] for entry in entries(whole[1], "epoch")]
        assert [entry[name] for entry in ours] == theirs


def test_an_evaluation_within_an_epoch_is_not_lost_by_a_stop(dataset, tmp_path):
    def callbacks(name):
        return [
            ms.callbacks.JSONLogger(tmp_path / name, append=True),
            ms.callbacks.Evaluation(dataset, batch_size=BATCH, times_per_epoch=2),
        ]

    fitted(dataset, callbacks("whole"))
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", keep=9, select_by="test", resume=True)
    with pytest.raises(Interrupted, match="in epoch 1 after 2 steps"):
        fitted(dataset, [ms.callbacks.StopOnSignal(AskAfter(2)), *callbacks("parts"), saved])
    fitted(dataset, [*callbacks("parts"), saved])
    found = [
        [(entry["step"], entry["test_auc"]) for entry in entries(tmp_path / name, "evaluation")]
        for name in ("whole", "parts")
    ]
    assert [step for step, _ in found[0]] == [2, 7]
    assert found[0] == found[1]
    scored = [f"step-{step:010d}" for step in (2, 5, 7, 10)]
    assert sorted(CheckpointStore(tmp_path / "saved").ranking("test")) == scored


def test_a_second_fit_with_a_checkpoint_that_does_not_resume_begins_anew(dataset, tmp_path):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved")
    model = fitted(dataset, [saved])
    model.fit(dataset, batch_size=BATCH, epochs=2, callbacks=[saved], verbose=0)
    assert model.optimizer.iterations.numpy() == 2 * 10


def test_the_command_line_goes_on_with_what_a_notebook_began(dataset, small_run, tmp_path):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved")
    model = ms.DINModel.from_dataset(dataset, **DIN)
    model.compile("lazy_adam", metrics=[ms.metrics.AUC()])
    model.fit(dataset, batch_size=BATCH, callbacks=[saved], verbose=0)
    goes_on = {"load_checkpoint_path": tmp_path / "saved", "optimizer": "lazy_adam"}
    run(small_run(**goes_on))
    steps = [entry["step"] for entry in entries(tmp_path / "results", "step")]
    assert steps == list(range(6, 11))


def test_classes_without_a_weight_are_refused(dataset):
    with pytest.raises(ms.OptionError, match="`class_weight` should have a weight for each label"):
        compiled(dataset).fit(dataset, batch_size=BATCH, class_weight={1: 2.0}, verbose=0)


def test_other_data_than_a_directory_s_cannot_be_resumed(dataset, tmp_path):
    model = compiled(dataset)
    loader = ms.RowLoader(ms.Dataset(list(map(str, dataset.files("train")))), BATCH)
    columns, labels = next(iter(loader))
    with pytest.raises(ms.MerlinSimError, match="is for `fit` on an opened dataset directory"):
        model.fit(
            columns, labels, callbacks=[ms.callbacks.Checkpoint(tmp_path / "saved")], verbose=0
        )


def test_a_loader_without_a_directory_is_not_saved(dataset, tmp_path):
    model = compiled(dataset)
    loader = ms.RowLoader(
        ms.Dataset(list(map(str, dataset.files("train"))), schema=dataset.schema), BATCH
    )
    with pytest.raises(ms.MerlinSimError, match="expected an opened dataset directory.*RowLoader"):
        model.fit(loader, callbacks=[ms.callbacks.Checkpoint(tmp_path / "saved")], verbose=0)


def test_weights_that_no_checkpoint_keeps_are_not_restored_after_a_resume(dataset, tmp_path):
    stopping = tf.keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", resume=True)
    with pytest.raises(ms.MerlinSimError, match="restore_best_weights=False in a run that"):
        fitted(dataset, [stopping, saved])


def test_callbacks_and_metrics_of_one_s_own_work_from_the_command_line(small_run, tmp_path):
    named = {
        "callback": "merlin_sim_callbacks_of_a_test:Noting",
        "metric": "tensorflow.keras.metrics:Precision",
    }
    import sys
    import types

    heard = []

    class Noting(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            heard.append((epoch, logs["test_auc"], logs["precision"]))

    tf.keras.backend.reset_uids()  # else another test's metric of this name comes before it
    module = types.ModuleType("merlin_sim_callbacks_of_a_test")
    module.Noting = Noting
    sys.modules[module.__name__] = module
    try:
        result = run(small_run(**named))
    finally:
        del sys.modules[module.__name__]
    assert [epoch for epoch, _, _ in heard] == [0, 1]
    epochs = entries(tmp_path / "results", "epoch")
    assert [entry["test_auc"] for entry in epochs] == [auc for _, auc, _ in heard]
    assert {"train_precision", "test_precision"} <= set(epochs[0])
    assert result["test_precision"] == epochs[-1]["test_precision"]
    config = (tmp_path / "results/config.yaml").read_text()
    assert "metric: tensorflow.keras.metrics:Precision" in config
    assert json.loads((tmp_path / "results/evaluation.json").read_text())["rows"] == 101


@pytest.mark.parametrize("name", ["nothing", "json:nothing"])
def test_a_callback_that_is_not_there_is_named(small_run, name):
    with pytest.raises(ms.MerlinSimError, match=name):
        run(small_run(callback=name))


@pytest.mark.parametrize("option", ["callback", "metric"])
def test_what_cannot_be_made_without_arguments_is_refused(small_run, option):
    name = {"callback": "callbacks:ModelCheckpoint", "metric": "metrics:SensitivityAtSpecificity"}
    message = rf"`{option}`: expected what is made without .*{name[option]}\(\) raises TypeError:"
    with pytest.raises(ms.MerlinSimError, match=message):
        run(small_run(**{option: f"tensorflow.keras.{name[option]}"}))


@pytest.mark.parametrize(
    ("option", "name", "found"),
    [
        ("callback", "os:getpid", "int"),
        ("callback", "os:sep", "str"),
        ("callback", "tensorflow.keras.metrics:Precision", "Precision"),
        ("metric", "os:getpid", "int"),
        ("metric", "tensorflow.keras.callbacks:Callback", "Callback"),
    ],
)
def test_what_is_no_callback_or_metric_is_refused(small_run, option, name, found):
    message = f"`{option}`: expected a {option} of Keras. Found: {name} gives {found}"
    with pytest.raises(ms.MerlinSimError, match=message):
        run(small_run(**{option: name}))


def test_checkpoints_and_ends_fall_between_executions(small_run):
    with pytest.raises(ms.MerlinSimError, match="`max_steps` should be a multiple of `steps_per"):
        small_run(steps_per_execution=4, max_steps=6)


def test_a_checkpoint_that_has_nothing_to_choose_by_is_refused(dataset, with_validation, tmp_path):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", select_by="validation")
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)  # which has no validation data
    for callbacks in ([saved], [evaluation, saved]):
        with pytest.raises(MerlinSimError, match="expected an Evaluation before it"):
            fitted(dataset, callbacks, epochs=1)
    fitted(
        with_validation,
        [ms.callbacks.Evaluation(with_validation, batch_size=BATCH), saved],
        epochs=1,
    )
    assert CheckpointStore(tmp_path / "saved").best() is not None
