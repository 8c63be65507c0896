"""DLRM on two real ranks does what it does on one, with every optimizer of tables."""

from __future__ import annotations

import numpy as np
import pytest
from processes import BIN, entries, run
from ranking_rows import write_ranking_dataset

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
MODEL = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_ranking_dataset(tmp_path_factory.mktemp("clicks") / "dataset", rows=501)


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_two_ranks_are_one(optimizer, dataset, tmp_path):
    found = []
    for ranks in (1, 2):
        results = tmp_path / str(ranks)
        launch = [str(BIN / "horovodrun"), "-np", "2", "--gloo", "-H", "localhost:2"]
        options = [*("--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL)]
        options += ["--global_batch_size", "100", "--epochs", "2", "--seed", "3", "--lr", "0.1"]
        options += ["--optimizer", optimizer, "--warmup_steps", "4", "--results_dir", str(results)]
        words = [*(launch if ranks > 1 else []), str(BIN / "merlin-sim"), "train", *options]
        done = run(words, seconds=240)
        assert done.returncode == 0, done.stdout + done.stderr
        losses = [entry["total_loss"] for entry in entries(results, "step")]
        found.append((losses, entries(results, "epoch")[-1]["test_auc"]))
    (alone, auc), (together, auc_together) = found
    assert len(alone) == len(together) == 12
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert auc_together == pytest.approx(auc, abs=1e-3)
