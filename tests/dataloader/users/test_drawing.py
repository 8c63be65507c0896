"""Draws one by one are those of whole populations."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.dataloader.users import drawing
from merlin_sim.dataloader.users.drawing import Drawing, draw_item, draw_targets, own_items
from merlin_sim.foundation.hashing import draw_below, row_key
from merlin_sim.schemas.population import Population
from merlin_sim.workflows.operators import sample_kernels


@pytest.mark.parametrize("most_bits", [2, 22])
@pytest.mark.parametrize(
    "counts",
    [[0, 5, 1, 0, 0, 9], [0, 1], [0, *[1] * 700], [0, 10**6, *[0, 1, 3] * 90], [0, 2**33, 1, 7]],
)
def test_a_draw_is_the_item_of_the_same_interaction(monkeypatch, counts, most_bits):
    monkeypatch.setattr(drawing, "MOST_BITS", most_bits)
    population = Population.of_counts(np.array(counts, np.int64))
    fast = Drawing.of(population)
    for position in range(300):
        key = np.uint64(row_key(np.uint64(5), 3, position, 1))
        index = draw_below(key, 7, population.size)
        found = draw_item(key, 7, fast.cumulative, fast.guide, fast.shift)
        assert found == sample_kernels._item_at(
            index, population.cumulative, population.first, population.block
        )
        assert counts[found] > 0


@pytest.mark.parametrize("missing", [1, 3, 40])
def test_what_is_not_ones_own_is_drawn_however_little_that_is(missing):
    """The user has all but one item; the one is rare, or next to items that nobody takes."""
    counts = np.array([0, 1, 10**9, 2, 0, 7, *[1000] * 40])
    has = np.array([item for item in range(1, len(counts)) if item != missing])
    fast = Drawing.of(Population.of_counts(counts))
    keys = np.arange(50, dtype=np.uint64)
    firsts, stops = np.full(50, 2), np.full(50, 2 + len(has))
    own = own_items(np.array([7, 3, *has[::-1], 5]), np.array([0, 2, 2 + len(has), 3 + len(has)]))
    assert (draw_targets(keys, fast, own, firsts, stops) == missing).all()


def test_who_has_all_items_keeps_what_is_drawn():
    fast = Drawing.of(Population.of_counts(np.array([0, 4, 0, 2])))
    own, keys = np.array([1, 3]), np.arange(30, dtype=np.uint64)
    found = draw_targets(keys, fast, own, np.zeros(30, int), np.full(30, 2))
    assert set(found) == {1, 3}
