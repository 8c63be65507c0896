"""fit, evaluate and predict on rows that Merlin's loader reads: weights and scores of the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from stand_in import SHORT_OF_MEMORY

from merlin_sim.dataloader import row_loader
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_loader import DeviceRows
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.loader_steps import StepsDone
from merlin_sim.parallel.steps.optimizers import Adam

ROWS = 40
LENGTHS = [0] * 24 + list(range(1, 11)) + [5] * 6
"""Of histories: in some batches all are empty."""


@pytest.fixture
def gpu(monkeypatch):
    """Let loaders find a GPU from now on."""

    def put_in():
        monkeypatch.setattr(row_loader, "StoredRows", DeviceRows)

    return put_in


def small_din(dataset):
    tf.keras.utils.set_random_seed(1)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model.compile(Adam(0.05), metrics=[])
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
def test_a_notebook_is_told_the_same_whatever_histories_are_empty(make_dataset, gpu):
    dataset = make_dataset(ragged=True, rows=ROWS, lengths=LENGTHS)
    reported, scores, weights = used(dataset)
    gpu()
    on_gpu, scores_on_gpu, weights_on_gpu = used(dataset)
    assert on_gpu == reported
    assert np.isfinite(np.concatenate([np.ravel(values) for values in reported])).all()
    np.testing.assert_array_equal(scores_on_gpu, scores)
    for one, other in zip(weights_on_gpu, weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_notebook_without_gpu_memory_is_told_what_to_lower(make_dataset, gpu, monkeypatch):
    dataset = make_dataset(ragged=True, rows=ROWS)
    gpu()

    def fail(self, part):
        raise SHORT_OF_MEMORY["cupy"]

    monkeypatch.setattr(DeviceRows, "_read_by_merlin", fail)
    with pytest.raises(MerlinSimError, match="the feed is out of GPU memory: Out of memory alloc"):
        small_din(dataset).fit(dataset, batch_size=8, epochs=2, verbose=0)


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
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model.compile(Adam(0.05), metrics=[], steps_per_execution=2)
    model.fit(dataset, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert len(held) == len(given) + 1  # the first alone was copied
    assert all(one is other for one, other in zip(given, held, strict=False))
    assert [int(done[1]) for done in held] == [0, 2, 4, 5, 7, 9, 10]  # five steps an epoch
    loader = open_loader(dataset, "train", dataset.schema.column_names, 8, Ranks())
    first, again = (next(loader.inputs()).number for _ in range(2))
    assert first is again and first.dtype == tf.int64
