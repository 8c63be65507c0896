"""What a model begins with whose tables have more rows than those of the checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from grown_dataset import MORE, SIZES, kinds_of, write_keyed_dataset
from small_runs import DIN, TWO_TOWER

from merlin_sim.models import build_model
from merlin_sim.models.saving import table_names
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointError, CheckpointStore
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fingerprint import fingerprint
from merlin_sim.schemas.known_keys import note_of
from merlin_sim.training.checkpoints.run_state import RATE, RunFacts, RunState
from merlin_sim.training.checkpoints.warm_start import WarmStart

UNTRAINED = 4
"""A thing whose row never had a gradient."""


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("keyed")
    return {
        "old": DatasetDirectory.open(write_keyed_dataset(root / "old")),
        "grown": DatasetDirectory.open(write_keyed_dataset(root / "grown", grown=True)),
        "other": DatasetDirectory.open(write_keyed_dataset(root / "other", True, order=-1)),
    }


def make_state(dataset, optimizer="adam", family="din", **changes):
    tf.keras.utils.set_random_seed(6)
    options = {**(TWO_TOWER if family == "two_tower" else DIN), **changes}
    model = build_model(family, dataset.schema, **options)
    made = make_optimizer(optimizer, model.trainable_variables, 0.01)
    note = note_of(dataset).to_dict()
    facts = RunFacts(
        family, model.options.to_dict(), optimizer, fingerprint(dataset), False, {"seed": 1}, note
    )
    return RunState(model, made, LossScale(False), facts)


def save(state, place):
    """Save a state in which every number is another one, but for a row that was not trained."""
    random = np.random.default_rng(1)
    for name, variable in state.variables.items():
        values = random.uniform(0.1, 1, variable.shape)
        if name.startswith("body") and "thing" in name and name.endswith(("/m", "/v", "/sum")):
            values[UNTRAINED] = 0
        variable.assign(values.astype(variable.dtype.as_numpy_dtype))
    state.position.steps, state.position.epoch = 70, 2
    CheckpointStore(place).save(70, *state.to_checkpoint())
    return CheckpointStore(place).load()


@pytest.mark.parametrize("optimizer", ["adam", "lazy_adam", "adagrad", "sgd"])
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
            for place, kind in enumerate(kinds[len(stored) :]):
                same = trained & (kinds[: len(stored)] == kind)
                expected[place] = stored[same].mean(axis=0) if same.any() else overall
            assert not np.allclose(expected[0], expected[1])
            assert np.allclose(expected[-1], overall)  # of a kind that nothing known is of
        np.testing.assert_allclose(new, expected, rtol=1e-5)
    assert (state.position.epoch, state.position.steps) == (0, 70)


def test_random_rows_are_those_of_a_new_model(datasets, tmp_path):
    checkpoint = save(make_state(datasets["old"]), tmp_path)
    state = make_state(datasets["grown"])
    drawn = {name: state.variables[name].numpy() for name in table_names(state.model)}
    WarmStart(state, datasets["grown"], "random").restore(checkpoint)
    for name, before in drawn.items():
        count = len(checkpoint.arrays[name])
        assert np.array_equal(state.variables[name].numpy()[count:], before[count:])
        assert np.array_equal(state.variables[name].numpy()[:count], checkpoint.arrays[name])


@pytest.mark.slow
def test_popularity_is_not_taken_over_as_the_data_are_others(datasets, tmp_path):
    checkpoint = save(make_state(datasets["old"], family="two_tower"), tmp_path)
    assert "_log_chances" in checkpoint.arrays.index
    state = make_state(datasets["grown"], family="two_tower")
    warm = WarmStart(state, datasets["grown"], "mean")
    warm.restore(checkpoint)
    assert warm.added == MORE and not state.variables["_log_chances"].numpy().any()


def test_another_order_of_keys_is_refused(datasets, tmp_path):
    checkpoint = save(make_state(datasets["old"]), tmp_path)
    warm = WarmStart(make_state(datasets["other"]), datasets["other"], "mean")
    with pytest.raises(CheckpointError) as raised:
        warm.restore(checkpoint)
    said = str(raised.value)
    assert "thing: the first 60 keys of" in said and "who: the first 50 keys of" in said
    assert "did not grow from that of the checkpoint" in said


def test_a_dataset_that_shrank_is_refused(datasets, tmp_path):
    checkpoint = save(make_state(datasets["grown"]), tmp_path)
    warm = WarmStart(make_state(datasets["old"]), datasets["old"], "mean")
    with pytest.raises(CheckpointError, match="its ids should end at 69 or later"):
        warm.restore(checkpoint)


def test_another_model_or_optimizer_is_refused(datasets, tmp_path):
    checkpoint = save(make_state(datasets["old"]), tmp_path)
    state = make_state(datasets["grown"], "adagrad", embedding_dim=8)
    with pytest.raises(CheckpointError) as raised:
        WarmStart(state, datasets["grown"], "mean").restore(checkpoint)
    assert str(raised.value).splitlines()[1:] == [
        "  `optimizer` should be the checkpoint's, adam. Received: adagrad",
        "  `embedding_dim` should be the checkpoint's, 4. Received: 8",
    ]


def test_options_that_are_newer_than_a_checkpoint_have_their_defaults(datasets, tmp_path):
    checkpoint = save(make_state(datasets["old"]), tmp_path)
    del checkpoint.facts["model_options"]["history_counts"]
    WarmStart(make_state(datasets["old"]), datasets["old"], "mean").restore(checkpoint)
    counting = make_state(datasets["old"], history_counts=True)
    with pytest.raises(CheckpointError, match="`history_counts` should be the checkpoint's, false"):
        WarmStart(counting, datasets["old"], "mean").restore(checkpoint)


@pytest.mark.parametrize("ids", [{}, {"domains": {"thing": 7}, "fitted": None}])
def test_a_checkpoint_whose_note_of_ids_is_none_is_refused(datasets, tmp_path, ids):
    checkpoint = save(make_state(datasets["old"]), tmp_path)
    checkpoint.facts["ids"] = ids
    warm = WarmStart(make_state(datasets["grown"]), datasets["grown"], "mean")
    with pytest.raises(CheckpointError, match="ids: expected a note of what ids mean"):
        warm.restore(checkpoint)
