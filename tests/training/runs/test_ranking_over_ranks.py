"""DLRM on two real ranks does what it does on one, with every optimizer of tables."""

from __future__ import annotations

import json

import commands_worker
import in_process
import numpy as np
import pytest
from processes import entries, horovodrun, run
from ranking_rows import write_ranking_dataset
from warm import warm

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
MODEL = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]
OPTIMIZERS = ["adagrad", "sgd"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Where each optimizer's run logged, on one rank and on two; the two of them start once."""
    home = tmp_path_factory.mktemp("clicks")
    dataset = write_ranking_dataset(home / "dataset", rows=501)

    def commands(ranks):
        options = [*("--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL)]
        options += ["--global_batch_size", "100", "--epochs", "2", "--seed", "3", "--lr", "0.1"]
        options += ["--warmup_steps", "4", "--affinity", "disabled"]
        return [
            ["train", *options, "--optimizer", name, "--results_dir", str(home / name / ranks)]
            for name in OPTIMIZERS
        ]

    for words in commands("1"):
        in_process.run(*words)
    words = warm(commands_worker.__file__, json.dumps(commands("2")))
    done = run([*horovodrun(2), *words], seconds=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_ranks_are_one(optimizer, found):
    (alone, auc), (together, auc_together) = (
        (
            [entry["total_loss"] for entry in entries(found / optimizer / ranks, "step")],
            entries(found / optimizer / ranks, "epoch")[-1]["test_auc"],
        )
        for ranks in ("1", "2")
    )
    assert len(alone) == len(together) == 12
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert auc_together == pytest.approx(auc, abs=1e-3)
