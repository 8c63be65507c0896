"""What part each row of a log plays: from its label, and from what its behaviour is for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schemas.users_layout import JOINS, POSITIVE, SAMPLE
from .behaviour_columns import ROLE, BehaviourColumns
from .interaction_roles import roles_of_labels


def with_roles(table: pa.Table, columns: BehaviourColumns) -> tuple[pa.Table, Counter[str]]:
    """Put roles in the place of behaviours; leave out the rows that play no part.

    Args:
        table: Rows as the reader gives them.
        columns: The log's columns.

    Returns:
        The rows, and how many there were of each behaviour, those left out too.
    """
    if columns.roles != (ROLE,):
        return table, Counter()
    taken = np.ones(table.num_rows, np.int64)
    if columns.label is not None:
        taken = np.asarray(table[columns.label]).astype(np.int64)
    if columns.behaviour is None:
        roles = roles_of_labels(taken)
        return table.append_column(ROLE, pa.array(roles.astype(np.int8))), Counter()
    behaviours = table[columns.behaviour].combine_chunks()
    joins = _is_one_of(behaviours, columns.history_behaviours) & (taken == 1)
    predicted = _is_one_of(behaviours, columns.target_behaviours)
    roles = joins * JOINS + predicted * (SAMPLE + POSITIVE * taken)
    with_role = table.drop_columns([columns.behaviour])
    with_role = with_role.append_column(ROLE, pa.array(roles.astype(np.int8)))
    counted = pc.value_counts(behaviours).to_pylist()
    found = Counter({entry["values"]: entry["counts"] for entry in counted})
    return with_role.filter(pa.array(roles > 0)), found


def _is_one_of(behaviours: pa.Array, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Whether each is among the names; all are where there are none."""
    if not names:
        return np.ones(len(behaviours), bool)
    marks: npt.NDArray[np.bool_] = np.asarray(pc.is_in(behaviours, pa.array(names, pa.string())))
    return marks
