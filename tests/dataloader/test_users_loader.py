"""Samples made of users' histories: all of them, the same on any ranks, never nonsense."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_users import (
    ALL_BEFORE,
    EARLIER,
    LONGEST,
    RULES,
    as_rows,
    in_order,
    samples_of,
    write_users_dataset,
)

from merlin_sim.dataloader.draws import fresh_seed
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

opened = functools.lru_cache(DatasetDirectory.open)
"""Loaders of one opened directory share what makes their batches, which is traced once."""


def feed_of(directory, batch_size, ranks=None, mapping="train", columns=None, **options):
    dataset = opened(directory)
    names = columns or dataset.schema.column_names
    return open_loader(dataset, mapping, names, batch_size, ranks or Ranks(), seed=3, **options)


def batches_of(feed):
    return [
        as_rows({"label": label.numpy(), **{n: x.numpy() for n, x in inputs.items()}})
        for inputs, label in feed
    ]


LENGTHS = np.random.default_rng(0).integers(0, 25, 90).tolist()
FILES = [[LENGTHS[:40], LENGTHS[40:60]], [LENGTHS[60:]]]
"""Three row groups in two files; users without a sample, and without an interaction."""


@pytest.mark.parametrize("users", [ALL_BEFORE, EARLIER], indirect=True)
def test_without_shuffling_the_samples_come_in_the_order_of_the_users(users):
    for mapping in ("train", "test"):
        rows = np.concatenate(batches_of(feed_of(users, 50, mapping=mapping)))
        np.testing.assert_array_equal(rows, as_rows(samples_of(users, mapping)))


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1, 8])
def test_a_step_is_traced_once_though_the_last_batch_has_fewer_rows(users, candidates):
    feed, traced = feed_of(users, 56, shuffle=True, candidates=candidates), []

    def step(given):
        traced.append(given)
        return feed.make(given)

    compiled = tf.function(step, autograph=False)
    weights = [compiled(given)[2].numpy() for _ in range(2) for given in feed.inputs()]
    assert len(traced) == 1
    assert not all(of_step.all() for of_step in weights)


@pytest.mark.slow
def test_batches_have_the_form_of_those_of_samples_and_what_is_asked_for(users):
    inputs, label = next(iter(feed_of(users, 50)))
    assert label.dtype.name == "int8"
    assert {value.dtype.name for value in inputs.values()} == {"int32"}
    assert inputs["kind_neg"].shape == (50, LONGEST)
    assert inputs["country"].shape == (50,)
    expected = samples_of(users, "train")
    for columns in (["kind_pos", "label"], ["label", "kind_trgt", "kind_neg"]):
        inputs, label = next(iter(feed_of(users, 50, columns=columns)))
        assert set(inputs) == set(columns) - {"label"}
        for name, values in inputs.items():
            np.testing.assert_array_equal(values.numpy(), expected[name][:50])


def feed_and_compare(directory, batch_size, ranks, start, **options):
    """Join the batches of all ranks, step by step; compare with one rank and with the truth."""

    def run(feed):
        feed.start_at(1, min(start, len(feed) - 1))
        return batches_of(feed)

    feeds = [feed_of(directory, batch_size, Ranks(r, ranks), **options) for r in range(ranks)]
    by_rank = [*map(run, feeds)]
    alone = run(feed_of(directory, batch_size, **options)) if ranks > 1 else by_rank[0]
    for mine, *parts in zip(alone, *by_rank, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), mine)
    truth = as_rows(samples_of(directory, "train"))
    left_out = len(truth) % batch_size if options.get("drop_last") else 0
    steps = -(-(len(truth) - left_out) // batch_size)
    first = min(start, steps - 1)
    assert len(alone) == steps - first
    rows = np.concatenate(alone)
    assert len(rows) == len(truth) - left_out - first * batch_size
    if first == left_out == 0:
        np.testing.assert_array_equal(in_order(rows), in_order(truth))
    else:
        known, counts = np.unique(truth, axis=0, return_counts=True)
        fed, times = np.unique(rows, axis=0, return_counts=True)
        often = {row.tobytes(): count for row, count in zip(known, counts, strict=True)}
        assert all(count <= often[row.tobytes()] for row, count in zip(fed, times, strict=True))


@pytest.mark.slow
@settings(
    max_examples=3,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    files=st.lists(
        st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=15), min_size=1, max_size=3),
        min_size=1,
        max_size=2,
    ).filter(lambda files: sum(n > 5 for group in files for users in group for n in users) > 9),
    ranks=st.integers(1, 9),
    batch_size=st.integers(2, 12),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    start=st.sampled_from([0, 0, 1, 5]),
    window_rows=st.sampled_from([1, 90, 65536]),
    together=st.sampled_from([1, 3, 8, 100]),
)
@example([[[30] * 20], [[25] * 9, [1]]], 4, 5, True, True, 5, 90, 3)
@example([[[12, 0, 1] * 9], [[0]]], 9, 3, True, False, 0, 65536, 1)
def test_the_samples_of_all_ranks_are_those_of_the_users(
    tmp_path_factory, files, ranks, batch_size, shuffle, drop_last, start, window_rows, together
):
    directory = write_users_dataset(tmp_path_factory.mktemp("made") / "dataset", files)
    feed_and_compare(
        directory,
        batch_size * ranks,
        ranks,
        start,
        shuffle=shuffle,
        drop_last=drop_last,
        window_rows=window_rows,
        positions_together=together,
    )


@pytest.mark.slow
def test_an_epoch_has_an_order_and_fresh_negatives_of_its_own_and_they_come_again(users):
    feed = feed_of(users, 64, shuffle=True, fresh_negatives=True)
    orders = []
    for epoch in (0, 1):
        truth = as_rows(samples_of(users, "train", seed=fresh_seed(RULES.seed, epoch)))
        rows = np.concatenate(batches_of(feed))
        np.testing.assert_array_equal(in_order(rows), in_order(truth))
        orders.append(rows[:, -1].tolist())  # users
    assert orders[0] != orders[1]
    feed.start_at(1, 3)
    np.testing.assert_array_equal(np.concatenate(batches_of(feed)), rows[3 * 64 :])
    assert len({fresh_seed(RULES.seed, epoch) for epoch in range(1000)} | {RULES.seed}) == 1001


@pytest.mark.slow
def test_segments_of_a_user_are_spread_over_the_batches(users):
    """Whole users one after the other would bring a batch few of them."""
    feed = feed_of(users, 64, shuffle=True, positions_together=2)
    counts = [len(set(inputs["user"].numpy())) for inputs, _ in list(feed)[:-1]]
    assert min(counts) > 20
