"""The last two days of each item, however a log is cut into partitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.schemas.days_since import NEVER
from merlin_sim.workflows.ops.item_statistics import ItemStatistics, last_days, merged

ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 6)), min_size=1, max_size=30)


def statistics(rows):
    items, days = np.array(rows, np.int64).reshape(-1, 2).T
    users, roles = np.zeros(1, np.uint64), np.full(len(items), 7)
    return ItemStatistics.of(users, items, {}, roles, days * 86_400.0 + 5)


def two_days(rows, item):
    days = sorted({day for of, day in rows if of == item})
    return ([NEVER, NEVER, *days])[:-3:-1]


@given(ROWS, st.integers(0, 30))
def test_partitions_together_know_the_last_two_days_of_items(rows, cut):
    found = merged([statistics(part) for part in (rows[:cut], rows[cut:])])
    assert found.ids.tolist() == sorted({item for item, _ in rows})
    for item, days in zip(found.ids, found.days, strict=True):
        assert days.tolist() == two_days(rows, item)


def test_an_id_without_rows_was_never_seen():
    assert last_days(np.array([2]), np.array([[7]]), 3).tolist() == [[NEVER] * 2] * 2 + [[7, NEVER]]
