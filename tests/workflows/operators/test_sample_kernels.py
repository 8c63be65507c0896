from __future__ import annotations

import gpu_worker
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.schemas.population import Population
from merlin_sim.workflows.behaviour.interaction_roles import JOINS, SAMPLE, TAKEN, sample_places
from merlin_sim.workflows.behaviour.positions import sample_positions
from merlin_sim.workflows.operators import sample_arrays, sample_kernels

USERS = np.array([7, 3, 9], np.int64)
OFFSETS = np.array([0, 4, 5, 8], np.int64)
ITEMS = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.int64)


def select(mapping, least_before):
    ranges = sample_positions(np.diff(OFFSETS), mapping, least_before, np)
    return sample_kernels.select_prefixes(USERS, *ranges, 0, 0, 1)


def test_train_rows_have_enough_before_them_and_are_never_the_last():
    rows, positions = select("train", 1)
    assert list(zip(rows, positions, strict=True)) == [(0, 1), (0, 2), (2, 1)]
    rows, positions = select("train", 0)
    assert list(zip(rows, positions, strict=True)) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    rows, positions = select("train", 9)
    assert len(rows) == 0


def test_the_test_rows_are_the_last_ones_whatever_came_before():
    rows, positions = select("test", 2)
    assert list(zip(rows, positions, strict=True)) == [(0, 3), (1, 0), (2, 2)]


def test_a_history_keeps_the_newest_oldest_first():
    rows, positions = np.array([0, 0, 1]), np.array([3, 1, 0])
    targets, values, offsets = sample_kernels.cut_prefixes(ITEMS, OFFSETS, rows, positions, 2)
    assert targets.tolist() == [4, 2, 5]
    assert [v.tolist() for v in np.split(values, offsets[1:-1])] == [[2, 3], [1], []]


def draw(seed, users, positions, order=None, counts=(0, 5, 1, 2, 1, 1, 1, 1, 1)):
    population = Population.of_counts(np.array(counts, np.int64))
    targets, values, offsets = sample_kernels.cut_prefixes(
        ITEMS, OFFSETS, np.zeros_like(positions), positions, 100
    )
    if order is None:
        order = np.arange(2 * len(users))
    drawn = sample_kernels.draw_negatives(
        users, positions, np.ones(len(users), np.int8), targets, values, offsets, order, 1, seed,
        population.cumulative, population.first, population.block,
    )  # fmt: skip
    return drawn


def test_the_positive_keeps_its_target_and_the_twin_gets_another():
    users, positions = np.array([7, 7]), np.array([3, 1])
    targets, positives, negatives, offsets = draw(1, users, positions)
    assert targets[1::2].tolist() == [4, 2]
    assert [v.tolist() for v in np.split(positives, offsets[1:-1])] == [
        [1, 2, 3], [1, 2, 3], [1], [1],
    ]  # fmt: skip
    assert len(negatives) == len(positives)
    assert set(negatives) | set(targets[::2]) <= set(range(1, 9))


def test_a_draw_depends_on_seed_and_row_alone():
    users, positions = np.array([7, 8]), np.array([3, 3])
    *_, together, offsets = draw(1, users, positions)
    *_, alone, _ = draw(1, users[1:], positions[1:])
    *_, other_seed, _ = draw(2, users, positions)
    assert together[offsets[2] :].tolist() == alone.tolist()
    assert together.tolist() != other_seed.tolist()
    assert together[offsets[2] : offsets[3]].tolist() != together[: offsets[1]].tolist()


def test_items_are_drawn_as_often_as_they_were_taken():
    users = np.arange(20_000)
    targets, *_ = draw(5, users, np.full(20_000, 3), counts=(0, 6, 0, 3, 1))
    shares = np.bincount(targets[::2], minlength=5) / 20_000
    np.testing.assert_allclose(shares, [0, 0.6, 0, 0.3, 0.1], atol=0.015)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    least=st.integers(0, 4),
    longest=st.integers(1, 5),
    seed=st.integers(0, 2**63 - 1),
    parts=st.integers(1, 3),
    twins=st.integers(0, 3),
    mapping=st.sampled_from(["train", "test"]),
)
def test_loops_and_arrays_agree(lengths, least, longest, seed, parts, twins, mapping):
    users = np.arange(len(lengths), dtype=np.int64) * 3 + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = (np.arange(offsets[-1]) % 5 + 1).astype(np.int64)
    roles = np.array([SAMPLE, TAKEN, JOINS, TAKEN, SAMPLE])[np.arange(offsets[-1]) % 5]
    population = Population.of_counts(np.array([0, 3, 1, 0, 2, 9], np.int64))
    ranges = sample_positions(np.array(lengths), mapping, least, np)
    chosen = []
    for part in range(parts):
        arguments = (users, *ranges, seed, part, parts)
        rows, positions = sample_kernels.select_prefixes(*arguments)
        same = sample_arrays.select_prefixes(*arguments, np)
        np.testing.assert_array_equal([rows, positions], same)
        chosen += list(zip(rows, positions, strict=True))

        cut = sample_kernels.cut_prefixes(values, offsets, rows, positions, longest)
        same = sample_arrays.cut_prefixes(values, offsets, rows, positions, longest, np)
        for ours, theirs in zip(cut, same, strict=True):
            np.testing.assert_array_equal(ours, theirs)

        found = sample_places(roles, offsets, np)
        own = np.diff(found.offsets)
        rows, positions = sample_kernels.select_prefixes(
            users, *sample_positions(own, mapping, least, np), seed, part, parts
        )
        lists = (values, found.places, values[(roles & JOINS) > 0], found.before)
        lists = (*lists, found.positives, found.begins, found.offsets)
        labelled = sample_kernels.cut_taken(*lists, rows, positions, longest)
        same = sample_arrays.cut_taken(*lists, rows, positions, longest, np)
        for ours, theirs in zip(labelled, same, strict=True):
            np.testing.assert_array_equal(ours, theirs)

        targets, labels, *histories = labelled
        ordered = (users[rows], positions, labels, seed, twins)
        order = sample_kernels.order_of_samples(*ordered)
        np.testing.assert_array_equal(order, sample_arrays.order_of_samples(*ordered, np))
        assert len(order) == len(rows) + twins * labels.sum()
        arguments = (users[rows], positions, labels, targets, *histories, order, twins, seed)
        drawn = sample_kernels.draw_negatives(
            *arguments, population.cumulative, population.first, population.block
        )
        same = sample_arrays.draw_negatives(*arguments, population, np)
        for ours, theirs in zip(drawn, same, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    everything = sample_kernels.select_prefixes(users, *ranges, seed, 0, 1)
    assert sorted(chosen) == sorted(zip(*everything, strict=True))


@pytest.mark.parametrize("total", [1, 7, 70_000, 1_000_003])
def test_the_population_is_what_repeating_would_give(total):
    rng = np.random.default_rng(total)
    counts = np.bincount(rng.integers(1, 50, total), minlength=60)
    population = Population.of_counts(counts)
    repeated = np.repeat(np.arange(60), counts)
    index = np.unique(np.r_[0, total - 1, rng.integers(0, total, 1000)])
    assert population.size == total
    np.testing.assert_array_equal(population.at(index, np), repeated[index])
    found = [
        sample_kernels._item_at(i, population.cumulative, population.first, population.block)
        for i in index
    ]
    np.testing.assert_array_equal(found, repeated[index])


def test_what_a_gpu_is_asked_runs_without_one():
    assert gpu_worker.arrays("numpy")["same"]
