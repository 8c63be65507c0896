"""Runs on new data that hold on to what old data taught: replay, and rows that move less."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from grown_dataset import write_keyed_dataset
from small_runs import DIN

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.runs.replay import ReplayFeed
from merlin_sim.training.runs.replayed import batch_shares
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("days")
    write_keyed_dataset(root / "old")
    write_keyed_dataset(root / "grown", grown=True)
    write_keyed_dataset(root / "other", order=-1)
    return root


@pytest.fixture(scope="module")
def first(place):
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
        "results_dir": folder,
        "save_checkpoint_path": folder / "checkpoints",
        "warm_start": first.save_checkpoint_path,
    }
    return dataclasses.replace(first, **{**values, **changes})


def replaying(place, ranks=None, sizes=(30, 10)):
    """A feed of 240 new rows, and 240 old ones, whose users tell which is which."""
    feeds = []
    for name, size, drop_last in (("grown", sizes[0], False), ("old", sizes[1], True)):
        dataset = DatasetDirectory.open(place / name)
        columns = dataset.schema.column_names
        feeds.append(
            open_loader(
                dataset, "train", columns, size, ranks or Ranks(), shuffle=True, seed=3,
                drop_last=drop_last,
            )
        )  # fmt: skip
    return ReplayFeed(*feeds)


def rows_of(batch):
    """What tells a row of a batch from others."""
    columns, labels = batch[:2]
    values = [tf.reshape(labels, [labels.shape[0], -1]).numpy()]
    values += [value.numpy().reshape(len(value), -1) for _, value in sorted(columns.items())]
    return [tuple(row) for row in np.concatenate(values, axis=1).tolist()]


def test_each_batch_has_its_old_rows_and_each_epoch_all_new_ones(place):
    feed = replaying(place)
    plan = feed.plan(0)
    new = {row for batch in alone(place, "grown") for row in rows_of(batch)}
    old = {row for batch in alone(place, "old") for row in rows_of(batch)}
    replayed = []
    for epoch in range(3):
        feed.start_at(epoch)
        batches = [rows_of(batch) for batch in feed]
        assert [len(batch) for batch in batches] == [plan.batch_rows(i) for i in range(plan.steps)]
        assert plan.steps == 8 and len(batches) == 8
        of_new = [row for batch in batches for row in batch[:-10]]
        assert len(of_new) == 240 and set(of_new) == new
        replayed += [row for batch in batches for row in batch[-10:]]
    # 24 steps of 10 rows are one epoch of the 240 old rows: each comes once.
    assert len(replayed) == 240 and set(replayed) == old


def alone(place, name):
    dataset = DatasetDirectory.open(place / name)
    return open_loader(dataset, "train", dataset.schema.column_names, 60, Ranks())


def test_it_goes_on_at_any_step_as_if_it_had_never_stopped(place):
    feed = replaying(place, sizes=(30, 14))  # the old epochs end within the new ones
    whole = []
    for epoch in range(3):
        feed.start_at(epoch)
        whole += [rows_of(batch) for batch in feed]
    for epoch, step in ((0, 5), (1, 0), (2, 3)):
        feed.start_at(epoch, step)
        assert [rows_of(batch) for batch in feed] == whole[8 * epoch + step : 8 * (epoch + 1)]


def test_ranks_together_see_what_one_sees(place):
    whole, *both = (replaying(place, ranks) for ranks in (Ranks(), Ranks(0, 2), Ranks(1, 2)))
    for feed in (whole, *both):
        feed.start_at(1, 2)
    for one, *parts in zip(whole, *both, strict=True):
        together = [row for part in parts for row in rows_of(part)]
        assert sorted(together) == sorted(rows_of(one))


def test_shares_are_whole_and_neither_is_nothing():
    assert batch_shares(40, 0.25, 1) == (30, 10)
    assert batch_shares(40, 0.001, 4) == (36, 4) and batch_shares(40, 0.999, 4) == (4, 36)
    with pytest.raises(MerlinSimError, match="should be 8 or more with `replay`.*Received: 4"):
        batch_shares(4, 0.5, 4)


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
    first = dataclasses.replace(first, optimizer=optimizer, save_checkpoint_path=tmp_path / "first")
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


def test_what_does_not_fit_is_refused_with_both_names(first, place, tmp_path):
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
