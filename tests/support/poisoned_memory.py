"""Fills the memory of batches with nonsense first, so that a row that nobody fills shows."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.dataloader import stored_rows
from merlin_sim.dataloader.stored_rows import aligned_array


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    def poisoned(shape, dtype):
        array = aligned_array(shape, dtype)
        array.view(np.uint8)[...] = 0xAB
        return array

    monkeypatch.setattr(stored_rows, "aligned_array", poisoned)
