"""Runs that begin with what a run on the dataset before has learned, and hold on to it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from grown_dataset import MORE, write_keyed_dataset
from small_runs import DIN

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("warm")
    write_keyed_dataset(root / "old")
    write_keyed_dataset(root / "grown", grown=True)
    write_keyed_dataset(root / "other", order=-1)
    return root


@pytest.fixture(scope="module")
def first(place):
    """A run on the dataset as it was."""
    config = RunConfig(
        dataset_dir=place / "old",
        model_type="din",
        model_options=DIN,
        global_batch_size=40,
        epochs=1,
        seed=5,
        results_dir=place / "first",
        save_checkpoint_path=place / "first/checkpoints",
    )
    run(config)
    return config


def grown(first, place, folder, **changes):
    values = {
        "dataset_dir": place / "grown",
        "seed": 6,
        "results_dir": folder,
        "save_checkpoint_path": folder / "checkpoints",
        "warm_start": first.save_checkpoint_path,
    }
    return dataclasses.replace(first, **{**values, **changes})


@pytest.mark.slow
def test_a_run_goes_on_with_grown_data_and_is_resumed_as_any_other(first, place, tmp_path):
    whole = run(grown(first, place, tmp_path / "whole", epochs=2))
    entries = [json.loads(line) for line in (tmp_path / "whole/log.json").read_text().splitlines()]
    (begin,) = [entry for entry in entries if entry["type"] == "warm_start"]
    before = CheckpointStore(first.save_checkpoint_path).load().facts["steps"]
    assert begin["new_rows"] == MORE and begin["step"] == before == 6
    assert [entry["epoch"] for entry in entries if entry["type"] == "epoch"] == [1, 2]
    assert entries[-1]["step"] == before + 12
    config = grown(first, place, tmp_path / "parts")
    run(config)
    saved = config.save_checkpoint_path
    parts = run(dataclasses.replace(config, epochs=2, load_checkpoint_path=saved))
    assert parts["test_auc"] == whole["test_auc"] and parts["total_loss"] == whole["total_loss"]


@pytest.mark.slow
def test_what_was_learned_is_there_from_the_first_step(first, place, tmp_path):
    first_entry = CheckpointStore(first.save_checkpoint_path).load()
    steps = first_entry.facts["steps"]
    config = grown(first, place, tmp_path, max_steps=steps + 1)
    run(config)
    arrays = CheckpointStore(config.save_checkpoint_path).load().arrays
    assert int(arrays["optimizer/iterations"]) == steps + 1
    for name in first_entry.arrays:
        if name.startswith("body") and name.endswith(("kernel", "bias")):
            apart = np.abs(arrays[name] - first_entry.arrays[name]).max()
            assert apart <= 4 * first.lr, name  # one step of Adam


@pytest.mark.slow
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
def test_a_warm_start_that_would_train_nothing_is_refused(first, place, tmp_path, options, message):
    """Steps go on to be counted, and six are done."""
    with pytest.raises(MerlinSimError, match=message):
        run(grown(first, place, tmp_path, **options))


@pytest.mark.slow
def test_the_resume_of_another_dataset_names_the_warm_start(first, place, tmp_path):
    config = grown(first, place, tmp_path, warm_start=None)
    config = dataclasses.replace(config, load_checkpoint_path=first.save_checkpoint_path, epochs=3)
    with pytest.raises(MerlinSimError, match="its dataset should be .*name it by --warm_start"):
        run(config)


@pytest.mark.slow
def test_inference_says_that_the_dataset_grew_and_what_to_do(first, place, tmp_path):
    options = {"dataset_dir": place / "grown", "mode": "inference", "results_dir": tmp_path}
    loaded = {"load_checkpoint_path": first.save_checkpoint_path, "save_checkpoint_path": None}
    with pytest.raises(MerlinSimError) as raised:
        run(dataclasses.replace(first, **options, **loaded))
    said = str(raised.value)
    assert f"{place / 'grown'} has grown since " in said
    assert "thing: 60 ids are known, the dataset has 69" in said
    assert "train --warm_start" in said and "--fitted without --grow" in said


@pytest.mark.slow
def test_what_is_not_right_is_said_before_anything_is_made(first, place, tmp_path):
    with pytest.raises(MerlinSimError, match="holds no checkpoint"):
        run(grown(first, place, tmp_path, warm_start=tmp_path / "nothing"))
    with pytest.raises(MerlinSimError, match="`new_rows` should be given with warm_start only"):
        grown(first, place, tmp_path, warm_start=None, new_rows="random")
    with pytest.raises(MerlinSimError, match="`new_rows` should be one of mean, random"):
        grown(first, place, tmp_path, new_rows="zero")


@pytest.mark.slow
def test_a_run_replays_and_is_resumed_within_an_epoch(first, place, tmp_path):
    replay = {"replay": f"{place / 'old'}:0.25", "epochs": 2}
    whole = run(grown(first, place, tmp_path / "whole", **replay))
    steps = CheckpointStore(first.save_checkpoint_path).load().facts["steps"]
    config = grown(first, place, tmp_path / "parts", **replay, max_steps=steps + 11)
    run(config)
    saved = config.save_checkpoint_path
    resumed = dataclasses.replace(config, max_steps=None, load_checkpoint_path=saved)
    with pytest.raises(MerlinSimError, match="it lies within an epoch, whose order of rows"):
        run(dataclasses.replace(resumed, replay=f"{place / 'old'}:0.5"))
    parts = run(resumed)
    assert parts["test_auc"] == whole["test_auc"] and parts["total_loss"] == whole["total_loss"]
    entries = [json.loads(line) for line in (tmp_path / "whole/log.json").read_text().splitlines()]
    assert entries[-1]["step"] == steps + 2 * 8  # 240 rows, 30 of them in each batch


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "lazy_adam"])
def test_known_rows_stay_and_new_ones_learn(first, place, tmp_path, optimizer):
    if optimizer != first.optimizer:
        saved = tmp_path / "first"
        first = dataclasses.replace(first, optimizer=optimizer, save_checkpoint_path=saved)
        run(first)
    before = CheckpointStore(first.save_checkpoint_path).load().arrays
    config = grown(first, place, tmp_path / "held", known_rows_rate=0.0)
    run(config)
    # A resume holds the same rows.
    run(dataclasses.replace(config, epochs=2, load_checkpoint_path=config.save_checkpoint_path))
    after = CheckpointStore(config.save_checkpoint_path).load().arrays
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


@pytest.mark.slow
def test_old_data_that_does_not_fit_is_refused_with_both_names(first, place, tmp_path):
    def refused(**changes):
        with pytest.raises(MerlinSimError) as error:
            run(grown(first, place, tmp_path, **changes))
        return str(error.value)

    said = refused(replay=f"{place / 'other'}:0.2")
    assert f"{place / 'other'} cannot be replayed with {place / 'grown'}" in said
    assert "should be those that are known, in their order" in said
    said = refused(dataset_dir=place / "old", replay=f"{place / 'grown'}:0.2")
    assert "its ids should end at" in said
    assert "expected a dataset directory" in refused(replay=f"{tmp_path / 'nothing'}:0.2")
    for wrong in ("old", ":0.2", "old:1", "old:0", "old:x", "old:nan"):
        assert "`replay` should be a directory and a share" in refused(replay=wrong)
    assert "`known_rows_rate` should be given with warm_start only" in refused(
        known_rows_rate=0.5, warm_start=None
    )
    assert "`known_rows_rate` should be 0 or more" in refused(known_rows_rate=-1.0)
