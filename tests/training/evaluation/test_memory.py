"""The peaks of memory that a run's log tells."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from merlin_sim.training.evaluation.throughput import peak_memory


@pytest.mark.slow
def test_what_was_taken_shows():
    before = peak_memory()
    held = bytearray(3 * 2**28)  # touched: bytearray fills with zeros
    held[:: 2**12] = b"x" * len(held[:: 2**12])
    after = peak_memory()
    assert before.keys() == after.keys() == {"peak_memory_gib"}
    assert 0.1 < before["peak_memory_gib"] < 100
    assert after["peak_memory_gib"] >= 0.75


def test_a_gpu_reports_its_own(monkeypatch):
    asked = []

    def reported(place):
        asked.append(place)
        return {"current": 5, "peak": 3 * 2**29}

    gpus = [SimpleNamespace(name="/device:GPU:0")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", reported)
    assert peak_memory()["peak_gpu_memory_gib"] == pytest.approx(1.5)
    assert asked == ["GPU:0"]
