"""fit under horovodrun ends with the weights of one process: real processes, unequal batches."""

from __future__ import annotations

import fit_worker
import numpy as np
import pytest
from processes import horovodrun, run
from warm import warm

pytestmark = [pytest.mark.slow, pytest.mark.horovod, pytest.mark.timeout(600)]


def test_two_ranks_fit_the_weights_of_one(make_dataset, tmp_path):
    dataset = make_dataset(ragged=True, rows=41)  # of the last batch's one row a rank has none
    expected = fit_worker.fit_cases(dataset.path)
    words = warm(fit_worker.__file__, str(dataset.path), str(tmp_path / "two.npz"))
    done = run([*horovodrun(2, "--gloo-timeout-seconds", "120"), *words], seconds=280)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "two.npz") as received:
        assert len(received.files) == len(expected)
        for name, array in expected.items():
            np.testing.assert_allclose(
                received[name.replace("/", "|")], array, rtol=1e-4, atol=1e-6, err_msg=name
            )
