"""Runs on a dataset with one row per user: no model and no option of a run knows the difference."""

from __future__ import annotations

import numpy as np
import pytest
from processes import losses
from small_users import write_users_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    lengths = np.random.default_rng(0).integers(2, 25, 40).tolist()
    return write_users_dataset(tmp_path_factory.mktemp("users") / "dataset", [[lengths]])


def config_of(users, results, **changes):
    values = {
        "dataset_dir": users,
        "model_type": "din",
        "model_options": {"embedding_dim": 4, "stage_two_mlp_dims": (8,)},
        "global_batch_size": 128,
        "epochs": 2,
        "seed": 5,
        "fresh_negatives": True,
        "results_dir": results,
    }
    return RunConfig(**{**values, **changes})


@pytest.fixture(scope="module")
def whole(users, tmp_path_factory):
    """A run of 8 steps an epoch, with all its checkpoints: its directory and its results."""
    directory = tmp_path_factory.mktemp("whole")
    saving = {"save_checkpoint_path": directory, "checkpoint_every": 4, "keep_checkpoints": 9}
    return directory, run(config_of(users, directory / "results", **saving))


@pytest.mark.slow
def test_a_run_that_goes_on_within_an_epoch_ends_as_one_that_was_not_stopped(
    users, whole, tmp_path
):
    directory, ended = whole
    middle = directory / "step-0000000012"
    resumed = run(config_of(users, tmp_path, load_checkpoint_path=middle))
    assert resumed["test_auc"] == ended["test_auc"]
    after = {step: x for step, x in losses(directory / "results").items() if step > 12}
    assert losses(tmp_path) == after


def test_inference_scores_the_same_test_samples(users, whole, tmp_path):
    directory, ended = whole
    inferred = run(config_of(users, tmp_path, mode="inference", load_checkpoint_path=directory))
    assert inferred["test_auc"] == pytest.approx(ended["test_auc"])


def test_other_draws_within_an_epoch_are_refused(users, whole, tmp_path):
    middle = whole[0] / "step-0000000012"
    config = config_of(users, tmp_path, load_checkpoint_path=middle, fresh_negatives=False)
    with pytest.raises(MerlinSimError, match="fresh_negatives"):
        run(config)
