"""What turns histories into samples, for whole arrays of numpy or cupy.

The same functions as in ``sample_kernels.py``, without a loop: numba's CPU loops do not run on a
GPU. They do not take the place of the loops either: on a CPU they need more than twice the time
(a million rows with 21 million elements: 9.4 s of a core, where the loops need 4). The tests run
them with numpy and ask for the same numbers.
"""

from __future__ import annotations

from typing import Any

from ...foundation.hashing import (
    ORDER_SALT,
    SLICE_SALT,
    draw_below_arrays,
    mix_arrays,
    row_key_arrays,
    sample_key_arrays,
)
from ...foundation.row_numbers import for_each_element, row_of_each_element
from ...schemas.population import Population


def select_prefixes(
    users: Any, begins: Any, ends: Any, seed: int, part: int, parts: int, xp: Any
) -> tuple[Any, Any]:
    """See :func:`merlin_sim.workflows.operators.sample_kernels.select_prefixes`."""
    offsets = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(ends - begins)])
    rows = row_of_each_element(offsets, xp)
    positions = xp.arange(len(rows), dtype=xp.int64) - (offsets[:-1] - begins)[rows]
    if parts == 1:
        return rows, positions
    keys = row_key_arrays(seed, users[rows], positions, xp.zeros_like(positions), xp)
    scattered = mix_arrays(keys ^ xp.uint64(SLICE_SALT), xp)
    chosen = scattered % xp.uint64(parts) == xp.uint64(part)
    return rows[chosen], positions[chosen]


def cut_prefixes(
    values: Any, offsets: Any, rows: Any, positions: Any, longest: int, xp: Any
) -> tuple[Any, Any, Any]:
    """See :func:`merlin_sim.workflows.operators.sample_kernels.cut_prefixes`."""
    lengths = xp.minimum(positions, longest)
    new_offsets = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(lengths)])
    places = offsets[rows] + positions
    gather = for_each_element(places - lengths - new_offsets[:-1], new_offsets, xp)
    gather += xp.arange(int(new_offsets[-1]), dtype=xp.int64)
    return values[places], values[gather], new_offsets


def cut_taken(
    values: Any,
    places: Any,
    taken: Any,
    before: Any,
    positives: Any,
    begins: Any,
    offsets: Any,
    rows: Any,
    positions: Any,
    longest: int,
    xp: Any,
) -> tuple[Any, Any, Any, Any]:
    """See :func:`merlin_sim.workflows.operators.sample_kernels.cut_taken`."""
    samples = offsets[rows] + positions
    stops = before[samples]
    lengths = xp.minimum(stops - begins[rows], longest)
    new_offsets = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(lengths)])
    gather = for_each_element(stops - lengths - new_offsets[:-1], new_offsets, xp)
    gather += xp.arange(int(new_offsets[-1]), dtype=xp.int64)
    labels = (positives[samples + 1] - positives[samples]).astype(xp.int8)
    return values[places[samples]], labels, taken[gather], new_offsets


def samples_of_order(order: Any, labels: Any, twins: int, xp: Any) -> tuple[Any, Any, Any]:
    """Tell apart what ``order_of_samples`` joins.

    Returns:
        [samples] the row of each, its label, and its number among the twins (0 for a positive or
        a negative of the log, too).
    """
    rows, slots = order // (twins + 1), order % (twins + 1)
    is_own = slots == twins
    return rows, xp.where(is_own, labels[rows], 0), xp.where(is_own, 0, slots)


def order_of_samples(
    users: Any, positions: Any, labels: Any, seed: int, twins: int, xp: Any
) -> Any:
    """See :func:`merlin_sim.workflows.operators.sample_kernels.order_of_samples`."""
    entries = xp.arange((twins + 1) * len(users), dtype=xp.int64)
    has_twins = labels[entries // (twins + 1)] == 1
    entries = entries[has_twins | (entries % (twins + 1) == twins)]
    rows, new_labels, twin = samples_of_order(entries, labels, twins, xp)
    keys = sample_key_arrays(seed, users[rows], positions[rows], new_labels, twin, xp)
    return entries[xp.argsort(mix_arrays(keys ^ xp.uint64(ORDER_SALT), xp), kind="stable")]


def draw_negatives(
    users: Any,
    positions: Any,
    labels: Any,
    targets: Any,
    values: Any,
    offsets: Any,
    order: Any,
    twins: int,
    seed: int,
    population: Population,
    xp: Any,
) -> tuple[Any, Any, Any, Any]:
    """See :func:`merlin_sim.workflows.operators.sample_kernels.draw_negatives`."""
    rows, new_labels, twin = samples_of_order(order, labels, twins, xp)
    is_own = order % (twins + 1) == twins
    lengths = (offsets[1:] - offsets[:-1])[rows]
    new_offsets = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(lengths)])
    elements = xp.arange(int(new_offsets[-1]), dtype=xp.int64)
    within = elements - for_each_element(new_offsets[:-1], new_offsets, xp)
    positives = values[for_each_element(offsets[rows], new_offsets, xp) + within]
    keys = sample_key_arrays(seed, users[rows], positions[rows], new_labels, twin, xp)
    drawn = draw_below_arrays(
        for_each_element(keys, new_offsets, xp), within + 1, population.size, xp
    )
    negatives = population.at(drawn, xp).astype(values.dtype)
    drawn = draw_below_arrays(keys, xp.zeros_like(rows), population.size, xp)
    drawn_targets = population.at(drawn, xp).astype(values.dtype)
    return xp.where(is_own, targets[rows], drawn_targets), positives, negatives, new_offsets
