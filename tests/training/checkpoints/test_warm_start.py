"""What a model begins with whose tables have more rows than those of the checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from grown_dataset import MORE, SIZES, kinds_of
from small_runs import DIN, TWO_TOWER

from merlin_sim.models import build_model
from merlin_sim.models.saving import table_names
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointError, CheckpointStore
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fingerprint import fingerprint
from merlin_sim.schemas.known_keys import note_of
from merlin_sim.training.checkpoints.run_state import RATE, RunMetadata, RunState
from merlin_sim.training.checkpoints.warm_start import WarmStart

UNTRAINED = 4
"""A thing whose row never had a gradient."""


@pytest.fixture(scope="module")
def datasets(keyed):
    return {name: DatasetDirectory.open(keyed / name) for name in ("old", "grown", "other")}


def make_state(dataset, optimizer="adam", family="din", **changes):
    tf.keras.utils.set_random_seed(6)
    options = {**(TWO_TOWER if family == "two_tower" else DIN), **changes}
    model = build_model(family, dataset.schema, **options)
    made = make_optimizer(optimizer, model.trainable_variables, 0.01)
    note = note_of(dataset).to_dict()
    metadata = RunMetadata(
        family, model.options.to_dict(), optimizer, fingerprint(dataset), False, {"seed": 1}, note
    )
    return RunState(model, made, LossScale(False), metadata)


def save(state, directory):
    """Save a state in which every number is another one, but for a row that was not trained."""
    random = np.random.default_rng(1)
    for name, variable in state.variables.items():
        values = random.uniform(0.1, 1, variable.shape)
        if name.startswith("body") and "thing" in name and name.endswith(("/m", "/v", "/sum")):
            values[UNTRAINED] = 0
        variable.assign(values.astype(variable.dtype.as_numpy_dtype))
    state.position.steps, state.position.epoch = 70, 2
    CheckpointStore(directory).save(70, *state.to_checkpoint())
    return CheckpointStore(directory).load()


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_known_rows_go_on_and_new_ones_begin_with_the_mean(datasets, tmp_path, optimizer):
    checkpoint = save(make_state(datasets["old"], optimizer), tmp_path)
    state = make_state(datasets["grown"], optimizer)
    warm = WarmStart(state, datasets["grown"], "mean")
    warm.restore(checkpoint)
    assert warm.added == MORE
    tables = table_names(state.model)
    assert sorted(tables.values()) == sorted(SIZES)
    for name, variable in state.variables.items():
        if name == RATE:  # the run's own
            continue
        stored = checkpoint.arrays[name]
        values = variable.numpy()
        table = tables.get(name) or tables.get(name.rpartition("/")[0])
        if table is None:
            assert np.array_equal(values, stored), name
            continue
        assert np.array_equal(values[: len(stored)], stored), name
        new = values[len(stored) :]
        assert len(new) == MORE[table]
        if name not in tables:
            assert not new.any(), name
            continue
        trained = np.ones(len(stored), bool)
        trained[0] = False
        if table == "thing" and optimizer != "sgd":
            trained[UNTRAINED] = False
        overall = stored[trained].mean(axis=0)
        expected = np.tile(overall, (len(new), 1))
        if table == "thing":
            kinds = np.concatenate([[0], kinds_of(SIZES["thing"] + MORE["thing"])])
            for row, kind in enumerate(kinds[len(stored) :]):
                same = trained & (kinds[: len(stored)] == kind)
                expected[row] = stored[same].mean(axis=0) if same.any() else overall
            assert not np.allclose(expected[0], expected[1])
            assert np.allclose(expected[-1], overall)  # of a kind that nothing known is of
        np.testing.assert_allclose(new, expected, rtol=1e-5)
    assert (state.position.epoch, state.position.steps) == (0, 70)


def test_random_rows_are_those_of_a_new_model(datasets, tmp_path):
    """Popularity is not taken over, as the data are others."""
    checkpoint = save(make_state(datasets["old"], family="two_tower"), tmp_path)
    assert "_log_chances" in checkpoint.arrays.index
    state = make_state(datasets["grown"], family="two_tower")
    drawn = {name: state.variables[name].numpy() for name in table_names(state.model)}
    warm = WarmStart(state, datasets["grown"], "random")
    warm.restore(checkpoint)
    for name, before in drawn.items():
        count = len(checkpoint.arrays[name])
        assert np.array_equal(state.variables[name].numpy()[count:], before[count:])
        assert np.array_equal(state.variables[name].numpy()[:count], checkpoint.arrays[name])
    assert warm.added == MORE and not state.variables["_log_chances"].numpy().any()


def refused(checkpoint, dataset, *state, **changes):
    with pytest.raises(CheckpointError) as raised:
        WarmStart(make_state(dataset, *state, **changes), dataset, "mean").restore(checkpoint)
    return str(raised.value)


def test_what_cannot_be_begun_with_is_refused(datasets, tmp_path):
    old = save(make_state(datasets["old"]), tmp_path / "old")
    said = refused(old, datasets["other"])
    assert "thing: the first 60 keys of" in said and "who: the first 50 keys of" in said
    assert "did not grow from that of the checkpoint" in said
    assert refused(old, datasets["grown"], "adagrad", embedding_dim=8).splitlines()[1:] == [
        "  `optimizer` should be the checkpoint's, adam. Received: adagrad",
        "  `embedding_dim` should be the checkpoint's, 4. Received: 8",
    ]
    grown = save(make_state(datasets["grown"]), tmp_path / "grown")
    assert "its ids should end at 69 or later" in refused(grown, datasets["old"])
    # Options that are newer than a checkpoint have their defaults.
    del old.metadata["model_options"]["history_counts"]
    WarmStart(make_state(datasets["old"]), datasets["old"], "mean").restore(old)
    said = refused(old, datasets["old"], history_counts=True)
    assert "`history_counts` should be the checkpoint's, false" in said
    for ids in ({}, {"domains": {"thing": 7}, "fitted": None}):
        old.metadata["ids"] = ids
        assert "ids: expected a note of what ids mean" in refused(old, datasets["grown"])
