"""Runs that begin with what a run on the dataset before has learned."""

from __future__ import annotations

import dataclasses
import json

import commands_worker
import numpy as np
import pytest
from grown_dataset import MORE, write_keyed_dataset
from processes import horovodrun
from processes import run as run_process
from small_runs import DIN
from warm import warm

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("warm")
    write_keyed_dataset(root / "old")
    write_keyed_dataset(root / "grown", grown=True)
    return root


@pytest.fixture(scope="module")
def first(place):
    """A run on the dataset as it was."""
    config = RunConfig(
        dataset_dir=place / "old",
        model_type="din",
        model_options=DIN,
        global_batch_size=40,
        epochs=2,
        seed=5,
        results_dir=place / "first",
        save_checkpoint_path=place / "first/checkpoints",
    )
    run(config)
    return config


def grown(first, place, folder, **changes):
    values = {
        "dataset_dir": place / "grown",
        "epochs": 1,
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
    assert begin["new_rows"] == MORE and begin["step"] == before == 12
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


def test_the_resume_of_another_dataset_names_the_warm_start(first, place, tmp_path):
    config = grown(first, place, tmp_path, warm_start=None)
    config = dataclasses.replace(config, load_checkpoint_path=first.save_checkpoint_path, epochs=3)
    with pytest.raises(MerlinSimError, match="its dataset should be .*name it by --warm_start"):
        run(config)


def test_inference_says_that_the_dataset_grew_and_what_to_do(first, place, tmp_path):
    options = {"dataset_dir": place / "grown", "mode": "inference", "results_dir": tmp_path}
    loaded = {"load_checkpoint_path": first.save_checkpoint_path, "save_checkpoint_path": None}
    with pytest.raises(MerlinSimError) as raised:
        run(dataclasses.replace(first, **options, **loaded))
    said = str(raised.value)
    assert f"{place / 'grown'} has grown since " in said
    assert "thing: 60 ids are known, the dataset has 69" in said
    assert "train --warm_start" in said and "--fitted without --grow" in said


def test_what_is_not_right_is_said_before_anything_is_made(first, place, tmp_path):
    with pytest.raises(MerlinSimError, match="holds no checkpoint"):
        run(grown(first, place, tmp_path, warm_start=tmp_path / "nothing"))
    with pytest.raises(MerlinSimError, match="`new_rows` should be given with warm_start only"):
        grown(first, place, tmp_path, warm_start=None, new_rows="random")
    with pytest.raises(MerlinSimError, match="`new_rows` should be one of mean, random"):
        grown(first, place, tmp_path, new_rows="zero")


@pytest.mark.slow
@pytest.mark.horovod
@pytest.mark.parametrize(
    "ways", [[], ["--tables", "spread", "--cut", "rows"]], ids=["whole", "cut"]
)
def test_two_ranks_begin_as_one(first, place, tmp_path, ways):
    steps = CheckpointStore(first.save_checkpoint_path).load().facts["steps"]
    held = {"known_rows_rate": 0.5}  # of parts of tables as of whole ones
    run(grown(first, place, tmp_path / "one", max_steps=steps + 1, **held))
    saved = tmp_path / "two/checkpoints"
    words = ["train", "--dataset_dir", place / "grown", "--model_type", "din"]
    words += ["--embedding_dim", 4, "--stage_two_mlp_dims", 8, "--global_batch_size", 40]
    words += [
        "--epochs",
        1,
        "--seed",
        6,
        "--max_steps",
        steps + 1,
        "--results_dir",
        tmp_path / "two",
    ]
    words += ["--save_checkpoint_path", saved, "--warm_start", first.save_checkpoint_path, *ways]
    words += ["--known_rows_rate", held["known_rows_rate"]]
    launch = [*horovodrun(2), *warm(commands_worker.__file__, json.dumps([list(map(str, words))]))]
    done = run_process(launch, seconds=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    one = CheckpointStore(tmp_path / "one/checkpoints").load().arrays
    two = CheckpointStore(saved).load().arrays
    assert set(one) == set(two)
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-5, err_msg=name)
