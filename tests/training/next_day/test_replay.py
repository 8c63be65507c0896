"""Feeds of new data with old rows in each batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.runs.replay import ReplayFeed
from merlin_sim.training.runs.replayed import batch_shares


def replaying(keyed, ranks=None, sizes=(30, 10)):
    """A feed of 240 new rows, and 240 old ones, whose users tell which is which."""
    feeds = []
    for name, size, drop_last in (("grown", sizes[0], False), ("old", sizes[1], True)):
        dataset = DatasetDirectory.open(keyed / name)
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


def test_each_batch_has_its_old_rows_and_each_epoch_all_new_ones(keyed):
    feed = replaying(keyed)
    plan = feed.plan(0)
    new = {row for batch in alone(keyed, "grown") for row in rows_of(batch)}
    old = {row for batch in alone(keyed, "old") for row in rows_of(batch)}
    replayed = []
    for epoch in range(3):
        feed.start_at(epoch)
        batches = [rows_of(batch) for batch in feed]
        rows = [plan.batch_rows(step) + 10 for step in range(plan.steps)]
        assert [len(batch) for batch in batches] == rows
        assert plan.steps == 8 and len(batches) == 8
        of_new = [row for batch in batches for row in batch[:-10]]
        assert len(of_new) == 240 and set(of_new) == new
        replayed += [row for batch in batches for row in batch[-10:]]
    # 24 steps of 10 rows are one epoch of the 240 old rows: each comes once.
    assert len(replayed) == 240 and set(replayed) == old


def alone(keyed, name):
    dataset = DatasetDirectory.open(keyed / name)
    return open_loader(dataset, "train", dataset.schema.column_names, 60, Ranks())


def test_it_goes_on_at_any_step_as_if_it_had_never_stopped(keyed):
    feed = replaying(keyed, sizes=(30, 14))  # the old epochs end within the new ones
    whole = []
    for epoch in range(3):
        feed.start_at(epoch)
        whole += [rows_of(batch) for batch in feed]
    for epoch, step in ((0, 5), (1, 0), (2, 3)):
        feed.start_at(epoch, step)
        assert [rows_of(batch) for batch in feed] == whole[8 * epoch + step : 8 * (epoch + 1)]


def test_ranks_together_see_what_one_sees(keyed):
    whole, *both = (replaying(keyed, ranks) for ranks in (Ranks(), Ranks(0, 2), Ranks(1, 2)))
    for feed in (whole, *both):
        feed.start_at(1, 2)
    for one, *parts in zip(whole, *both, strict=True):
        together = [row for part in parts for row in rows_of(part)]
        assert sorted(together) == sorted(rows_of(one))


def test_shares_are_whole_and_neither_is_nothing():
    assert batch_shares(40, 0.25, 1) == (30, 10)
    assert batch_shares(40, 0.999, 4) == (4, 36)
    with pytest.raises(MerlinSimError, match="should be 8 or more with `replay`.*Received: 4"):
        batch_shares(4, 0.5, 4)


def test_a_share_that_ranks_cannot_have_is_refused():
    assert [batch_shares(256, 0.1, 16 * ranks).old for ranks in (1, 2)] == [32, 32]
    nearest = r"batch of 256 in parts of 64 samples.*nearest is 0\.25\. Received: 0\.1"
    with pytest.raises(MerlinSimError, match=nearest):
        batch_shares(256, 0.1, 16 * 4)
    with pytest.raises(MerlinSimError, match=r"`replay`.*nearest is 0\.1\. Received: 0\.001"):
        batch_shares(40, 0.001, 4)
