"""`python -m attack`: see `make attack`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from merlin_sim.foundation.process_wide import silence_third_party_noise  # noqa: E402

silence_third_party_noise()

from .command import main  # noqa: E402

sys.exit(main())
