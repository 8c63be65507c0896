"""Training and inference on a real GPU, beside the same on the CPU."""

from __future__ import annotations

import json

import pytest
from processes import BIN

MODEL = (
    *("--embedding_dim", "4", "--stage_one_mlp_dims", "8", "--stage_two_mlp_dims", "8,4"),
    *("--aux_mlp_dims", "6", "--long_seq_length", "8", "--top_k", "4", "--seed", "3"),
)
STEPS = ("--epochs", "2", "--global_batch_size", "64", "--lr", "0.01")


def train(on_gpu, dataset, results, *options, **more):
    said = on_gpu(
        *("train", "--dataset_dir", dataset, "--results_dir", results, *MODEL, *STEPS, *options),
        **more,
    )
    entries = [json.loads(line) for line in (results / "log.json").read_text().splitlines()]
    losses = [entry["total_loss"] for entry in entries if entry["type"] == "step"]
    return losses, next(e for e in entries if e["type"] == "result"), said


def test_the_doctor_sees_the_gpu(on_gpu):
    said = on_gpu("doctor")
    assert "GPU(s)" in said
    assert "GPU: cudf" in said


def test_memory_grows_and_the_rank_sees_one_gpu(on_gpu):
    seen = on_gpu(task="memory")
    assert seen["told"] is None
    assert (seen["seen"], seen["sum"]) == (1, 6)
    assert seen["held"] < 2**30


def test_float32_trains_as_on_the_cpu(on_gpu, sim_dataset, tmp_path):
    ours, result, said = train(on_gpu, sim_dataset, tmp_path / "gpu", "--no_tf32")
    expected, on_cpu, _ = train(on_gpu, sim_dataset, tmp_path / "cpu", hidden=True)
    assert "on the CPU" not in said
    assert ours == pytest.approx(expected, rel=2e-3)
    assert result["test_auc"] == pytest.approx(on_cpu["test_auc"], abs=0.02)


@pytest.mark.parametrize("options", [("--tf32",), ("--amp",), ("--amp", "--xla"), ("--xla",)])
def test_other_precisions_train_nearly_so(on_gpu, sim_dataset, tmp_path, options):
    ours, _, _ = train(on_gpu, sim_dataset, tmp_path / "gpu", *options)
    expected, _, _ = train(on_gpu, sim_dataset, tmp_path / "float32", "--no_tf32")
    assert ours == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("model", ["din", "dien"])
def test_the_other_families_train(on_gpu, sim_dataset, tmp_path, model):
    losses, _, _ = train(on_gpu, sim_dataset, tmp_path / model, "--model_type", model, "--amp")
    assert losses[-1] == pytest.approx(losses[-1]) and losses[-1] < 10


def test_xla_compiles_once_for_each_shape(on_gpu, sim_dataset, tmp_path):
    dumped = tmp_path / "hlo"
    flags = f"--xla_dump_to={dumped} --xla_dump_hlo_as_text"
    train(on_gpu, sim_dataset, tmp_path / "run", "--xla", "--drop_remainder", XLA_FLAGS=flags)
    modules = {path.name.split(".")[0] for path in dumped.glob("*compute_gradients*before_opt*")}
    assert len(modules) == 1


@pytest.mark.horovod
def test_more_ranks_than_gpus_are_refused(on_gpu, gpu_count, sim_dataset, tmp_path):
    pytest.importorskip("horovod.tensorflow", reason="Horovod is not built here")
    ranks = gpu_count + 1
    launch = (BIN / "horovodrun", "-np", ranks, "--gloo", "-H", f"localhost:{ranks}")
    said = on_gpu(
        *("train", "--dataset_dir", sim_dataset, "--results_dir", tmp_path, *MODEL),
        launch=launch,
    )
    assert f"{ranks} ranks were started on a machine with" in said


def test_a_gpu_out_of_memory_is_told_what_to_lower(on_gpu, sim_dataset, tmp_path):
    said = on_gpu(
        *("train", "--dataset_dir", sim_dataset, "--results_dir", tmp_path, "--benchmark"),
        *("--global_batch_size", "256", "--embedding_dim", "2048"),
        code=2,
        TF_MEMORY_ALLOCATION="64",
    )
    assert "out of memory with `global_batch_size` = 256" in said
