"""Runs on a dataset with one row per user, by default from batches of users x candidates."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from grouped_batches import losses_and_gradients
from processes import LOSSES, entries, losses
from small_users import RULES, write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.known_families import find_family
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.scored_rows import TEST_SCORES, exact_auc
from merlin_sim.training.reports.run_results import read_results
from merlin_sim.training.runs.run import run, settle_candidates
from merlin_sim.training.runs.run_config import RunConfig

pytestmark = pytest.mark.slow

SIM = {
    "embedding_dim": 4,
    "stage_one_mlp_dims": (8,),
    "stage_two_mlp_dims": (8, 4),
    "aux_mlp_dims": (6,),
    "long_seq_length": 4,
    "top_k": 2,
}
LENGTHS = np.random.default_rng(0).integers(2, 25, 40).tolist()


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """Two files, unequal row groups; of test some users have three positions, some none.

    Some users have no id, and are told apart nevertheless.
    """
    groups = [[LENGTHS[:5], LENGTHS[5:17]], [LENGTHS[17:]]]
    users = write_users_dataset(tmp_path_factory.mktemp("users") / "dataset", groups)
    for file in sorted(users.glob("users/*")):
        table = pq.read_table(file)
        ends = table["test_end"].to_pylist()
        begins = [max(0, end - number % 4) for number, end in enumerate(ends)]
        changed = {
            "test_begin": begins,
            "train_end": begins,
            "train_begin": [min(1, begin) for begin in begins],
            "user": [user if user % 3 else 0 for user in table["user"].to_pylist()],
        }
        for name, values in changed.items():
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
        pq.write_table(table, file, row_group_size=4)
    return users


def positions_of(users, mapping):
    """How many positions each user has in a part of the data."""
    table = pa.concat_tables([pq.read_table(file) for file in sorted(users.glob("users/*"))])
    return table[f"{mapping}_end"].to_numpy() - table[f"{mapping}_begin"].to_numpy()


def config_of(users, results, **changes):
    values = {
        "dataset_dir": users,
        "model_type": "din",
        "model_options": {"embedding_dim": 4, "stage_two_mlp_dims": (8,), "dropout_rate": 0.2},
        "global_batch_size": 128,
        "epochs": 2,
        "seed": 5,
        "fresh_negatives": True,
        "results_dir": results,
    }
    return RunConfig(**{**values, **changes})


def run_whole(users, directory, **options):
    """Run with all its checkpoints; gives the directory and the results."""
    saving = {"save_checkpoint_path": directory, "checkpoint_every": 4, "keep_checkpoints": 9}
    ended = run(config_of(users, directory / "results", **saving, **options))
    # A negative and a positive for each position.
    assert ended["samples"] == options.get("epochs", 2) * 2 * positions_of(users, "train").sum()
    evaluation = json.loads((directory / "results/evaluation.json").read_text())
    assert evaluation["rows"] == 2 * positions_of(users, "test").sum()
    return directory, ended


@pytest.fixture(scope="module")
def whole(users, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return run_whole(users, directory, evals_per_epoch=2, save_scores=True)


def assert_goes_on(users, whole, results, step, **options):
    """From a step on it ends as the run that was not stopped; returns where it began."""
    directory, ended = whole
    middle = {"load_checkpoint_path": directory / f"step-{step:010}"}
    resumed = run(config_of(users, results, **middle, **options))
    assert resumed["test_auc"] == ended["test_auc"]
    after = {at: x for at, x in losses(directory / "results").items() if at > step}
    assert after and losses(results) == after
    epochs = entries(directory / "results", "epoch"), entries(results, "epoch")
    assert epochs[0][-1]["train_auc"] == epochs[1][-1]["train_auc"]
    return middle


def test_a_run_that_goes_on_within_an_epoch_ends_as_one_that_was_not_stopped(
    users, whole, tmp_path
):
    assert len(entries(whole[0] / "results", "evaluation")) == 2
    assert_joined_with_users(users, whole[0] / "results", whole[1])
    options = {"evals_per_epoch": 2}
    options |= assert_goes_on(users, whole, tmp_path, 12, **options)
    for other in ({"fresh_negatives": False}, {"candidates": 8}):
        with pytest.raises(MerlinSimError, match=next(iter(other))):
            run(config_of(users, tmp_path, **options, **other))


def test_plain_rows_go_on_within_an_epoch_and_are_scored_as_candidates_are(users, tmp_path, capsys):
    """Merlin's loader reads users, and their samples are made in the step."""
    options = {"positions_together": 2, "num_parallel_calls": 2, "epochs": 1}
    options |= {"global_batch_size": 100}
    directory, ended = whole = run_whole(users, tmp_path / "whole", **options)
    said = capsys.readouterr()
    assert (said.out + said.err).count("--num_parallel_calls: no effect, Merlin's loader") == 1
    assert "of the 4,096 MB of --data_memory_mb: all stay on the device" in said.out + said.err
    assert_goes_on(users, whole, tmp_path / "again", 4, **options)
    options = {"mode": "inference", "load_checkpoint_path": directory, "candidates": 6}
    options |= {"global_batch_size": 30, "save_scores": True}
    inferred = run(config_of(users, tmp_path / "scored", **options))
    assert_joined_with_users(users, tmp_path / "scored", inferred)
    for name in ("test_auc", "test_gauc", "test_log_loss"):
        assert inferred[name] == pytest.approx(ended[name], abs=1e-6)


def assert_joined_with_users(users, results, ended):
    found = pq.read_table(results / TEST_SCORES).to_pylist()
    tables = [pq.read_table(file) for file in sorted(users.glob("users/*"))]
    rows, wanted = pa.concat_tables(tables).to_pylist(), set()
    for number, row in enumerate(rows):
        positions = range(row["test_begin"], row["test_end"])
        wanted |= {(number, p, label) for p in positions for label in (False, True)}
    assert len(found) == len(wanted) > len(rows)
    assert {(s["row"], s["position"], s["label"]) for s in found} == wanted
    for sample in found:
        row = rows[sample["row"]]
        assert sample["user"] == (row["user"] or 2**40 + sample["row"])
        if sample["label"]:  # a negative was drawn
            assert sample["item"] == row["thing"][sample["position"]]
    by_user = pd.DataFrame(found).groupby("user")
    areas = [exact_auc(np.array(u["label"]), np.array(u["score"])) for _, u in by_user]
    assert ended["test_gauc"] == pytest.approx(np.average(areas, weights=by_user.size()), abs=1e-6)


def test_many_negatives_of_a_position_share_a_row(tmp_path):
    """By default 14 candidates of 2 positions with 7 samples each; of test one has 7."""
    rules = replace(RULES, negatives_per_positive=6)
    users = write_users_dataset(tmp_path / "users", [[LENGTHS[:12]]], rules)
    dataset, config = DatasetDirectory.open(users), config_of(users, tmp_path / "results")
    with pytest.raises(MerlinSimError, match="multiple of `candidates`.*`candidates` = 14"):
        run(config)
    config = replace(config, global_batch_size=56)
    assert settle_candidates(config, dataset, find_family("din"), Ranks()) == 14
    for mapping, positions in (("train", sum(LENGTHS[:12]) - 2 * 12), ("test", 12)):
        feed = open_loader(dataset, mapping, ["label"], 56, Ranks(), candidates=14)
        assert sum(float(np.sum(weights)) for _, _, weights in feed) == 7 * positions


def test_times_are_read_by_users_x_candidates_as_by_rows(tmp_path):
    """All samples in one batch have the loss and the gradients of the same samples as rows."""
    users = write_users_dataset(tmp_path / "users", [[LENGTHS[:12]]], time_intervals="seconds")
    dataset = DatasetDirectory.open(users)
    twin = {"embedding_dim": 4, "long_seq_length": 5, "top_k": 2, "stage_two_mlp_dims": (8,)}
    model = build_model("twin", dataset.schema, **twin)
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    names, steps = list(model.training_columns), []
    for candidates in (1, 8):
        feed = open_loader(dataset, "train", names, 4096, Ranks(), candidates=candidates)
        steps.append(losses_and_gradients(model, *next(iter(feed))))
        feed.stop()
    np.testing.assert_allclose(steps[0][0], steps[1][0], rtol=1e-5)
    for ours, theirs in zip(steps[0][2], steps[1][2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_throughput_counts_samples_and_no_fillers(users, tmp_path):
    reported = {}
    for mode in ("train", "inference"):
        steps = {"benchmark": True, "benchmark_steps": None, "benchmark_warmup_steps": 0}
        reported[mode] = run(config_of(users, tmp_path, mode=mode, **steps, candidates=8))
    spent = {mode: values["latency_mean"] / 1000 for mode, values in reported.items()}
    # Of rows of 8 candidates, which are 4 positions, train has 16 a batch.
    steps = -(-sum(-(-positions_of(users, "train") // 4)) // 16)
    samples = 2 * positions_of(users, "train").sum()
    assert reported["train"]["throughput"] * spent["train"] * steps == pytest.approx(samples)
    samples = 2 * reported["inference"]["throughput"] * spent["inference"]  # in two batches
    assert samples == pytest.approx(2 * positions_of(users, "test").sum())


def test_candidates_train_compiled(users, tmp_path):
    """SIM, which has the parts of the other models: its losses after each of four steps."""
    options = {"model_type": "sim", "model_options": SIM, "log_format": "dllogger"}
    options |= {"benchmark": True, "benchmark_steps": 4, "benchmark_warmup_steps": 0}
    found = []
    for xla in (False, True):
        run(config_of(users, tmp_path / f"{xla}", **options, xla=xla))
        steps = read_results(tmp_path / f"{xla}").steps
        found.append([[step[name] for name in LOSSES] for step in steps])
    assert len(found[0]) == 4
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)
