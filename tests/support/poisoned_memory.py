"""Fills the memory of batches with nonsense first, so that a row that nobody fills shows."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.dataloader.batches import filled_window
from merlin_sim.dataloader.batches.gather import aligned_arrays
from merlin_sim.dataloader.rows import gathered_rows


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    def poisoned(shapes, blocks=None):
        arrays = aligned_arrays(shapes, blocks)
        for array in arrays:
            array.view(np.uint8)[...] = 0xAB
        return arrays

    for module in (filled_window, gathered_rows):
        monkeypatch.setattr(module, "aligned_arrays", poisoned)
