from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.dataloader.epoch_plan import EpochPlan, slots

parts = st.lists(st.integers(1, 60), min_size=0, max_size=8)
plans = st.builds(
    EpochPlan,
    parts,
    global_batch_size=st.integers(1, 50),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    window_rows=st.integers(1, 150),
    drop_last=st.booleans(),
)


def batches_of(plan, rank, size, first_step=0):
    """The rows of the epoch's sequence in each of a rank's batches."""
    result = []
    for window in plan.windows(first_step):
        rank_rows = plan.rank_rows(window, rank, size)
        read = np.concatenate(
            [np.arange(start, stop) for start, stop in rank_rows.spans] or [np.empty(0, int)]
        )
        result += [read[rows] for rows in rank_rows.batches]
    return result


@settings(max_examples=150)
@given(plans, st.integers(1, 9))
def test_every_row_once_and_the_same_steps_on_every_rank(plan, size):
    by_rank = [batches_of(plan, rank, size) for rank in range(size)]
    assert {len(batches) for batches in by_rank} == {plan.steps}
    seen = np.concatenate([rows for batches in by_rank for rows in batches] or [np.empty(0, int)])
    dropped = plan.rows % plan.global_batch_size if plan.drop_last else 0
    assert len(seen) == len(set(seen.tolist())) == plan.rows - dropped
    if not plan.drop_last:
        assert sorted(seen) == list(range(plan.rows))


@pytest.mark.slow
@settings(max_examples=100)
@given(plans, st.integers(2, 9))
def test_the_ranks_together_see_what_one_rank_sees(plan, size):
    alone = batches_of(plan, 0, 1)
    by_rank = [batches_of(plan, rank, size) for rank in range(size)]
    for step, batch in enumerate(alone):
        together = np.concatenate([batches[step] for batches in by_rank])
        np.testing.assert_array_equal(together, batch)


def test_a_shuffled_batch_comes_from_the_whole_window():
    plan = EpochPlan([1000], 100, True, seed=0, window_rows=1000)
    for batch in batches_of(plan, 0, 1):
        counts = np.histogram(batch, bins=10, range=(0, 1000))[0]
        assert counts.min() >= 5 and counts.max() <= 15


def test_a_rank_reads_only_its_part_of_a_shuffled_window():
    plan = EpochPlan([512] * 16, 4096, True, window_rows=8192)
    window = next(iter(plan.windows()))
    read = [sum(b - a for a, b in plan.rank_rows(window, rank, 4).spans) for rank in range(4)]
    assert read == [2048] * 4


@pytest.mark.parametrize("rows, size", [(0, 3), (1, 2), (7, 3), (10, 4)])
def test_slots_share_out_every_place(rows, size):
    bounds = [slots(rows, rank, size) for rank in range(size)]
    assert bounds[0][0] == 0 and bounds[-1][1] == rows
    assert all(bounds[i][1] == bounds[i + 1][0] for i in range(size - 1))
    lengths = [high - low for low, high in bounds]
    assert max(lengths) - min(lengths) <= 1
