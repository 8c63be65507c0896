"""Runs within this process: what they log and keep, and how they go on."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from processes import entries, losses
from small_logs import write_sim_dataset
from small_runs import small_run_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from tensorflow.python.framework.config import is_op_determinism_enabled

from merlin_sim.dataloader.open_loader import user_column
from merlin_sim.models import DINModel, SIMModel, load_model
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_files import CheckpointError, write_checkpoint
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.metrics import AUC
from merlin_sim.training.evaluation.scored_rows import TEST_SCORES, ScoredRows
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(sim_dataset, tmp_path_factory):
    """A run of two epochs, which no test changes: its folder and what it gave."""
    folder = tmp_path_factory.mktemp("trained")
    saves = {"save_scores": True, "save_checkpoint_path": folder / "saved", "tensorboard": True}
    return folder, run(small_run_of(sim_dataset, folder, **saves))


def test_a_run_logs_the_published_keys_and_keeps_its_facts(trained):
    folder, result = trained
    results = folder / "results"
    steps, epochs = entries(results, "step"), entries(results, "epoch")
    assert [entry["step"] for entry in steps] == list(range(1, 11))  # 300 rows: 5 an epoch
    for entry in steps:
        keys = {"total_loss", "classification_loss", "dien_aux_loss", "samples/s"}
        assert keys <= set(entry)
    latencies = {"latency_mean", "latency_p90", "latency_p95", "latency_p99"}
    for entry in epochs:
        assert {"train_auc", "test_auc", "throughput", *latencies} <= set(entry)
    assert {"time_to_train", "test_auc", "throughput"} <= set(entries(results, "result")[0])
    assert result["test_auc"] == epochs[-1]["test_auc"]
    assert_summaries(results / "tensorboard", steps, epochs)
    metadata = json.loads((results / "run.json").read_text())
    assert metadata["dataset"]["fingerprint"] and metadata["tensorflow"] and metadata["ranks"] == 1
    assert (results / "config.yaml").read_text().count("lr: 0.01") == 1
    evaluation = json.loads((results / "evaluation.json").read_text())
    assert evaluation["rows"] == 101
    saved = sorted(path.name for path in (folder / "saved").glob("step-*"))
    assert saved == ["step-0000000005", "step-0000000010"]
    assert CheckpointStore(folder / "saved").best() is None  # test data choose none by themselves


def assert_summaries(directory, steps, epochs):
    """TensorBoard reads every number of the log under its published key."""
    found = EventAccumulator(str(directory), size_guidance={"tensors": 0})  # 0: all of them
    found.Reload()
    for kind, entries_of_kind in (("step", steps), ("epoch", epochs)):
        names = {name for name, value in entries_of_kind[0].items() if isinstance(value, float)}
        assert {"total_loss", "samples/s"} <= names
        for name in names:
            events = found.Tensors(f"{kind}/{name}")
            assert [event.step for event in events] == [entry["step"] for entry in entries_of_kind]
            values = [float(make_ndarray(event.tensor_proto)) for event in events]
            assert values == pytest.approx([entry[name] for entry in entries_of_kind])


def test_inference_takes_the_model_from_the_checkpoint_and_gives_its_metrics(
    config, trained, sim_dataset, tmp_path
):
    folder, result = trained
    bare = {"load_checkpoint_path": folder / "saved", "model_type": None, "model_options": {}}
    options = {"mode": "inference", "save_checkpoint_path": None, **bare}
    scored = run(config(**options, save_scores=True))
    for name in ("test_auc", "test_log_loss", "test_gauc", "test_calibration_error"):
        assert scored[name] == result[name]
    assert scored["rows"] == 101
    assert "model_type: din" in (tmp_path / "results/config.yaml").read_text()
    first, second = (ScoredRows.read(path / "results" / TEST_SCORES) for path in (folder, tmp_path))
    assert len(first.users) == 101 and np.array_equal(first.users, second.users)
    assert np.array_equal(first.scores, second.scores)
    counts = AUC()
    counts.update_state(first.labels.astype(np.float32), first.scores)
    assert counts.exact_result() == result["test_auc"]
    assert_joined_with_rows(pq.read_table(tmp_path / "results" / TEST_SCORES), sim_dataset)


def assert_joined_with_rows(scores, directory):
    """Each row of test is there once, with its own user, item and label."""
    dataset = DatasetDirectory.open(directory)
    channels, rows = dataset.channels, pq.ParquetDataset(dataset.files("test")).read()
    assert scores.column_names == ["row", "position", "user", "item", "label", "score"]
    assert sorted(scores["row"].to_pylist()) == list(range(rows.num_rows))
    assert scores["position"].null_count == scores.num_rows
    joined = rows.take(scores["row"])
    for name, column in (
        ("user", user_column(dataset.schema)),
        ("item", channels["target_item_features"][0]),
        ("label", channels["label"][0]),
    ):
        assert [int(x) for x in scores[name].to_pylist()] == joined[column].to_pylist()


def test_a_finished_run_is_evaluated_and_said_to_be_finished(config, trained, tmp_path, capfd):
    folder, result = trained
    saved = (folder / "saved/step-0000000010/SHA256SUMS").read_bytes()
    capfd.readouterr()
    folders = {"load_checkpoint_path": folder / "saved", "save_checkpoint_path": folder / "saved"}
    again = run(config(**folders, save_scores=True))
    said = capfd.readouterr().out
    assert "all 2 epochs are over, 10 steps done. Nothing is left to train" in said
    assert f"test_auc {result['test_auc']:.4f}" in said
    assert "only 10 steps" not in said and "going on from" not in said
    names = ("test_auc", "test_log_loss", "train_auc", "total_loss")
    assert [again[name] for name in names] == [result[name] for name in names]
    assert (again["samples"], again["throughput"]) == (0, None)
    results = [path / "results/evaluation.json" for path in (folder, tmp_path)]
    assert results[0].read_bytes() == results[1].read_bytes()
    assert (folder / "saved/step-0000000010/SHA256SUMS").read_bytes() == saved


def test_mixed_precision_and_xla_train_to_about_the_same(config, trained):
    options = {"precision": "bf16", "xla": True, "save_checkpoint_path": None}
    result, plain = run(config(**options)), trained[1]
    assert result["total_loss"] == pytest.approx(plain["total_loss"], abs=5e-3)
    assert result["test_log_loss"] == pytest.approx(plain["test_log_loss"], abs=5e-3)
    assert tf.keras.mixed_precision.global_policy().name == "float32"  # the caller's again


def test_a_run_that_stops_twice_and_loses_a_checkpoint_is_the_one_that_nothing_stopped(
    config, trained, tmp_path, capfd
):
    """The newest checkpoint says too little, though its digests are right: somebody knew how."""
    results, (folder, uninterrupted) = tmp_path / "results", trained
    shutil.copytree(folder / "saved", tmp_path / "saved")
    newest = tmp_path / "saved/step-0000000010"
    metadata = json.loads((newest / "manifest.json").read_text())
    del metadata["model_options"]
    write_checkpoint(newest, metadata, whole({"w": np.zeros(1)}))
    bare = {"model_type": None, "model_options": {"embedding_dim": 4}}
    goes_on = {**bare, "load_checkpoint_path": tmp_path / "saved"}
    run(config(**goes_on, max_steps=7))
    said = capfd.readouterr().out
    assert "step-0000000010 lacks what a run needs: model_options. The one before" in said
    assert "step-0000000005: epoch 2, 5 steps done" in said
    assert "model_type: din" in (results / "config.yaml").read_text()
    (evaluated,) = entries(results, "evaluation")
    assert evaluated["step"] == 7 and evaluated["test_auc"] > 0
    assert not entries(results, "epoch")
    resumed = run(config(**goes_on))
    expected = losses(folder / "results")
    assert losses(results) == {step: expected[step] for step in range(6, 11)}
    for name in ("total_loss", "train_auc", "test_auc", "test_log_loss"):
        assert resumed[name] == uninterrupted[name]
    assert [entry["epoch"] for entry in entries(results, "epoch")] == [2]


WIDE = {"attention": "activation_unit", "stage_two_mlp_dims": (200, 80), "dropout_rate": 0.1}


def test_a_resume_is_exact_where_kernels_have_several_threads(config, tmp_path):
    """Batches and layers so large that TensorFlow shares out each kernel among its threads."""
    dataset = write_sim_dataset(tmp_path / "dataset", train=(1500, 600), test=(64,))
    options = {"dataset_dir": dataset, "global_batch_size": 1024, "epochs": 1}
    options |= {"model_options": WIDE, "optimizer": "lazy_adam"}
    options |= {"checkpoint_every": 1, "keep_checkpoints": 9}
    run(config(**options))
    expected = losses(tmp_path / "results")
    assert len(expected) == 3
    again = {"results_dir": tmp_path / "again", "save_checkpoint_path": tmp_path / "saved again"}
    run(config(**options, **again, load_checkpoint_path=tmp_path / "saved/step-0000000001"))
    assert losses(tmp_path / "again") == {step: expected[step] for step in (2, 3)}
    arrays, others = (
        np.load(tmp_path / name / "step-0000000003/arrays.npz") for name in ("saved", "saved again")
    )
    for name in arrays.files:
        assert arrays[name].tobytes() == others[name].tobytes()


def test_repeated_data_lengthens_the_epoch_and_the_rate_follows_the_schedule(
    config, tmp_path, monkeypatch
):
    """At a rate of 0, after the decay, nothing changes: the same rows have the same losses."""
    enable, turned_on = tf.config.experimental.enable_op_determinism, []
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: turned_on.append(enable())
    )
    changes = {"optimizer": "sgd", "lr": 0.5, "shuffle": False, "save_checkpoint_path": None}
    changes |= {"repeat_count": 2, "drop_remainder": True, "deterministic": True}
    run(config(decay_start_step=0, decay_steps=6, **changes))
    found = list(losses(tmp_path / "results").values())
    assert len(found) == 2 * 2 * 4
    assert found[8:12] == found[12:16] and found[:4] != found[4:8]
    assert len(turned_on) == 1 and not is_op_determinism_enabled()


def test_a_checkpoint_loads_as_the_model_that_was_trained(trained, sim_dataset):
    folder, result = trained
    dataset = DatasetDirectory.open(sim_dataset)
    labels = pa.concat_tables(map(pq.read_table, dataset.files("test")))["clicked"].to_numpy()
    model = DINModel.load(folder / "saved")
    auc = tf.keras.metrics.AUC(8000)
    auc.update_state(labels, model.predict(dataset, batch_size=64)[:, 0])
    assert float(auc.result()) == pytest.approx(result["test_auc"], abs=1e-6)
    same = load_model(folder / "saved/step-0000000010")
    assert type(same) is DINModel
    for ours, theirs in zip(same.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(CheckpointError, match="should be of a SIMModel. Received: DINModel"):
        SIMModel.load(folder / "saved")


def test_a_run_says_what_is_odd_of_its_data_and_its_directories(sim_dataset, tmp_path, capfd):
    """Each row without an id may be of another user: together they would be one."""
    dataset = shutil.copytree(sim_dataset, tmp_path / "dataset")
    user = user_column(DatasetDirectory.open(dataset).schema)
    for path in sorted((dataset / "test").iterdir()):
        table = pq.read_table(path)
        index = table.column_names.index(user)
        nobody = pa.array(np.zeros(table.num_rows, np.int64))
        pq.write_table(table.set_column(index, user, nobody), path)
    later = tmp_path / "saved/step-0000000900"
    later.mkdir(parents=True)
    options = {"global_batch_size": 300, "save_scores": True}
    saved = {"save_checkpoint_path": tmp_path / "saved"}
    result = run(small_run_of(dataset, tmp_path, **options, **saved))
    assert result["test_auc"] and result.get("test_gauc") is None
    said = "".join(capfd.readouterr())
    assert "101 rows of test are of users without an id" in said
    assert len(set(ScoredRows.read(tmp_path / "results" / TEST_SCORES).users)) == 101
    assert "only 2 steps in all: 300 training samples in batches of 300" in said
    assert f"{tmp_path / 'saved'} holds checkpoints of later steps than 0, the last" in said
    assert "step-0000000900" in said and later.is_dir()
