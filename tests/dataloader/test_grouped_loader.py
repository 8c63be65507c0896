"""Users x candidates hold the samples of the rows, each once, and nothing of the future."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_by_hand import drawn, key_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_users import (
    ALL_BEFORE,
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

from merlin_sim.dataloader.draws import place_seed
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

# Of rows as `as_rows` joins them: country, kind_pos, kind_trgt, label, thing_pos, thing_trgt, user.
LABEL, TARGET, USER = LONGEST + 2, -2, -1
SEEN = ("label", "user", "country", "thing_trgt", "kind_trgt", "thing_pos", "kind_pos")


opened = functools.lru_cache(DatasetDirectory.open)
"""Loaders of one opened directory share what makes their batches, which is traced once."""


def feed_of(directory, batch_size, ranks=None, mapping="train", **options):
    dataset = opened(directory)
    names = dataset.schema.column_names
    return open_loader(dataset, mapping, names, batch_size, ranks or Ranks(), seed=3, **options)


def batches_of(feed):
    """The batches as numpy arrays, the labels and weights among the others."""
    return [
        {n: x.numpy() for n, x in {**inputs, "label": labels, "weight": weights}.items()}
        for inputs, labels, weights in feed
    ]


LENGTHS = np.random.default_rng(0).integers(0, 25, 60).tolist()
FILES = [[LENGTHS[:30], LENGTHS[30:40]], [LENGTHS[40:]]]


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


def batches_of_rows(feed):
    """The rows of a feed without candidates, with the columns of :func:`samples_in`."""
    for inputs, label in feed:
        columns = {"label": label.numpy(), **{n: x.numpy() for n, x in inputs.items()}}
        yield as_rows({name: columns[name] for name in SEEN})


def own_items_of(directory):
    """By user, the items of the whole history."""
    table = pa.concat_tables([pq.read_table(path) for path in directory.glob("users/*")])
    return {user["user"]: set(user["thing"]) for user in table.to_pylist()}


def truth_of(directory, mapping, twins=1):
    samples = samples_of(directory, mapping, twins=twins)
    return as_rows({name: samples[name] for name in SEEN})


@pytest.mark.slow
@pytest.mark.parametrize(
    "users, mapping, candidates",
    [(ALL_BEFORE, "test", 6), (ALL_BEFORE, "train", 16), (EARLIER, "train", 2)],
    indirect=["users"],
)
def test_the_candidates_are_the_samples_and_see_what_those_see(users, mapping, candidates):
    feed = feed_of(users, 10 * candidates, mapping=mapping, candidates=candidates, shuffle=True)
    rows = samples_in(batches_of(feed))
    np.testing.assert_array_equal(in_order(rows), in_order(truth_of(users, mapping)))


@pytest.mark.slow
def test_no_negative_is_an_item_of_the_history_where_the_dataset_says_so(tmp_path):
    """Draws that are none stay; rows have the same, and two epochs of fresh ones are clean too."""
    files, drawn = [[[0, 9, 30, 14, 120], [25]]], {}
    for name, flag in (("any", False), ("new", True)):
        rules = replace(RULES, negatives_per_positive=3, negatives_not_in_history=flag)
        users = write_users_dataset(tmp_path / name, files, rules)
        rows = np.concatenate(list(batches_of_rows(feed_of(users, 16))))
        drawn[name] = rows
        np.testing.assert_array_equal(
            in_order(samples_in(batches_of(feed_of(users, 16, candidates=8)), 4)),
            in_order(rows),
        )
    history = own_items_of(users)
    own = np.array([row[TARGET] in history[row[USER]] for row in drawn["any"]])
    negative = drawn["any"][:, LABEL] == 0
    assert 0.1 < own[negative].mean() < 0.9
    stay = ~(own & negative)
    np.testing.assert_array_equal(drawn["new"][stay], drawn["any"][stay])
    fresh = feed_of(users, 16, candidates=8, fresh_negatives=True)
    epochs = [samples_in(batches_of(fresh), 4) for _ in range(2)]
    for rows in (drawn["new"], *epochs):
        kept = rows[(rows[:, LABEL] == 0) & [len(history[u]) < ITEMS for u in rows[:, USER]]]
        assert len(kept) > 100
        assert not any(row[TARGET] in history[row[USER]] for row in kept)


def test_a_batch_has_the_agreed_form(users):
    batch = batches_of(feed_of(users, 80, candidates=8))[0]
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


def test_with_one_position_a_row_it_is_a_padded_batch(users):
    batch = batches_of(feed_of(users, 20, candidates=2))[0]
    assert (batch["history_end"] == LONGEST).all()
    assert batch["thing_pos"].shape[1] == LONGEST
    assert (batch["weight"] == 1).all()
    assert batch["label"][0].tolist() == [0, 1]


@pytest.mark.parametrize("users", [ALL_BEFORE, EARLIER], indirect=True)
def test_fillers_count_for_nothing_and_no_row_shows_the_position_of_its_last_candidate(users):
    """The newest place is the interaction before the last candidate's: nothing of its future."""
    batches = batches_of(feed_of(users, 160, candidates=16))
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
    seed = place_seed(RULES.seed)
    batch = batches_of(feed)[0]
    for user, negatives in zip(batch["user"], batch["thing_neg"], strict=True):
        beside = [drawn(key_of(seed, user, place, 0), 0, counts) for place in range(40)]
        seen = negatives[negatives > 0].tolist()
        assert any(beside[first : first + len(seen)] == seen for first in range(40))


@pytest.mark.slow
@settings(
    max_examples=2,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    ranks=st.integers(1, 9),
    rows=st.integers(3, 9),
    candidates=st.sampled_from([2, 4, 10]),
    shuffle=st.booleans(),
    window_rows=st.sampled_from([1, 200, 65536]),
)
@example(9, 3, 4, True, 200)
@example(7, 2, 10, True, 65536)
def test_the_contiguous_rows_of_all_ranks_are_those_of_one(
    users, ranks, rows, candidates, shuffle, window_rows
):
    options = {"candidates": candidates, "shuffle": shuffle, "window_rows": window_rows}
    size = ranks * rows * candidates
    feeds = [feed_of(users, size, Ranks(r, ranks), **options) for r in range(ranks)]
    by_rank = [*map(batches_of, feeds)]
    alone = batches_of(feed_of(users, size, **options))
    for mine, *parts in zip(alone, *by_rank, strict=True):
        for name, values in mine.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)
    np.testing.assert_array_equal(in_order(samples_in(alone)), in_order(truth_of(users, "train")))
