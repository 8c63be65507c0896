"""A rank that dies or hangs ends the whole run, and is named; what was saved is whole."""

from __future__ import annotations

import re
import time

import killed_rank_worker
import numpy as np
import pytest
import slow_writer_worker
from in_process import run as run_here
from processes import command, entries, horovodrun, losses, run
from ranking_rows import write_ranking_dataset
from warm import warm

from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.horovod, pytest.mark.timeout(600)]
MODEL = ["--model_type", "dlrm", "--embedding_dim", "8", "--bottom_mlp_dims", "16,8"]
MODEL += ["--top_mlp_dims", "16,1", "--optimizer", "lazy_adam"]
LOSSES = [
    (2, "columns", ["1", "3", "open", "SIGSTOP"], "rank 1 has not reported"),
    (2, "columns", ["1", "4", "fsync", "SIGKILL"], "rank 1 died"),
    # Which of the ranks' ends the launcher sees first, it alone knows.
    (3, "rows", ["0", "7", "os.rename", "SIGKILL"], "[0]<stderr>:Killed"),
]


def test_ranks_lost_while_they_write_together_lose_no_checkpoint(tmp_path):
    """Each time others go on: two ranks with columns, three with rows, one process alone."""
    dataset = write_ranking_dataset(tmp_path / "dataset", rows=501)
    common = ["--dataset_dir", str(dataset), *MODEL, "--epochs", "2", "--seed", "3"]
    common += ["--global_batch_size", "102", "--lr", "0.05", "--affinity", "disabled"]
    run_here("train", *common, "--tables", "spread", "--results_dir", tmp_path / "whole")
    saved, results = tmp_path / "saved", tmp_path / "results"
    common += ["--results_dir", str(results), "--save_checkpoint_path", str(saved)]
    common += ["--checkpoint_every", "1"]
    load = ["--load_checkpoint_path", str(saved)]
    for ranks, cut, loss, said in LOSSES:
        words = ["train", *common, "--tables", "spread", "--cut", cut, *load * saved.exists()]
        launched = warm(killed_rank_worker.__file__, *loss, *words)
        done = run([*horovodrun(ranks), *launched], seconds=250)
        since_last_step = time.time() - (results / "log.json").stat().st_mtime
        assert done.returncode != 0 and since_last_step < 60
        assert said in done.stdout + done.stderr, done.stdout + done.stderr
        step = int(loss[1])
        assert CheckpointStore(saved).names()[0] == f"step-{step - 1:010d}"
        assert list(saved.glob(f".step-{step:010d}.*"))
    run_here("train", *common, *load)
    undisturbed, found = losses(tmp_path / "whole"), losses(results)
    assert list(found) == list(undisturbed) == list(range(1, 11))
    np.testing.assert_allclose(list(found.values()), list(undisturbed.values()), rtol=1e-4)
    aucs = [entries(folder, "result")[-1]["test_auc"] for folder in (tmp_path / "whole", results)]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)
    assert not list(saved.glob(".step-*"))


def test_a_writer_is_alive_while_it_goes_on_writing(sim_dataset, tmp_path):
    options = ["--global_batch_size", "100", "--epochs", "3", "--affinity", "disabled"]
    options += ["--save_checkpoint_path", str(tmp_path / "saved")]
    words = command(sim_dataset, tmp_path / "results", *options)[1:]
    slowly = warm(slow_writer_worker.__file__, "0.03", *words)
    done = run([*horovodrun(2), *slowly])
    text = done.stdout + done.stderr
    (seconds,) = re.findall(r"writes took ([\d.]+) seconds", text)
    assert float(seconds) > slow_writer_worker.LIMITS[0]
    assert CheckpointStore(tmp_path / "saved").names() == ["step-0000000003"]
    assert done.returncode != 0
    assert "rank 0 has written nothing of a checkpoint for" in text
