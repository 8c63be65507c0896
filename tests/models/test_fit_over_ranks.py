"""fit under horovodrun ends with the weights of one process: real processes, unequal batches."""

from __future__ import annotations

import sys

import fit_worker
import numpy as np
import pytest
from processes import BIN, run

pytestmark = [pytest.mark.slow, pytest.mark.horovod, pytest.mark.timeout(600)]


def test_two_ranks_fit_the_weights_of_one(make_dataset, tmp_path):
    dataset = make_dataset(ragged=True, rows=41)  # of the last batch's one row a rank has none
    expected = fit_worker.fit_cases(dataset.path)
    words = [str(BIN / "horovodrun"), "-np", "2", "--gloo", "-H", "localhost:2"]
    words += ["--gloo-timeout-seconds", "120", sys.executable, fit_worker.__file__]
    words += [str(dataset.path), str(tmp_path / "two.npz")]
    done = run(words, seconds=280)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "two.npz") as received:
        assert len(received.files) == len(expected)
        for name, array in expected.items():
            np.testing.assert_allclose(
                received[name.replace("/", "|")], array, rtol=1e-4, atol=1e-6, err_msg=name
            )
