"""The last two days of each key."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.schemas.days_since import NEVER
from merlin_sim.workflows.known_values import last_days

ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 6)), max_size=30)


@given(ROWS)
def test_rows_of_any_order_report_the_last_two_days(rows):
    ids, days = np.array(rows, np.int64).reshape(-1, 2).T
    found = last_days(ids, days, 6).tolist()
    for key in range(6):
        seen = sorted({day for of, day in rows if of == key}, reverse=True)
        assert found[key] == [*seen, NEVER, NEVER][:2]
