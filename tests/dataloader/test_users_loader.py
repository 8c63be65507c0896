"""Samples made of users' histories: all of them, the same on any ranks, never nonsense."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_users import (
    ALL_BEFORE,
    EARLIER,
    ITEMS,
    LONGEST,
    RULES,
    as_rows,
    in_order,
    samples_of,
    user_table,
    write_users_dataset,
)

from merlin_sim.dataloader.draws import fresh_seed
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import DatasetWarning, MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.transcoding.users import users_to_samples

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
@pytest.mark.parametrize("mapping", ["train", "test"])
def test_without_shuffling_the_samples_come_in_the_order_of_the_users(users, mapping):
    (rows,) = [np.concatenate(batches_of(feed_of(users, 50, mapping=mapping)))]
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
@pytest.mark.parametrize("mapping", ["train", "test"])
def test_a_position_has_as_many_negatives_as_the_dataset_says(tmp_path, mapping):
    lengths = np.random.default_rng(1).integers(0, 12, 30).tolist()
    rules = replace(RULES, negatives_per_positive=3)
    directory = write_users_dataset(tmp_path / "dataset", [[lengths[:20], lengths[20:]]], rules)
    expected = as_rows(samples_of(directory, mapping, twins=3))
    rows = np.concatenate(batches_of(feed_of(directory, 10, mapping=mapping)))
    np.testing.assert_array_equal(rows, expected)
    by_rank = [
        np.concatenate(batches_of(feed_of(directory, 9, Ranks(r, 3), mapping, shuffle=True)))
        for r in range(3)
    ]
    np.testing.assert_array_equal(in_order(np.concatenate(by_rank)), in_order(expected))


def test_batches_have_the_form_of_those_of_samples(users):
    inputs, label = next(iter(feed_of(users, 50)))
    assert label.dtype.name == "int8"
    assert {value.dtype.name for value in inputs.values()} == {"int32"}
    assert inputs["kind_neg"].shape == (50, LONGEST)
    assert inputs["country"].shape == (50,)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["kind_pos", "label"], ["label", "kind_trgt", "kind_neg"]])
def test_only_what_is_asked_for_is_made(users, columns):
    inputs, label = next(iter(feed_of(users, 50, columns=columns)))
    expected = samples_of(users, "train")
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
@pytest.mark.parametrize("ranks, batch_size", [(3, 51), (9, 99)])
def test_no_sample_is_lost_where_pieces_are_cut_between_ranks(users, ranks, batch_size):
    feed_and_compare(users, batch_size, ranks, 0, shuffle=True)


@pytest.mark.slow
@settings(
    max_examples=6,
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


def test_an_epoch_has_an_order_of_its_own_and_it_comes_again(users):
    feed = feed_of(users, 64, shuffle=True)
    first, second = (np.concatenate(batches_of(feed)) for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(in_order(first), in_order(second))
    feed.start_at(1, 3)
    np.testing.assert_array_equal(np.concatenate(batches_of(feed)), second[3 * 64 :])


@pytest.mark.slow
def test_fresh_negatives_are_others_in_every_epoch_and_the_same_when_it_comes_again(users):
    feed = feed_of(users, 64, shuffle=True, fresh_negatives=True)
    for epoch in (0, 1):
        truth = as_rows(samples_of(users, "train", seed=fresh_seed(RULES.seed, epoch)))
        rows = np.concatenate(batches_of(feed))
        np.testing.assert_array_equal(in_order(rows), in_order(truth))
    feed.start_at(1)
    np.testing.assert_array_equal(np.concatenate(batches_of(feed)), rows)
    assert len({fresh_seed(RULES.seed, epoch) for epoch in range(1000)} | {RULES.seed}) == 1001


@pytest.mark.slow
def test_segments_of_a_user_are_spread_over_the_batches(users):
    """Whole users one after the other would bring a batch few of them."""
    feed = feed_of(users, 64, shuffle=True, positions_together=2)
    counts = [len(set(inputs["user"].numpy())) for inputs, _ in list(feed)[:-1]]
    assert min(counts) > 20


def damaged(directory, change):
    """Change the second row group's table of users."""
    path = directory / "users/part.0.parquet"
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    columns = {name: groups[1][name].to_pylist() for name in groups[1].column_names}
    change(columns)
    groups[1] = pa.table(columns, schema=groups[1].schema)
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for table in groups:
            writer.write_table(table)


def put(name, row, value, place=None):
    def change(columns):
        if place is None:
            columns[name][row] = value
        else:
            columns[name][row][place] = value

    return change


WRONG = {
    "an item of no table": (put("thing", 1, ITEMS + 1, 4), r"row 5 \(user 5\): position 4: .*51"),
    "an item that pads": (put("thing", 0, 0, 2), r"row 4 \(user 4\): position 2: .*Received: 0"),
    "an item that is missing": (put("thing", 1, None, 4), "row 5: column thing .*null"),
    "a user of no table": (put("user", 0, 99), r"row 4 \(user 99\): column user"),
    "a feature of no table": (put("country", 1, 4), r"row 5 \(user 5\): column country"),
    "a user that is missing": (put("user", 1, None), "row 5: column user .*null"),
    "no first position": (put("train_begin", 0, -1), "row 4: .*train_begin and train_end.*-1"),
    "an end before the first": (put("train_end", 1, 0), "row 5: .*1 and 0"),
    "an end beyond the history": (put("test_end", 1, 11), r"row 5 \(user 5\): column test_end"),
    "an end beyond all": (put("train_end", 1, 2**63 - 1), "row 5: .*train_end .*20 interactions"),
    "an end beyond any": (put("test_end", 0, 2**40), r"\(user 4\): column test_end .*: 1099511"),
    "an end that is missing": (put("train_end", 1, None), "row 5: column train_end .*null"),
    "a sample of both": (put("test_begin", 1, 8), r"\(user 5\): no position .*train and of test"),
}


@pytest.mark.parametrize("change, message", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_with_file_user_and_position(tmp_path, change, message):
    directory = write_users_dataset(tmp_path / "dataset", [[[10, 10, 10], [10, 10]]])
    damaged(directory, change)
    with pytest.raises(
        MerlinSimError, match=f"part.0.parquet, {message}" if "row" in message[:4] else message
    ):
        list(feed_of(directory, 8))


WRONG_TIMES = {
    "no number": (put("when", 1, float("nan"), 4), "position 4: column when .*Received: nan"),
    "earlier than the one before": (put("when", 1, 1.0, 4), "position 4: .*oldest first.*: 1.0"),
    "too few": (
        lambda columns: columns["when"][1].pop(),
        r"\(user 5\): column when .* a value for each item of thing. Received: 9",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("change, message", WRONG_TIMES.values(), ids=WRONG_TIMES)
def test_times_that_cannot_be_are_refused_like_items(tmp_path, change, message):
    directory = write_users_dataset(
        tmp_path / "dataset", [[[10, 10, 10], [10, 10]]], time_intervals="hours"
    )
    damaged(directory, change)
    with pytest.raises(MerlinSimError, match=message):
        list(feed_of(directory, 8))
    with pytest.raises(MerlinSimError, match=message):
        users_to_samples(DatasetDirectory.open(directory), tmp_path / "samples", Silence())
    columns = list(DatasetDirectory.open(directory).schema.column_names)
    columns.remove("when_since_pos")
    assert list(feed_of(directory, 8, columns=columns))  # who asks for no times reads none


def store_unsigned(path, names):
    table = pq.read_table(path)
    for name in names:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.uint32()))
    pq.write_table(table, path)


def test_positions_and_counts_may_be_unsigned(tmp_path):
    directory = write_users_dataset(tmp_path / "dataset", [[[10, 10, 10]]])
    store_unsigned(directory / "users/part.0.parquet", ["train_begin", "train_end", "test_end"])
    store_unsigned(directory / "categories/thing.parquet", ["id", "count"])
    (rows,) = [np.concatenate(batches_of(feed_of(directory, 8)))]
    np.testing.assert_array_equal(rows, as_rows(samples_of(directory, "train")))


@pytest.mark.parametrize(
    "column, row, value, message",
    [
        ("kind", 3, 8, "thing.parquet, row 4: column kind should hold 1 to 7"),
        ("count", 0, -1, "thing.parquet, row 1: column count"),
        ("id", 5, 51, "thing.parquet, row 6: column id should hold 1 to 50"),
        ("id", 5, 1, "thing.parquet: column id should hold each of 1 to 50 once"),
        ("kind", 2, None, "row 3: column kind .*Received: None"),
        ("count", 2, None, "row 3: column count .*Received: None"),
    ],
)
def test_an_item_table_that_cannot_be_is_refused(tmp_path, column, row, value, message):
    directory = write_users_dataset(tmp_path / "dataset", [[[10, 10, 10]]])
    path = directory / "categories/thing.parquet"
    columns = pq.read_table(path).to_pydict()
    columns[column][row] = value
    pq.write_table(pa.table(columns), path)
    doubted = pytest.warns(DatasetWarning, match="ids end at 51") if value == 51 else nullcontext()
    with pytest.raises(MerlinSimError, match=message), doubted:
        feed_of(directory, 8)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    directory = write_users_dataset(tmp_path / "dataset", [[[10, 10]]])
    feed = feed_of(directory, 8)
    pq.write_table(user_table([10, 11], 1), directory / "users/part.0.parquet")
    with pytest.raises(MerlinSimError, match=r"part\.0\.parquet changed while it was read"):
        list(feed)


def test_options_of_users_are_refused_for_samples(sim_dataset):
    dataset = DatasetDirectory.open(sim_dataset)
    names = dataset.schema.column_names
    for options in ({"fresh_negatives": True}, {"positions_together": 8}):
        with pytest.raises(MerlinSimError, match=next(iter(options))):
            open_loader(dataset, "train", names, 8, Ranks(), **options)


def test_no_position_stays_with_none(users):
    with pytest.raises(MerlinSimError, match="positions_together"):
        feed_of(users, 8, positions_together=0)
