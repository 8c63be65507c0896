"""Samples of users' histories, as rows or users x candidates: all of them, on any ranks."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from drawn_by_hand import drawn, key_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from processes import run
from small_users import (
    ALL_BEFORE,
    COLUMNS,
    COUNTRIES,
    EARLIER,
    ITEMS,
    KINDS,
    LONGEST,
    RULES,
    as_rows,
    in_order,
    item_table,
    samples_of,
    write_users_dataset,
)
from warm import warm

from merlin_sim.dataloader.draws import fresh_seed, position_seed
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.workflows.dataset_spec import samples_schema, users_layout_of, users_spec
from merlin_sim.workflows.preprocess.dataset_writer import INTERACTIONS_PER_GROUP, cut

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
def test_a_step_is_traced_once_though_the_last_batch_has_fewer_rows(users):
    feed, traced = feed_of(users, 56, shuffle=True, candidates=8), []

    def step(given):
        traced.append(given)
        return feed.make(given)

    compiled = tf.function(step, autograph=False)
    weights = [compiled(given)[2].numpy() for _ in range(2) for given in feed.inputs()]
    assert len(traced) == 1
    assert not all(of_step.all() for of_step in weights)


@pytest.mark.slow
def test_columns_are_those_that_are_asked_for(users):
    expected = samples_of(users, "train")
    for columns in (["kind_pos", "label"], ["label", "kind_trgt", "kind_neg", "country"]):
        inputs, label = next(iter(feed_of(users, 50, columns=columns)))
        assert label.dtype.name == "int8" and set(inputs) == set(columns) - {"label"}
        for name, values in inputs.items():
            assert values.dtype.name == "int32"
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
    max_examples=1,
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


SEEN = ("label", "user", "country", "thing_trgt", "kind_trgt", "thing_pos", "kind_pos")


def grouped_batches_of(feed):
    """The batches as numpy arrays, the labels and weights among the others."""
    return [
        {n: x.numpy() for n, x in {**inputs, "label": labels, "weight": weights}.items()}
        for inputs, labels, weights in feed
    ]


def samples_in(batches, of_position=2):
    """What each candidate that counts sees, as a row of samples has it."""
    rows = []
    for batch in batches:
        for row, candidate in zip(*np.nonzero(batch["weight"]), strict=True):
            end = batch["history_end"][row, candidate // of_position]
            one = {name: batch[name][row] for name in ("user", "country")}
            one |= {n: batch[n][row, candidate] for n in ("label", "thing_trgt", "kind_trgt")}
            one |= {n: batch[n][row, end - LONGEST : end] for n in ("thing_pos", "kind_pos")}
            rows.append({name: [value] for name, value in one.items()})
    return as_rows({name: np.concatenate([row[name] for row in rows]) for name in SEEN})


def truth_of(directory, mapping):
    samples = samples_of(directory, mapping)
    return as_rows({name: samples[name] for name in SEEN})


@pytest.mark.slow
@pytest.mark.parametrize("users", [ALL_BEFORE], indirect=True)
def test_the_candidates_are_the_samples_and_see_what_those_see(users):
    feed = feed_of(users, 160, candidates=16, shuffle=True)
    rows = samples_in(grouped_batches_of(feed))
    np.testing.assert_array_equal(in_order(rows), in_order(truth_of(users, "train")))


def test_a_batch_has_the_agreed_form(users):
    batch = grouped_batches_of(feed_of(users, 80, candidates=8))[0]
    length = LONGEST + 3
    shapes = {name: (values.shape, values.dtype.name) for name, values in batch.items()}
    assert shapes == {
        "user": ((10,), "int32"), "country": ((10,), "int32"),
        "thing_trgt": ((10, 8), "int32"), "kind_trgt": ((10, 8), "int32"),
        "thing_pos": ((10, length), "int32"), "kind_pos": ((10, length), "int32"),
        "thing_neg": ((10, length), "int32"), "kind_neg": ((10, length), "int32"),
        "history_end": ((10, 4), "int32"),
        "label": ((10, 8), "float32"), "weight": ((10, 8), "float32"),
    }  # fmt: skip
    of_one = grouped_batches_of(feed_of(users, 20, candidates=2))[0]
    assert (of_one["history_end"] == LONGEST).all() and (of_one["weight"] == 1).all()
    assert of_one["thing_pos"].shape[1] == LONGEST
    assert of_one["label"][0].tolist() == [0, 1]


@pytest.mark.parametrize("users", [ALL_BEFORE, EARLIER], indirect=True)
def test_fillers_count_for_nothing_and_no_row_shows_the_position_of_its_last_candidate(users):
    """The newest position is the interaction before the last candidate's: nothing of its future."""
    batches = grouped_batches_of(feed_of(users, 160, candidates=16))
    filler = np.concatenate([batch["weight"] for batch in batches]) == 0
    assert 0.1 < filler.mean() < 0.9
    for name in ("label", "thing_trgt", "kind_trgt"):
        assert not np.concatenate([batch[name] for batch in batches])[filler].any()
    for batch in batches:
        assert LONGEST <= batch["history_end"].min() <= batch["history_end"].max() <= LONGEST + 7
        ends = np.where(batch["weight"][:, ::2] > 0, batch["history_end"], 0).max(axis=1)
        assert (ends == batch["thing_pos"].shape[1]).all()
        np.testing.assert_array_equal(batch["thing_neg"] > 0, batch["thing_pos"] > 0)
        assert batch["kind_neg"].max() <= KINDS


def test_a_negative_is_the_draw_of_its_position(users):
    feed = feed_of(users, 40, candidates=4)
    counts = np.concatenate([[0], item_table()["count"]])
    seed = position_seed(RULES.seed)
    batch = grouped_batches_of(feed)[0]
    for user, negatives in zip(batch["user"], batch["thing_neg"], strict=True):
        drawn_items = [drawn(key_of(seed, user, index, 0), 0, counts) for index in range(40)]
        seen = negatives[negatives > 0].tolist()
        assert any(drawn_items[first : first + len(seen)] == seen for first in range(40))


@pytest.mark.slow
@settings(
    max_examples=1,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    ranks=st.integers(1, 9),
    rows=st.integers(6, 9),
    candidates=st.sampled_from([2, 4, 10]),
    shuffle=st.booleans(),
    window_rows=st.sampled_from([1, 200, 65536]),
)
@example(9, 6, 4, True, 200)
def test_the_contiguous_rows_of_all_ranks_are_those_of_one(
    users, ranks, rows, candidates, shuffle, window_rows
):
    options = {"candidates": candidates, "shuffle": shuffle, "window_rows": window_rows}
    size = ranks * rows * candidates
    feeds = [feed_of(users, size, Ranks(r, ranks), **options) for r in range(ranks)]
    by_rank = [*map(grouped_batches_of, feeds)]
    alone = grouped_batches_of(feed_of(users, size, **options))
    for mine, *parts in zip(alone, *by_rank, strict=True):
        for name, values in mine.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)
    np.testing.assert_array_equal(in_order(samples_in(alone)), in_order(truth_of(users, "train")))


WORKER = Path(__file__).parents[1] / "support/workers/fed_users_worker.py"


def write_many(directory, users, length):
    """Write users of one length, in row groups as the package writes them."""
    write_users_dataset(directory, [[[length]]])
    path = "users/part.0.parquet"
    schema = pq.read_schema(directory / path)
    offsets = np.arange(users + 1) * length
    random = np.random.default_rng(2)
    with pq.ParquetWriter(directory / path, schema) as writer:
        for first, stop in cut(offsets, INTERACTIONS_PER_GROUP):
            count = stop - first
            items = random.integers(1, ITEMS + 1, count * length).astype(np.int32)
            indices = pa.array(offsets[: count + 1], pa.int32())
            table = {
                "user": np.arange(first, stop) + 1,
                "country": random.integers(1, COUNTRIES + 1, count),
                "train_begin": np.full(count, 1),
                "train_end": np.full(count, length - 1),
                "test_begin": np.full(count, length - 1),
                "test_end": np.full(count, length),
                "thing": pa.ListArray.from_arrays(indices, pa.array(items)),
            }
            writer.write_table(pa.table(table, schema=schema), row_group_size=count)
    sizes = {"user": users, "country": COUNTRIES, "thing": ITEMS, "kind": KINDS}
    for name in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (directory / name).unlink()
    schema = samples_schema(COLUMNS, sizes, RULES.max_sequence_length)
    layout = replace(users_layout_of(COLUMNS, RULES), user_hash=None)  # all have ids
    write_documents(directory, users_spec(schema, layout, [path]))
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidates", "small", "users", "length", "most"),
    [(4, (2000, 4), 1_000_000, 4, 400e6), (16, (20, 100), 1, 1_000_000, 100e6)],
    ids=["a million users", "a user of a million interactions"],
)
def test_many_samples_come_whole_in_little_memory(tmp_path, candidates, small, users, length, most):
    """217 and 22 MB when this was written: of users a row group, and 17 bytes more a user."""
    paths = write_many(tmp_path / "small", *small), write_many(tmp_path / "large", users, length)
    done = run(warm(str(WORKER), str(candidates), *map(str, paths)))
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["samples"] == 2 * reported["positives"] == 2 * users * (length - 2)
    assert reported["users"] == (length - 2) * users * (users + 1)
    assert reported["bytes"] < most, reported
