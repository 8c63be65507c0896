"""Users that cannot be are refused with file, user and position, and so are options."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_users import ITEMS, RULES, as_rows, samples_of, user_table, write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import DatasetWarning, MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.transcoding.users import users_to_samples


def feed_of(directory, batch_size, columns=None, **options):
    dataset = DatasetDirectory.open(directory)
    names = columns or dataset.schema.column_names
    return open_loader(dataset, "train", names, batch_size, Ranks(), seed=3, **options)


def batches_of(feed):
    return [
        as_rows({"label": label.numpy(), **{n: x.numpy() for n, x in inputs.items()}})
        for inputs, label in feed
    ]


@pytest.fixture
def directory(tmp_path):
    return write_users_dataset(tmp_path / "dataset", [[[10, 10, 10], [10, 10]]])


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


def put(name, row, value, index=None):
    def change(columns):
        if index is None:
            columns[name][row] = value
        else:
            columns[name][row][index] = value

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
def test_what_cannot_be_is_refused_with_file_user_and_position(directory, change, message):
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


def test_positions_and_counts_may_be_unsigned(directory):
    for file, names in {
        "users/part.0.parquet": ("train_begin", "train_end", "test_end"),
        "categories/thing.parquet": ("id", "count"),
    }.items():
        table = pq.read_table(directory / file)
        for name in names:
            index = table.column_names.index(name)
            table = table.set_column(index, name, table[name].cast(pa.uint32()))
        pq.write_table(table, directory / file)
    rows = np.concatenate(batches_of(feed_of(directory, 8)))
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
def test_an_item_table_that_cannot_be_is_refused(directory, column, row, value, message):
    path = directory / "categories/thing.parquet"
    columns = pq.read_table(path).to_pydict()
    columns[column][row] = value
    pq.write_table(pa.table(columns), path)
    doubted = pytest.warns(DatasetWarning, match="ids end at 51") if value == 51 else nullcontext()
    with pytest.raises(MerlinSimError, match=message), doubted:
        feed_of(directory, 8)


def test_a_file_that_changes_while_it_is_read_is_refused(directory):
    feed = feed_of(directory, 8)
    pq.write_table(user_table([10, 11], 1), directory / "users/part.0.parquet")
    with pytest.raises(MerlinSimError, match=r"part\.0\.parquet changed while it was read"):
        list(feed)


@pytest.mark.parametrize(
    ("batch_size", "options", "message"),
    [
        (8, {"positions_together": 0}, "positions_together"),
        (12, {"candidates": 3}, "positive even number"),
        (12, {"candidates": 0}, "positive even number"),
        (12, {"candidates": -2}, "positive even number"),
        (10, {"candidates": 4}, "multiple of `candidates`"),
        (12, {"candidates": 4, "positions_together": 2}, "`positions_together` should be left out"),
    ],
    ids=str,
)
def test_what_no_batch_can_be_made_of_is_refused(directory, batch_size, options, message):
    with pytest.raises(MerlinSimError, match=message):
        feed_of(directory, batch_size, **options)


def test_options_of_users_are_refused_for_samples(sim_dataset):
    for options in ({"fresh_negatives": True}, {"positions_together": 8}, {"candidates": 4}):
        with pytest.raises(MerlinSimError, match=next(iter(options))):
            feed_of(sim_dataset, 8, **options)


def test_candidates_are_whole_positions(tmp_path):
    rules = replace(RULES, negatives_per_positive=3)
    users = write_users_dataset(tmp_path / "dataset", [[[0, 9], [3, 7]]], rules)
    with pytest.raises(MerlinSimError, match="positive multiple of 4.*and 3 negatives"):
        feed_of(users, 16, candidates=2)
