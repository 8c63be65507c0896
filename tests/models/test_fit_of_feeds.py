"""fit, evaluate and predict on rows of a GPU, on users, over ranks, and a pass after the other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import fit_worker
import numpy as np
import pytest
import tensorflow as tf
from merlin.dataloader.tensorflow import Loader
from processes import horovodrun, run
from small_users import write_users_dataset
from stand_in import SHORT_OF_MEMORY
from warm import warm

from merlin_sim.dataloader import row_loader
from merlin_sim.dataloader.loader import Step
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_loader import DeviceRows
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.known_families import families
from merlin_sim.models.loader_steps import LoaderSteps, StepsDone
from merlin_sim.parallel.steps.optimizers import Adam
from merlin_sim.schemas.dataset import DatasetDirectory

ROWS = 40
EMPTY = [0] * 24 + list(range(1, 11)) + [5] * 6
"""Lengths of histories: in some batches all are empty."""
OF_USERS = np.random.default_rng(0).integers(2, 25, 20).tolist()
STEPS = 3
"""Of a pass."""


def small_din(dataset):
    tf.keras.utils.set_random_seed(1)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model.compile(Adam(0.05), metrics=[], run_eagerly=True)
    return model


def used(dataset):
    """Use a model as a notebook does; give all that it says, and its weights."""
    model = small_din(dataset)
    fitted = model.fit(dataset, batch_size=8, validation_data=dataset, shuffle=False, verbose=0)
    reported = [fitted.history[name] for name in sorted(fitted.history)]
    reported.append(
        list(model.evaluate(dataset, batch_size=16, verbose=0, return_dict=True).values())
    )
    return reported, model.predict(dataset, batch_size=16), model.get_weights()


@pytest.mark.filterwarnings("ignore:.*were read on the host")
@pytest.mark.slow
def test_rows_on_a_gpu_tell_a_notebook_the_same(make_dataset, monkeypatch):
    dataset = make_dataset(ragged=True, rows=ROWS, lengths=EMPTY)
    reported, scores, weights = used(dataset)
    monkeypatch.setattr(row_loader, "StoredRows", DeviceRows)
    on_gpu, scores_on_gpu, weights_on_gpu = used(dataset)
    assert on_gpu == reported
    assert np.isfinite(np.concatenate([np.ravel(values) for values in reported])).all()
    np.testing.assert_array_equal(scores_on_gpu, scores)
    for one, other in zip(weights_on_gpu, weights, strict=True):
        np.testing.assert_array_equal(one, other)

    def fail(*arguments, **options):
        raise SHORT_OF_MEMORY["cupy"]

    unread = make_dataset(ragged=True, rows=ROWS, seed=1)
    monkeypatch.setattr(Loader, "make_tensors", fail)
    with pytest.raises(MerlinSimError, match="the feed is out of GPU memory: Out of memory alloc"):
        small_din(unread).fit(unread, batch_size=8, epochs=2, verbose=0)


@pytest.mark.slow
def test_what_steps_are_given_is_copied_to_the_device_once(make_dataset, monkeypatch):
    """A copy waits for the steps before it: what changes from step to step is made there."""
    dataset, given, held = make_dataset(ragged=True, rows=ROWS), [], []
    on_device, hold = StepsDone.on_device, StepsDone.hold

    def noted_on_device(self, seed, steps):
        given.append(on_device(self, seed, steps))
        return given[-1]

    def noted_hold(self, seed, steps, done):
        held.append(done)
        hold(self, seed, steps, done)

    monkeypatch.setattr(StepsDone, "on_device", noted_on_device)
    monkeypatch.setattr(StepsDone, "hold", noted_hold)
    model = small_din(dataset)
    model.compile(Adam(0.05), metrics=[], steps_per_execution=2)
    model.fit(dataset, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert len(held) == len(given) + 1  # the first alone was copied
    assert all(one is other for one, other in zip(given, held, strict=False))
    assert [int(done[1]) for done in held] == [0, 2, 4, 5, 7, 9, 10]  # five steps an epoch
    loader = open_loader(dataset, "train", dataset.schema.column_names, 8, Ranks())
    first, again = (next(loader.inputs()).number for _ in range(2))
    assert first is again and first.dtype == tf.int64


@pytest.mark.slow
def test_users_are_reported_as_their_rows_are_and_each_sample_counts_once(tmp_path):
    """Batches of users x candidates; scores in the order of the rows."""
    dataset = DatasetDirectory.open(write_users_dataset(tmp_path / "users", [[OF_USERS]]))
    model = small_din(dataset)
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    model.compile("sgd", metrics=[tf.keras.metrics.AUC(name="auc")], run_eagerly=True)
    model.optimizer.learning_rate = 0.0

    def rows(mapping):
        return open_loader(dataset, mapping, dataset.schema.column_names, 64, Ranks())

    scores = model.predict(dataset, batch_size=20)
    assert scores.shape == (2 * len(OF_USERS), 1)
    np.testing.assert_allclose(scores, model.predict(rows("test")), rtol=1e-5, atol=1e-7)
    ours = model.evaluate(dataset, batch_size=20, verbose=0, return_dict=True)
    theirs = model.evaluate(rows("test"), verbose=0, return_dict=True)
    for name in ("loss", "auc"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-5)
    before = model.evaluate(rows("train"), verbose=0, return_dict=True)["loss"]
    fitted = model.fit(dataset, batch_size=64, verbose=0).history["loss"]
    assert fitted == pytest.approx([before], rel=1e-5)
    options = {"batch_size": 64, "verbose": 0, "class_weight": {0: 2.0, 1: 2.0}}
    assert model.fit(dataset, **options).history["loss"] == pytest.approx([2 * before], rel=1e-5)


def test_a_family_takes_candidates_where_its_model_s_class_says_so():
    take = {name for name, family in families().items() if family.takes_candidates}
    assert take == {"din", "dien", "sim", "eta", "sdim", "twin", "stca"}
    plain = replace(families()["sim"], model="tensorflow.keras:Model")
    assert not plain.takes_candidates


@pytest.mark.slow
@pytest.mark.horovod
@pytest.mark.timeout(600)
def test_two_ranks_fit_the_weights_of_one(make_dataset, tmp_path):
    dataset = make_dataset(ragged=True, rows=41)  # of the last batch's one row a rank has none
    expected = fit_worker.fit(dataset.path)
    words = warm(fit_worker.__file__, str(dataset.path), str(tmp_path / "two.npz"))
    done = run([*horovodrun(2, "--gloo-timeout-seconds", "120"), *words], seconds=280)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "two.npz") as received:
        assert len(received.files) == len(expected)
        for name, array in expected.items():
            np.testing.assert_allclose(
                received[name.replace("/", "|")], array, rtol=1e-4, atol=1e-6, err_msg=name
            )


class Passes:
    """A loader that notes what is asked of it."""

    first_step = epoch = 0

    def __init__(self):
        self.noted = []

    def plan(self, epoch):
        return SimpleNamespace(steps=STEPS)

    def start_at(self, epoch, step=0):
        self.epoch, self.first_step = epoch, step

    def make(self, given):
        raise AssertionError("nothing is made here")

    def inputs(self):
        self.noted.append(("begun", self.epoch))
        return Reading(self.epoch, self.first_step, self.noted)


class Reading:
    def __init__(self, epoch, first, noted):
        self._epoch, self._left, self._noted = epoch, iter(range(first, STEPS)), noted
        self._order = tf.constant(epoch)

    def __next__(self):
        number = next(self._left)
        self._noted.append(("read", self._epoch, number))
        return Step("data", self._order, tf.constant(number, tf.int64))

    def close(self):
        self._noted.append(("closed", self._epoch))


def take(steps, count):
    for given, together in steps.take(count):
        epoch, first = int(given.order), int(given.number)
        steps.loader.noted += [("ran", epoch, first + number) for number in range(together)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 12])
def test_a_pass_is_begun_and_not_waited_for_before_the_last_steps_run(at_once):
    steps = LoaderSteps(Passes(), steps_per_epoch=4 * STEPS)
    steps.start_at(0)
    for _ in range(4 * STEPS // at_once):
        take(steps, at_once)
    noted = steps.loader.noted
    ran = [(epoch, number) for what, epoch, *rest in noted if what == "ran" for number in rest]
    assert ran == [(epoch, number) for epoch in range(4) for number in range(STEPS)]
    for epoch in (1, 2, 3):
        last_of_before = noted.index(("ran", epoch - 1, STEPS - 1))
        assert noted.index(("begun", epoch)) < last_of_before < noted.index(("read", epoch, 0))
    assert ("begun", 4) not in noted  # Keras' epoch is over


def test_a_pass_that_was_begun_ahead_ends_with_the_steps():
    steps = LoaderSteps(Passes(), steps_per_epoch=4 * STEPS)
    for first, epoch in ((1, 0), (4, 1)):
        steps.start_at(0, first)
        take(steps, 2)
        steps.close()
        assert steps.loader.noted[-2:] == [("ran", epoch, 2), ("closed", epoch + 1)]
