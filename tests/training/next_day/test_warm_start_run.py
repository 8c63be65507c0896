"""Runs that begin with what a run on the dataset before has learned, and hold on to it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from grown_dataset import MORE
from small_runs import DIN

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fingerprint import fingerprint
from merlin_sim.training.checkpoints.run_state import replayed_dataset
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def first(keyed, tmp_path_factory):
    """A run on the dataset as it was."""
    folder = tmp_path_factory.mktemp("first")
    config = RunConfig(
        dataset_dir=keyed / "old",
        model_type="din",
        model_options=DIN,
        global_batch_size=40,
        epochs=1,
        seed=5,
        results_dir=folder,
        save_checkpoint_path=folder / "checkpoints",
    )
    run(config)
    return config


def grown(first, keyed, folder, **changes):
    values = {
        "dataset_dir": keyed / "grown",
        "seed": 6,
        "results_dir": folder,
        "save_checkpoint_path": folder / "checkpoints",
        "warm_start": first.save_checkpoint_path,
    }
    return dataclasses.replace(first, **{**values, **changes})


def test_a_run_goes_on_with_grown_and_old_data_and_is_resumed_within_an_epoch(
    first, keyed, tmp_path
):
    """The checkpoint says which model it is of; known rows stay as they are."""
    bare = {"model_type": None, "model_options": {"embedding_dim": 4}}
    replay = {"replay": f"{keyed / 'old'}:0.25", "epochs": 2, "known_rows_rate": 0.0}
    config = grown(first, keyed, tmp_path, **bare, **replay, checkpoint_every=17)
    whole = run(config)
    lines = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    (begin,) = [entry for entry in lines if entry["type"] == "warm_start"]
    start = CheckpointStore(first.save_checkpoint_path).load()
    before = start.metadata["steps"]
    assert begin["new_rows"] == MORE and begin["step"] == before == 6
    assert [entry["epoch"] for entry in lines if entry["type"] == "epoch"] == [1, 2]
    assert lines[-1]["step"] == before + 2 * 8  # 240 rows, 30 of them in each batch
    assert "model_type: din" in (tmp_path / "config.yaml").read_text()
    within = tmp_path / "checkpoints/step-0000000017"
    old = fingerprint(DatasetDirectory.open(keyed / "old"))
    assert replayed_dataset(CheckpointStore(within).load().metadata) == old
    parts = {"results_dir": tmp_path / "parts", "save_checkpoint_path": tmp_path / "resumed"}
    resumed = dataclasses.replace(config, load_checkpoint_path=within, **parts)
    with pytest.raises(MerlinSimError, match="it lies within an epoch, whose order of rows"):
        run(dataclasses.replace(resumed, replay=f"{keyed / 'old'}:0.5"))
    found = run(resumed)
    for name in ("test_auc", "total_loss"):
        assert found[name] == whole[name]
    for directory in (tmp_path / "checkpoints", tmp_path / "resumed"):
        assert_known_rows_stay_and_new_ones_learn(start.arrays, directory)


def assert_known_rows_stay_and_new_ones_learn(before, directory):
    after = CheckpointStore(directory).load().arrays
    tables = [name for name in before if name.endswith("embeddings")]
    assert len(tables) == 3
    for name in tables:
        known = len(before[name])
        np.testing.assert_array_equal(after[name][:known], before[name])
        assert len(after[name]) > known
        new = after[name][known:]
        assert len(np.unique(new, axis=0)) > 1  # of users all began as the same mean
    kernels = [name for name in before if name.endswith("kernel")]
    assert kernels and all((after[name] != before[name]).any() for name in kernels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 6}, "`max_steps` should be more than 6, .* Received: 6"),
        (
            {"decay_start_step": 2, "decay_steps": 4},
            r"`decay_start_step` \+ `decay_steps` should be more than 6, .* Received: 2 \+ 4",
        ),
    ],
)
def test_a_warm_start_that_would_train_nothing_is_refused(first, keyed, tmp_path, options, message):
    """Steps go on to be counted, and six are done."""
    with pytest.raises(MerlinSimError, match=message):
        run(grown(first, keyed, tmp_path, **options))


def test_the_resume_of_another_dataset_names_the_warm_start(first, keyed, tmp_path):
    config = grown(first, keyed, tmp_path, warm_start=None)
    config = dataclasses.replace(config, load_checkpoint_path=first.save_checkpoint_path, epochs=3)
    with pytest.raises(MerlinSimError, match="its dataset should be .*name it by --warm_start"):
        run(config)


def test_inference_says_that_the_dataset_grew_and_what_to_do(first, keyed, tmp_path):
    options = {"dataset_dir": keyed / "grown", "mode": "inference", "results_dir": tmp_path}
    loaded = {"load_checkpoint_path": first.save_checkpoint_path, "save_checkpoint_path": None}
    with pytest.raises(MerlinSimError) as raised:
        run(dataclasses.replace(first, **options, **loaded))
    said = str(raised.value)
    assert f"{keyed / 'grown'} has grown since " in said
    assert "thing: 60 ids are known, the dataset has 69" in said
    assert "train --warm_start" in said and "--fitted without --grow" in said


def test_what_is_not_right_is_said_before_anything_is_made(first, keyed, tmp_path):
    with pytest.raises(MerlinSimError, match="holds no checkpoint"):
        run(grown(first, keyed, tmp_path, warm_start=tmp_path / "nothing"))
    with pytest.raises(MerlinSimError, match="`new_rows` should be given with warm_start only"):
        grown(first, keyed, tmp_path, warm_start=None, new_rows="random")
    with pytest.raises(MerlinSimError, match="`new_rows` should be one of mean, random"):
        grown(first, keyed, tmp_path, new_rows="zero")


def test_old_data_that_does_not_fit_is_refused_with_both_names(first, keyed, tmp_path):
    def refused(**changes):
        with pytest.raises(MerlinSimError) as error:
            run(grown(first, keyed, tmp_path, **changes))
        return str(error.value)

    said = refused(replay=f"{keyed / 'other'}:0.2")
    assert f"{keyed / 'other'} cannot be replayed with {keyed / 'grown'}" in said
    assert "should be those that are known, in their order" in said
    said = refused(dataset_dir=keyed / "old", replay=f"{keyed / 'grown'}:0.2")
    assert "its ids should end at" in said
    assert "expected a dataset directory" in refused(replay=f"{tmp_path / 'nothing'}:0.2")
    for wrong in ("old", ":0.2", "old:1", "old:0", "old:x", "old:nan"):
        assert "`replay` should be a directory and a share" in refused(replay=wrong)
    assert "`known_rows_rate` should be given with warm_start only" in refused(
        known_rows_rate=0.5, warm_start=None
    )
    assert "`known_rows_rate` should be 0 or more" in refused(known_rows_rate=-1.0)
