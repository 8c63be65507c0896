"""Keras's fit with the callbacks of a run, as a notebook has them: exact resumes, logs, metrics."""

from __future__ import annotations

import json
import shutil
import sys
import types

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

BATCH = 100
"""300 rows are three steps an epoch."""


@pytest.fixture(scope="module")
def dataset(sim_dataset):
    return ms.DatasetDirectory.open(sim_dataset)


@pytest.fixture(scope="module")
def with_validation(validated):
    return ms.DatasetDirectory.open(validated)


def compiled(dataset, optimizer=None, run_eagerly=True, **options):
    """A model to fit; eagerly where nothing depends on a graph, which takes longer to trace."""
    tf.keras.utils.set_random_seed(4)
    model = ms.DINModel.from_dataset(dataset, **DIN)
    # The averages of weights are among what a resume has to bring back.
    averaging = Adam(0.02, use_ema=True, ema_momentum=0.5)
    metrics = [ms.metrics.AUC()]
    model.compile(optimizer or averaging, metrics=metrics, run_eagerly=run_eagerly, **options)
    tf.keras.utils.set_random_seed(4)
    return model


def fit(model, dataset, callbacks=(), epochs=2, batch_size=BATCH, **options):
    given = {"callbacks": list(callbacks), "batch_size": batch_size, "epochs": epochs}
    model.fit(dataset, **given, verbose=0, **options)
    return model


def fitted(dataset, callbacks=(), epochs=2, batch_size=BATCH, **options):
    return fit(compiled(dataset, **options), dataset, callbacks, epochs, batch_size)


class WeightsOfEpochs(tf.keras.callbacks.Callback):
    """Keeps the weights at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A fit of two epochs that nothing stops: the model, its log, and its weights by epoch.

    It is evaluated twice in each epoch, after steps 2, 3, 5 and 6.
    """
    directory = tmp_path_factory.mktemp("whole")
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH, times_per_epoch=2)
    kept = WeightsOfEpochs()
    model = fitted(dataset, [ms.callbacks.JSONLogger(directory), evaluation, kept])
    return model, directory, kept.weights


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
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", every=2)
    with pytest.raises(KeyboardInterrupt):
        fitted(dataset, [ms.callbacks.JSONLogger(tmp_path / "killed"), saved, StopAfter(5)])
    assert CheckpointStore(tmp_path / "saved").names()[0] == "step-0000000004"
    logger = ms.callbacks.JSONLogger(tmp_path / "again")
    again = compiled(dataset)
    tf.keras.utils.set_random_seed(99)  # another order, were it not for the checkpoint's
    fit(again, dataset, [logger, ms.callbacks.Checkpoint(tmp_path / "saved", resume=True)])
    assert_same(again, whole[0])
    assert [e["step"] for e in entries(tmp_path / "again", "step")] == [5, 6]
    for name in ("total_loss", "train_auc"):
        (ours,), (_, theirs) = (
            [entry[name] for entry in entries(which, "epoch")]
            for which in (tmp_path / "again", whole[1])
        )
        assert ours == theirs


def test_an_optimizer_that_is_not_of_this_package_goes_on_too(dataset, tmp_path):
    """Within an epoch, with dropout, and a rate that depends on the one before."""
    tf.keras.backend.experimental.enable_tf_random_generator()
    models = []
    for seed, resume in ((4, False), (99, True)):
        tf.keras.utils.set_random_seed(4)
        model = ms.DINModel.from_dataset(dataset, **DIN, dropout_rate=0.5)
        model.compile("rmsprop", metrics=[], run_eagerly=True)
        tf.keras.utils.set_random_seed(seed)
        lower = tf.keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
        saved = ms.callbacks.Checkpoint(tmp_path / "saved", resume=resume, every=2)
        models.append(fit(model, dataset, [lower, saved]))
        shutil.rmtree(tmp_path / "saved/step-0000000006")
    assert_same(*models)


def test_steps_of_an_execution_change_nothing(dataset, tmp_path):
    """Five of an epoch, three at once."""
    models = []
    for steps in (1, 3):
        evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH, times_per_epoch=2)
        callbacks = [ms.callbacks.JSONLogger(tmp_path / f"{steps}"), evaluation]
        options = {"steps_per_execution": steps, "run_eagerly": False, "batch_size": 64}
        models.append(fitted(dataset, callbacks, **options))
    assert_same(*models)
    one, several = tmp_path / "1", tmp_path / "3"
    ours, theirs = (entries(path, "step") for path in (several, one))
    assert [e["step"] for e in ours] == [e["step"] for e in theirs] == list(range(1, 11))
    assert [e["total_loss"] for e in ours] == [e["total_loss"] for e in theirs]
    epochs = [[e["train_auc"] for e in entries(path, "epoch")] for path in (several, one)]
    assert epochs[0] == epochs[1]
    assert [e["step"] for e in entries(one, "evaluation")] == [2, 7]
    assert [e["step"] for e in entries(several, "evaluation")] == [3, 8]  # behind steps 2 and 7


def test_an_execution_after_one_of_a_single_step_does_all_its_steps(dataset):
    model = compiled(dataset, run_eagerly=False, steps_per_execution=4)
    for steps in (1, 4):
        model.fit(dataset, batch_size=64, steps_per_epoch=steps, verbose=0)
    assert model.optimizer.iterations.numpy() == 1 + 4


def test_a_whole_step_may_be_one_program(dataset, whole):
    """As on one GPU: samples made, gradients of whole tables, update and metrics, by XLA."""
    with gpu_forms(True):
        kept = WeightsOfEpochs()
        options = {"run_eagerly": False, "jit_compile": True, "steps_per_execution": 2}
        fitted(dataset, [kept], epochs=1, **options)
    for ours, theirs in zip(kept.weights[0], whole[2][0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_callbacks_of_keras_hear_of_what_was_held_out_and_are_resumed(with_validation, tmp_path):
    """Nothing gets better by as much as is asked for, after the first epoch."""
    dataset, heard = with_validation, {}
    wanted = {"mode": "max", "min_delta": 1, "patience": 2}

    def go_on(epochs):
        model = compiled(dataset, Adam(0.02))
        evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
        callbacks = [
            evaluation,
            tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: heard.update(logs)),
            tf.keras.callbacks.ReduceLROnPlateau("val_auc", **wanted),
            tf.keras.callbacks.EarlyStopping("test_auc", **wanted),
            ms.callbacks.Checkpoint(tmp_path / "saved", resume=True),
        ]
        model.fit(dataset, batch_size=300, epochs=epochs, callbacks=callbacks, verbose=0)
        return model, evaluation

    go_on(epochs=2)
    model, evaluation = go_on(epochs=9)
    assert heard["val_auc"] == heard["validation_auc"] != heard["test_auc"]
    assert heard["val_loss"] == heard["validation_log_loss"]
    assert model.progress.epoch == 2  # the third epoch was the last
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02 * 0.1)
    assert evaluation.last.metrics["test_auc"] > 0.5


def test_test_data_choose_nothing_and_validation_data_change_no_training(
    dataset, with_validation, whole, tmp_path
):
    """Without a validation part a callback that monitors one is refused before the first step."""
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    stopping = tf.keras.callbacks.EarlyStopping("val_auc", mode="max", patience=2)
    message = "EarlyStopping monitors val_auc: expected validation data. Found: test alone. Make"
    with pytest.raises(ms.MerlinSimError, match=message):
        fitted(dataset, [evaluation, stopping])
    assert whole[0].history.history.keys().isdisjoint({"val_auc", "val_loss"})
    model = compiled(dataset)
    callbacks = [evaluation, stopping, ms.callbacks.JSONLogger(tmp_path)]
    fit(model, dataset, callbacks, epochs=1, validation_data=with_validation)
    plain, validated = (entries(path, "epoch")[0] for path in (whole[1], tmp_path))
    assert validated["train_auc"] == plain["train_auc"]
    # A directory's validation data are its validation part.
    files = with_validation.files("validation")
    (auc,) = (metric for metric in model.metrics if isinstance(metric, ms.metrics.AUC))
    assert auc.samples == sum(pq.read_metadata(file).num_rows for file in files)
    message = f"{dataset.path}: `validation_data`.* the mapping validation. Found: train, test"
    with pytest.raises(ms.OptionError, match=message):
        fit(model, dataset, validation_data=dataset)


def test_a_metric_of_ones_own_takes_no_published_name(dataset):
    of_ones_own = [tf.keras.metrics.AUC(num_thresholds=3, name="auc")]
    twice = [tf.keras.metrics.Recall(k, name="recall") for k in (0.5, 0.6)]
    for extra, wrong in ((of_ones_own, "auc"), (twice, "recall, recall")):
        with pytest.raises(MerlinSimError, match=f"other than auc, .* Received: {wrong}"):
            ms.callbacks.Evaluation(dataset, batch_size=BATCH, extra=extra)


def test_an_evaluation_of_a_second_model_is_its_own(dataset):
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    for seed in (1, 2):
        model = compiled(dataset, Adam(0.02))
        model.set_weights([weight + 0.1 * seed for weight in model.get_weights()])
        fit(model, dataset, [evaluation], epochs=1, steps_per_epoch=1)
    own = ms.callbacks.Evaluation(dataset, batch_size=BATCH)
    own.set_model(model)
    assert evaluation.last.metrics == own.evaluate()


class AskAfter:
    """Asks to stop once it was looked at so many times."""

    def __init__(self, looks):
        self.looks, self.asked = looks, 0

    def __bool__(self):
        self.asked += 1
        return self.asked > self.looks


def test_a_fit_that_is_stopped_before_an_evaluation_goes_on_with_it(dataset, whole, tmp_path):
    """After a step, before an evaluation, at an epoch's end: nothing of what is logged is lost."""
    seen = []
    note = tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: seen.append(logs))

    def callbacks(*stopping):
        return [
            *stopping,  # those after it hear of the last step too
            ms.callbacks.JSONLogger(tmp_path / "results", append=True),
            note,
            ms.callbacks.Evaluation(dataset, batch_size=BATCH, times_per_epoch=2),
            ms.callbacks.Checkpoint(tmp_path / "saved", keep=9, select_by="test", resume=True),
        ]

    # Each step and each evaluation looks whether to stop: the second fit begins with one.
    for looks, done in ((1, 2), (0, 2), (1, 3)):
        message = f"stopped on request in epoch 1 after {done} steps: saved in"
        with pytest.raises(Interrupted, match=message):
            fitted(dataset, callbacks(ms.callbacks.StopOnSignal(AskAfter(looks))))
        assert CheckpointStore(tmp_path / "saved").names()[0] == f"step-{done:010d}"
        assert not entries(tmp_path / "results", "epoch")
    assert_same(fitted(dataset, callbacks()), whole[0])
    assert [e["step"] for e in entries(tmp_path / "results", "step")] == list(range(1, 7))
    assert len(seen) == 6 and all(np.isfinite(logs["loss"]) for logs in seen)
    for kind, names in (
        ("epoch", ("total_loss", "train_auc", "test_auc")),
        ("evaluation", ("step", "test_auc")),
    ):
        ours, theirs = (entries(index, kind) for index in (tmp_path / "results", whole[1]))
        for name in names:
            assert [entry[name] for entry in ours] == [entry[name] for entry in theirs]
    scored = [f"step-{step:010d}" for step in (2, 3, 5, 6)]
    assert sorted(CheckpointStore(tmp_path / "saved").ranking("test")) == scored


def test_a_second_fit_with_a_checkpoint_that_does_not_resume_begins_anew(
    dataset, with_validation, tmp_path
):
    """The first is refused until there is something by which a checkpoint can be chosen."""
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", select_by="validation")
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=BATCH)  # which has no validation data
    for callbacks in ([saved], [evaluation, saved]):
        with pytest.raises(MerlinSimError, match="expected an Evaluation before it"):
            fitted(dataset, callbacks, epochs=1)
    callbacks = [ms.callbacks.Evaluation(with_validation, batch_size=BATCH), saved]
    model = fitted(with_validation, callbacks, epochs=1)
    assert CheckpointStore(tmp_path / "saved").best() is not None
    fit(model, with_validation, callbacks, epochs=1)
    assert model.optimizer.iterations.numpy() == 2 * 3


def test_what_cannot_be_saved_resumed_or_weighed_is_refused(dataset, tmp_path):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved", resume=True)
    files = list(map(str, dataset.files("train")))
    bare, loader = (
        ms.RowLoader(ms.Dataset(files, **more), BATCH) for more in ({}, {"schema": dataset.schema})
    )
    restoring = tf.keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    no_weight = "`class_weight` should have a weight for each label"
    with pytest.raises(ms.OptionError, match=no_weight):
        compiled(dataset).fit(dataset, batch_size=BATCH, class_weight={1: 2.0}, verbose=0)
    for data, options, said in (
        (next(iter(bare)), {"callbacks": [saved]}, "is for `fit` on an opened dataset directory"),
        ([loader], {"callbacks": [saved]}, "expected an opened dataset directory.*RowLoader"),
        (dataset, {"callbacks": [restoring, saved]}, "restore_best_weights=False in a run that"),
    ):
        given = data if isinstance(data, (tuple, list)) else [data]
        more = {"batch_size": BATCH} if data is dataset else {}
        with pytest.raises(ms.MerlinSimError, match=said):
            compiled(dataset).fit(*given, **options, **more, verbose=0)


def test_the_command_line_goes_on_with_what_a_notebook_began_and_takes_callbacks_and_metrics(
    dataset, small_run, monkeypatch, tmp_path
):
    saved = ms.callbacks.Checkpoint(tmp_path / "saved")
    model = ms.DINModel.from_dataset(dataset, **DIN)
    model.compile("lazy_adam", metrics=[ms.metrics.AUC()], run_eagerly=True)
    model.fit(dataset, batch_size=64, callbacks=[saved], verbose=0)
    heard = []

    class Noting(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            heard.append((epoch, logs["test_auc"], logs["precision"]))

    tf.keras.backend.reset_uids()  # else another test's metric of this name comes before it
    module = types.ModuleType("merlin_sim_callbacks_of_a_test")
    module.Noting = Noting
    monkeypatch.setitem(sys.modules, module.__name__, module)
    named = {
        "callback": "merlin_sim_callbacks_of_a_test:Noting",
        "metric": "tensorflow.keras.metrics:Precision",
    }
    begun = {"load_checkpoint_path": tmp_path / "saved", "optimizer": "lazy_adam"}
    result = run(small_run(**begun, **named))
    steps = [entry["step"] for entry in entries(tmp_path / "results", "step")]
    assert steps == list(range(6, 11))
    (epoch,) = entries(tmp_path / "results", "epoch")
    assert heard == [(1, epoch["test_auc"], epoch["train_precision"])]
    assert result["test_precision"] == epoch["test_precision"]
    config = (tmp_path / "results/config.yaml").read_text()
    assert "metric: tensorflow.keras.metrics:Precision" in config
    assert json.loads((tmp_path / "results/evaluation.json").read_text())["rows"] == 101


def test_what_is_no_callback_or_metric_is_refused(small_run):
    without = "expected what is made without .*{0}\\(\\) raises TypeError:"
    other = "expected a {1} of Keras. Found: {0} gives {2}"
    keras = "tensorflow.keras"
    for option, name, said in (
        ("callback", "nothing", "nothing"),
        ("callback", "json:nothing", "json:nothing"),
        ("callback", f"{keras}.callbacks:ModelCheckpoint", without),
        ("metric", f"{keras}.metrics:SensitivityAtSpecificity", without),
        ("callback", "os:sep", other.format("os:sep", "callback", "str")),
        ("callback", f"{keras}.metrics:Precision", other.format("{0}", "callback", "Precision")),
        ("metric", "os:getpid", other.format("{0}", "metric", "int")),
        ("metric", f"{keras}.callbacks:Callback", other.format("{0}", "metric", "Callback")),
    ):
        with pytest.raises(ms.MerlinSimError, match=f"`{option}`.*" + said.format(name)):
            run(small_run(**{option: name}))
