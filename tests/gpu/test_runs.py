"""Training and inference on a real GPU, beside the same on the CPU."""

from __future__ import annotations

import pytest
from processes import BIN, entries

SMALL = ("--embedding_dim", "4", "--stage_two_mlp_dims", "8,4", "--seed", "3")
LONG = (*SMALL, "--long_seq_length", "8")
SEARCHED = (*LONG, "--top_k", "4", "--heads", "2")
OF_MODEL = {
    "sim": (*LONG, "--top_k", "4", "--stage_one_mlp_dims", "8", "--aux_mlp_dims", "6"),
    "din": SMALL,
    "dien": (*LONG, "--aux_mlp_dims", "6"),
    "eta": SEARCHED,
    "sdim": LONG,
    "twin": (*SEARCHED, "--history_counts", "true"),
    "stca": (*SMALL, "--heads", "2", "--position_buckets", "4"),
}
STEPS = ("--epochs", "2", "--global_batch_size", "64", "--lr", "0.01")
OF_HISTORIES = [
    ("din", "--separate_attention", "true"),
    ("din", "--history_similarity", "true"),
    ("din", "--history_prototypes", "4", "--recent_length", "6"),
    ("sim", "--history_counts", "true", "--table_lr_scale", "0.1"),
    ("sim", "--optimizer", "lazy_adam"),
]


def train(on_gpu, dataset, results, *options, model="sim", **more):
    said = on_gpu(
        *("train", "--dataset_dir", dataset, "--results_dir", results, "--model_type", model),
        *(*OF_MODEL[model], *STEPS, *options),
        **more,
    )
    return losses_of(results), entries(results, "result")[-1], said


def losses_of(results):
    return [entry["total_loss"] for entry in entries(results, "step")]


def assert_trains_as_on_the_cpu(on_gpu, dataset, folder, *options):
    losses = []
    for hidden in (False, True):
        words = ("--dataset_dir", dataset, "--results_dir", folder / f"{hidden}", "--seed", "3")
        on_gpu("train", *words, *options, *(() if hidden else ("--no_tf32",)), hidden=hidden)
        losses.append(losses_of(folder / f"{hidden}"))
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)


def test_the_doctor_sees_the_gpu(on_gpu):
    said = on_gpu("doctor")
    assert "GPU(s)" in said
    assert "GPU: cudf" in said


def test_memory_grows_and_the_rank_sees_one_gpu(on_gpu):
    seen = on_gpu(task="memory")
    assert seen["reported"] is None
    assert (seen["seen"], seen["sum"]) == (1, 6)
    assert seen["held"] < 2**30


@pytest.mark.parametrize("model", OF_MODEL)
def test_float32_trains_as_on_the_cpu(on_gpu, sim_dataset, tmp_path, model):
    ours, result, said = train(on_gpu, sim_dataset, tmp_path / "gpu", "--no_tf32", model=model)
    expected, on_cpu, _ = train(on_gpu, sim_dataset, tmp_path / "cpu", model=model, hidden=True)
    assert "on the CPU" not in said
    assert ours == pytest.approx(expected, rel=2e-3)
    assert result["test_auc"] == pytest.approx(on_cpu["test_auc"], abs=0.02)


@pytest.mark.parametrize("candidates", ["1", "8"])
def test_users_train_as_on_the_cpu(on_gpu, users_dataset, tmp_path, candidates):
    # Rounding grows from step to step: a hundred are as many as the other tests compare.
    options = ("--candidates", candidates, "--max_steps", "100")
    ours, result, _ = train(on_gpu, users_dataset, tmp_path / "gpu", "--no_tf32", *options)
    expected, on_cpu, _ = train(on_gpu, users_dataset, tmp_path / "cpu", *options, hidden=True)
    assert ours == pytest.approx(expected, rel=2e-3)
    assert result["test_auc"] == pytest.approx(on_cpu["test_auc"], abs=0.02)


@pytest.mark.parametrize("words", OF_HISTORIES, ids=" ".join)
def test_options_train_as_on_the_cpu(on_gpu, users_dataset, tmp_path, words):
    model, *options = words
    options += ["--model_type", model, *OF_MODEL[model], *STEPS]
    options += ["--candidates", "8", "--max_steps", "100"]
    assert_trains_as_on_the_cpu(on_gpu, users_dataset, tmp_path, *options)


def test_fitted_numbers_and_counts_train_as_on_the_cpu(on_gpu, counted_dataset, tmp_path):
    options = ("--preset", "lifelong", "--epochs", "1", "--dropout_rate", "0")
    options += ("--embedding_dim", "4", "--global_batch_size", "64", "--number_pieces", "24")
    assert_trains_as_on_the_cpu(on_gpu, counted_dataset, tmp_path, *options)


@pytest.mark.parametrize("options", [(), ("--amp", "--xla")], ids=["FP32", "AMP + XLA"])
def test_deterministic_runs_have_equal_bits(on_gpu, users_dataset, tmp_path, options):
    options = ("--deterministic", "--candidates", "8", "--max_steps", "60", *options)
    once, again = (
        train(on_gpu, users_dataset, tmp_path / name, *options)[0] for name in ("once", "again")
    )
    assert once == again


@pytest.mark.parametrize(
    ("stored", "source"), [("users_dataset", "dataset"), ("sim_dataset", "loader")]
)
def test_keras_loop_fits_evaluates_and_predicts_as_on_the_cpu(on_gpu, request, stored, source):
    directory = request.getfixturevalue(stored)
    ours = on_gpu(directory, source, task="keras")
    expected = on_gpu(directory, source, task="keras", hidden=True)
    assert (ours.pop("devices"), expected.pop("devices")) == (["GPU:0"], ["CPU:0"])
    for name, values in expected.items():
        assert ours[name] == pytest.approx(values, rel=5e-3, abs=2e-3), name


@pytest.mark.parametrize("model", ["dlrm", "dcnv2"])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_tables_of_clicks_train_as_on_the_cpu(on_gpu, clicks_dataset, tmp_path, model, optimizer):
    options = ("--model_type", model, "--embedding_dim", "8", "--bottom_mlp_dims", "16,8")
    options += ("--optimizer", optimizer, "--global_batch_size", "512", "--epochs", "1")
    assert_trains_as_on_the_cpu(on_gpu, clicks_dataset, tmp_path, *options)


@pytest.mark.parametrize("options", [("--tf32",), ("--amp",), ("--amp", "--xla"), ("--xla",)])
def test_other_precisions_train_nearly_so(on_gpu, sim_dataset, tmp_path, options):
    ours, _, _ = train(on_gpu, sim_dataset, tmp_path / "gpu", *options)
    expected, _, _ = train(on_gpu, sim_dataset, tmp_path / "float32", "--no_tf32")
    assert ours == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("model", ["din", "dien", "eta", "sdim", "twin", "stca"])
def test_other_models_train_in_float16(on_gpu, sim_dataset, tmp_path, model):
    ours, _, _ = train(on_gpu, sim_dataset, tmp_path / "amp", "--amp", "--xla", model=model)
    expected, _, _ = train(on_gpu, sim_dataset, tmp_path / "float32", "--no_tf32", model=model)
    assert ours == pytest.approx(expected, rel=0.05)


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
        *("train", "--dataset_dir", sim_dataset, "--results_dir", tmp_path, *OF_MODEL["sim"]),
        launch=launch,
    )
    assert f"{ranks} ranks were started on a machine with" in said


def test_out_of_gpu_memory_the_error_says_what_to_lower(on_gpu, sim_dataset, tmp_path):
    said = on_gpu(
        *("train", "--dataset_dir", sim_dataset, "--results_dir", tmp_path, "--benchmark"),
        *("--global_batch_size", "256", *OF_MODEL["sim"], "--embedding_dim", "2048"),
        code=2,
        TF_MEMORY_ALLOCATION="64",
    )
    assert "out of memory with `global_batch_size` = 256" in said
