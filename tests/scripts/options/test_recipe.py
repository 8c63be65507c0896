"""How a log of one's own is trained where nobody says otherwise."""

from __future__ import annotations

import json

import in_process
import numpy as np
import pandas as pd
import pytest
import yaml

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models.known_families import presets
from merlin_sim.models.trainable_model import TrainableModel
from merlin_sim.scripts.options.run_options import with_recipe
from merlin_sim.training.runs.opened_dataset import open_dataset
from merlin_sim.training.runs.recipe import is_own_log
from merlin_sim.training.runs.run_config import RunConfig

LIFELONG = dict(presets()["lifelong"].values)


def preprocess(directory, *options):
    """Make a dataset directory of a small log by the real command."""
    random = np.random.default_rng(3)
    rows = [
        {"who": user, "what": int(random.integers(1, 31)), "when": 1000 * user + n}
        for user in range(40)
        for n in range(12)
    ]
    log = directory.with_suffix(".csv")
    pd.DataFrame(rows).to_csv(log, index=False)
    words = ["preprocess", "log", log, "--output_path", directory, "--user_column", "who"]
    words += ["--item_column", "what", "--timestamp_column", "when", *options]
    done = in_process.answer(*words, "--shortest_sequence_for_user", 2)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    dataset = tmp_path_factory.mktemp("own") / "dataset"
    said = preprocess(
        dataset, "--layout", "users", "--test_users", "0.2", "--validation_users", "0.2"
    )
    assert said.splitlines()[-1].startswith(f"next: merlin-sim train --dataset_dir {dataset}")
    return dataset


def configured(dataset, *words):
    """What `train` means on a dataset, and what it says of that."""

    def settled(ctx, config):
        return with_recipe(ctx, config, open_dataset(config))

    return in_process.parsed("--dataset_dir", dataset, *words, then=settled)


def test_a_log_of_one_s_own_is_trained_by_the_preset_with_a_batch_for_its_size(own):
    config, said = configured(own)
    assert config.model_type == "sim" and config.model_options["history_counts"] is True
    assert config.model_options["dropout_rate"] == LIFELONG["dropout_rate"]
    assert config.table_weight_decay == LIFELONG["table_weight_decay"]
    assert config.table_lr_scale == LIFELONG["table_lr_scale"] < 1
    assert (config.global_batch_size, config.lr) == (256, 0.0014)
    assert (config.early_stopping, config.epochs) == (1, 10)
    assert f"{own} is of a log of your own, with " in said and "--preset published is" in said
    assert "--global_batch_size 256" in said and "--lr 0.0014" in said


def test_what_is_given_wins_and_the_rate_is_for_the_batch_that_is_given(own):
    words = ["--global_batch_size", 2048, "--early_stopping", 0, "--epochs", 2]
    config, said = configured(own, *words, "--history_counts", "false")
    assert (config.global_batch_size, config.lr) == (2048, 0.004)
    assert (config.early_stopping, config.epochs) == (None, 2)
    assert config.model_options["history_counts"] is False
    assert "global_batch_size" not in said
    assert configured(own, "--lr", 0.5)[0].lr == 0.5


def test_a_model_that_is_named_keeps_its_own_options(own):
    config, _ = configured(own, "--model_type", "twin")
    assert (config.model_type, dict(config.model_options)) == ("twin", {})
    assert config.table_weight_decay is None
    assert (config.global_batch_size, config.early_stopping) == (256, 1)
    asked, _ = configured(own, "--model_type", "twin", "--preset", "lifelong")
    assert asked.model_options["history_counts"] is True and asked.global_batch_size == 256
    other, _ = configured(own, "--model_type", "dien", "--preset", "lifelong")
    assert asked.model_options.keys() - other.model_options.keys() == {"attention_sums"}  # no such


def test_the_published_recipe_is_asked_for_or_is_that_of_another_dataset(
    own, sim_dataset, tmp_path
):
    assert configured(own, "--preset", "published") == (RunConfig(dataset_dir=own), "")
    assert configured(sim_dataset) == (RunConfig(dataset_dir=sim_dataset), "")
    rules = {"equal_times": "item"}  # as of amazon-books
    operator = {"operator": "GroupHistories", "config": {"rules": rules}}
    for text in (json.dumps({"operators": [operator]}), "no JSON"):
        (tmp_path / "workflow.json").write_text(text)
        assert not is_own_log(tmp_path)


def test_a_model_that_goes_on_has_the_options_of_its_checkpoint(own, tmp_path):
    config, _ = configured(own, "--warm_start", tmp_path)
    assert (config.model_type, dict(config.model_options)) == (None, {})
    assert config.global_batch_size == 256


def test_the_configuration_that_a_run_leaves_means_the_same_run(own, tmp_path):
    for words in ([], ["--early_stopping", "0"], ["--preset", "published"]):
        config, _ = configured(own, *words)
        config.write(tmp_path / "config.yaml")
        again, said = configured(own, "--config", tmp_path / "config.yaml")
        assert again == config and said == ""


def test_the_batch_is_one_that_ranks_and_users_can_share(own, tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert configured(own)[0].global_batch_size == 240  # 5 users of 16 samples on each rank
    dataset = tmp_path / "dataset"
    preprocess(dataset, "--layout", "users", "--negatives_per_positive", "4")
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    assert configured(dataset)[0].global_batch_size == 255


@pytest.mark.slow
def test_a_run_says_what_it_chose_and_logs_it(own, monkeypatch, tmp_path):
    """Up to its first step; README.md's blocks, which are run, train so to the end."""

    def end(model):
        raise MerlinSimError("the first step")

    monkeypatch.setattr(TrainableModel, "make_train_function", end)
    words = ["train", "--dataset_dir", own, "--results_dir", tmp_path]
    # Of the longest history, 100 positions, the short one has 2.
    done = in_process.answer(*words, "--embedding_dim", 4, "--long_seq_length", 98)
    assert done.returncode == 2 and "the first step" in done.stderr
    assert "is of a log of your own, with" in done.stderr
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written["history_counts"] is True and written["global_batch_size"] == 256
    assert written["early_stopping"] == 1
