"""What every test shares: quiet third parties, few threads, a small dataset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise  # noqa: E402

silence_third_party_noise()


@pytest.fixture(scope="session")
def sim_dataset(tmp_path_factory) -> Path:
    """A small dataset directory that SIM can train on."""
    from small_logs import write_sim_dataset

    return write_sim_dataset(tmp_path_factory.mktemp("data") / "dataset")
