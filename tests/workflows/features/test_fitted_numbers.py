"""What numbers learn of a log, on values that a person can count."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.workflows.features.feature import Encoding
from merlin_sim.workflows.features.fitted_numbers import FittedNumbers


@pytest.mark.parametrize("smoothing", [0, 1e-300, 5])
def test_what_was_never_seen_has_the_mean_share(smoothing):
    encoding = Encoding("brand", ("target",))
    seen = np.array([0, 4]), np.array([0, 1])
    found = FittedNumbers(prior=0.3).encode(encoding, smoothing, *seen)["brand_target"]
    assert found.tolist() == pytest.approx([0.3, (1 + smoothing * 0.3) / (4 + smoothing)])
    assert found.dtype == np.float32
