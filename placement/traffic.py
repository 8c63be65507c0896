"""What travels in a step: ids to the ranks that have their vectors, vectors and gradients back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .plan import Cut, Placed, Plan
from .table import FLOAT, ID

Bytes = npt.NDArray[np.float64]


def bytes_between(plan: Plan, samples: int) -> Bytes:
    """Return what each rank sends to each other in a step, [from, to], at most.

    A batch's distinct ids travel: as many as it has where all differ, or as the table has rows.
    A table cut by rows is taken to be asked evenly.

    Args:
        plan: where the tables are.
        samples: of a step, over all ranks.
    """
    sent = np.zeros((plan.ranks, plan.ranks))
    own = -(-samples // plan.ranks)
    for placed in plan.tables:
        _add(sent, placed, own)
    return sent


def _add(sent: Bytes, placed: Placed, own: int) -> None:
    table, ranks = placed.table, len(sent)
    distinct = min(own * table.lookups, table.rows)
    others = 1 - np.eye(ranks)
    if placed.cut is Cut.REPLICATED:  # the rows of a batch go to every other rank
        sent += others * distinct * (table.width * FLOAT + ID)
        return
    for shard in placed.shards:
        share = shard.rows / table.rows if placed.cut is Cut.ROWS else 1.0
        vectors = distinct * share * shard.columns * FLOAT
        sent[:, shard.rank] += others[:, shard.rank] * (distinct * share * ID + vectors)
        sent[shard.rank, :] += others[shard.rank, :] * vectors


def bytes_to_host(placed: Placed, rank: int, samples: int) -> float:
    """Return what travels in a step between a device and a rank's part that is in host memory.

    Ids and gradients there, vectors back; counted as :func:`bytes_between` does.

    Args:
        placed: a table.
        rank: whose part.
        samples: of a step, over all ranks.
    """
    shard, table = placed.of_rank(rank), placed.table
    distinct = min(samples * table.lookups, table.rows) * shard.rows / table.rows
    return distinct * (ID + 2 * shard.columns * FLOAT)
