"""What every test shares: quiet third parties, few threads, no network."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from merlin_sim.scripts.quiet import silence_third_party_noise  # noqa: E402

silence_third_party_noise()
