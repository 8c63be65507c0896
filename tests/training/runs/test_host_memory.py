"""What is on a device and what in host memory: tables, all that changes them, whole steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from in_process import run as run_here
from processes import entries, run
from ranking_rows import write_ranking_dataset
from warm import warm

from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

pytestmark = pytest.mark.slow
WORKER = Path(__file__).parents[2] / "support/workers/host_memory_worker.py"
OPTIMIZERS = ("adagrad", "lazy_adam")
HOST, DEVICE = (f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in (0, 1))
MODEL = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]


@pytest.fixture(scope="module")
def reported(sim_dataset, tmp_path_factory):
    """Two logical CPUs are made before TensorFlow starts: in a process of its own."""
    folder = tmp_path_factory.mktemp("host")
    done = run(warm(str(WORKER), str(folder), str(sim_dataset)), seconds=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_largest_table_and_its_moments_are_on_the_host_and_all_else_on_the_device(
    optimizer, reported
):
    without, with_host = reported[1][optimizer]
    assert set(without["devices"].values()) == {DEVICE}
    assert with_host["tables"] == {"c0": DEVICE, "c1": DEVICE, "c2": HOST}
    own = {name for name, device in with_host["devices"].items() if device == HOST}
    moments = {"adagrad": 1, "lazy_adam": 2}[optimizer]
    assert len(own) == 1 + moments and all("/c2/" in name for name in own)
    assert with_host["restored"] == with_host["devices"]
    # Rows are read and changed where their table is.
    assert {device for _, device in without["operations"]} == {DEVICE}
    on_host = {name for name, device in with_host["operations"] if device == HOST}
    assert on_host == {"ResourceGather", "ResourceScatterSub", "ResourceScatterUpdate"}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fifty_steps_are_those_without_host_memory(optimizer, reported):
    folder, found = reported
    without, with_host = found[optimizer]
    np.testing.assert_allclose(with_host["losses"], without["losses"], rtol=1e-6)
    for logits in (with_host["logits"], with_host["restored_logits"]):
        np.testing.assert_allclose(logits, without["logits"], rtol=1e-5, atol=1e-6)
    theirs, ours = (
        CheckpointStore(path).load().arrays for path in sorted(folder.glob(f"{optimizer}-*"))
    )
    assert set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_all_of_a_step_and_of_a_prediction_is_computed_on_the_device(reported):
    found = reported[1]["sim"]
    assert found["variables"] == ["CPU:1"]
    assert found["on_device"] > 500
    # What brings a function its arguments, and no more.
    assert set(found["on_host"]) <= {"_Arg", "_Retval", "_Send", "_Recv", "NoOp", "Const"}


def test_a_run_goes_on_with_and_without_host_memory(tmp_path):
    """On a machine without GPU host memory is where all else is, which is said."""
    dataset = write_ranking_dataset(tmp_path / "dataset", rows=501)
    common = ["--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL, "--epochs", "2"]
    common += ["--global_batch_size", "100", "--seed", "3", "--optimizer", "adagrad"]
    host = ["--tables", "spread", "--memory", "2KB", "--host_memory", "1MB"]
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    saving = ["--save_checkpoint_path", tmp_path / "saved", "--checkpoint_every", "8"]
    said = run_here("train", *common, *host, *saving, "--results_dir", whole)
    assert "no GPU: the tables that --host_memory is for share the memory" in said
    saved = str(tmp_path / "saved/step-0000000008")
    spread = ["--tables", "spread"]
    run_here("train", *common, *spread, "--load_checkpoint_path", saved, "--results_dir", ended)
    losses = [
        {entry["step"]: entry["total_loss"] for entry in entries(folder, "step")}
        for folder in (whole, ended)
    ]
    assert list(losses[1]) == list(range(9, 13))
    assert losses[1] == {step: losses[0][step] for step in losses[1]}
    read = ["--dataset_dir", str(dataset), "--load_checkpoint_path", tmp_path / "saved"]
    run_here("inference", *read, *host, "--results_dir", tmp_path / "scored")
    (scored,) = entries(tmp_path / "scored", "inference")
    assert scored["test_auc"] == entries(ended, "epoch")[-1]["test_auc"]
