"""Draws one by one are those of whole populations."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.sampling import drawing, sample_kernels
from merlin_sim.sampling.drawing import Drawing, draw_item
from merlin_sim.sampling.hashing import draw_below, row_key
from merlin_sim.sampling.population import Population


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
