"""Runs within this process: what they log, keep and refuse."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from processes import entries, losses
from small_logs import SMALL_OPTIONS, write_sim_dataset
from small_runs import DIN
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from tensorflow.python.framework.config import is_op_determinism_enabled

from merlin_sim.checkpoints.array_part import whole
from merlin_sim.checkpoints.checkpoint_files import CheckpointError, write_checkpoint
from merlin_sim.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import DINModel, SIMModel, load_model
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.steps.train_step import TrainStep
from merlin_sim.training.evaluation.metrics import AUCCounts
from merlin_sim.training.evaluation.scored_rows import TEST_SCORES, ScoredRows
from merlin_sim.training.runs import training_loop
from merlin_sim.training.runs.opened_dataset import open_dataset
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture
def config(small_run, tmp_path):
    def make(**changes):
        return small_run(**{"save_checkpoint_path": tmp_path / "saved", **changes})

    return make


def test_a_run_logs_the_published_keys_and_keeps_its_facts(config, tmp_path):
    result = run(config(epochs=4, lr=0.02, tensorboard=True))
    results = tmp_path / "results"
    steps, epochs = entries(results, "step"), entries(results, "epoch")
    assert [entry["step"] for entry in steps] == list(range(1, 21))  # 300 rows: 5 an epoch
    for entry in steps:
        keys = {"total_loss", "classification_loss", "dien_aux_loss", "samples/s"}
        assert keys <= set(entry)
    latencies = {"latency_mean", "latency_p90", "latency_p95", "latency_p99"}
    for entry in epochs:
        assert {"train_auc", "test_auc", "throughput", *latencies} <= set(entry)
    assert {"time_to_train", "test_auc", "throughput"} <= set(entries(results, "result")[0])
    assert result["test_auc"] > 0.6  # clicks follow the history's kind
    assert_summaries(results / "tensorboard", steps, epochs)
    facts = json.loads((results / "run.json").read_text())
    assert facts["dataset"]["fingerprint"] and facts["tensorflow"] and facts["ranks"] == 1
    assert (results / "config.yaml").read_text().count("lr: 0.02") == 1
    evaluation = json.loads((results / "evaluation.json").read_text())
    assert evaluation["rows"] == 101
    saved = sorted(path.name for path in (tmp_path / "saved").glob("step-*"))
    assert saved[-1] == "step-0000000020"


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


@pytest.mark.slow
def test_inference_with_saved_weights_gives_the_metrics_of_training(config, tmp_path):
    trained = run(config(save_scores=True))
    loaded = {"load_checkpoint_path": tmp_path / "saved", "save_checkpoint_path": None}
    options = {**loaded, "save_scores": True, "results_dir": tmp_path / "other"}
    scored = run(config(mode="inference", **options))
    for name in ("test_auc", "test_log_loss", "test_gauc", "test_calibration_error"):
        assert scored[name] == trained[name]
    assert scored["rows"] == 101
    first, second = (ScoredRows.read(tmp_path / d / TEST_SCORES) for d in ("results", "other"))
    assert len(first.users) == 101 and np.array_equal(first.users, second.users)
    assert np.array_equal(first.scores, second.scores)
    counts = AUCCounts()
    counts.update(first.labels.astype(np.float32), first.scores)
    assert counts.result() == trained["test_auc"]


def test_scores_are_saved_by_user_or_not_at_all(config, sim_dataset, tmp_path):
    with pytest.raises(MerlinSimError, match="`save_scores` should not be given with benchmark"):
        config(save_scores=True, benchmark=True)
    nobody = tmp_path / "nobody"
    shutil.copytree(sim_dataset, nobody)
    spec = DatasetDirectory.open(nobody).spec
    for document in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (nobody / document).unlink(missing_ok=True)
    channels = {name: names for name, names in spec.channel_spec.items() if name != "user_features"}
    write_documents(nobody, replace(spec, channel_spec=channels))
    with pytest.raises(MerlinSimError, match="save_scores needs a column of users"):
        run(config(dataset_dir=nobody, save_scores=True))


@pytest.mark.slow
def test_inference_takes_the_model_from_the_checkpoint(config, tmp_path):
    trained = run(config())
    loaded = {"load_checkpoint_path": tmp_path / "saved", "results_dir": tmp_path / "other"}
    bare = {"model_type": None, "model_options": {}, "save_checkpoint_path": None}
    assert run(config(mode="inference", **loaded, **bare))["test_auc"] == trained["test_auc"]
    assert "model_type: din" in (tmp_path / "other/config.yaml").read_text()
    with pytest.raises(MerlinSimError, match="`model_type` should be din. Received: sim"):
        run(config(mode="inference", **{**loaded, **bare, "model_type": "sim"}))


def test_a_finished_run_is_evaluated_and_said_to_be_finished(config, tmp_path, capfd):
    trained = run(config())
    saved = (tmp_path / "saved/step-0000000010/SHA256SUMS").read_bytes()
    capfd.readouterr()
    again = run(config(load_checkpoint_path=tmp_path / "saved", results_dir=tmp_path / "again"))
    said = capfd.readouterr().out
    assert "all 2 epochs are over, 10 steps done. Nothing is left to train" in said
    assert f"test_auc {trained['test_auc']:.4f}" in said
    assert "only 10 steps" not in said and "going on from" not in said
    names = ("test_auc", "test_log_loss", "train_auc", "total_loss")
    assert [again[name] for name in names] == [trained[name] for name in names]
    assert (again["samples"], again["throughput"]) == (0, None)
    results = [tmp_path / name / "evaluation.json" for name in ("results", "again")]
    assert results[0].read_bytes() == results[1].read_bytes()
    assert (tmp_path / "saved/step-0000000010/SHA256SUMS").read_bytes() == saved


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_benchmark_measures_steps_beyond_the_data(config, tmp_path, mode):
    bench = {"benchmark": True, "benchmark_steps": 12, "benchmark_warmup_steps": 3}
    result = run(config(mode=mode, **bench))
    keys = {"throughput", "latency_mean", "latency_p90", "latency_p95", "latency_p99"}
    assert keys <= set(result)
    assert 0 < result["latency_mean"] <= result["latency_p99"]
    if mode == "train":  # 300 rows in 4 batches of 64 and one of 44, three times less the warm-up
        rows = 3 * 300 - 3 * 64
        assert result["throughput"] == pytest.approx(rows / 12 * 1000 / result["latency_mean"])
    assert not (tmp_path / "saved").exists()
    logged = (tmp_path / "results/log.json").read_text().splitlines()[-1]
    assert json.loads(logged)["peak_memory_gib"] > 0.1


@pytest.mark.slow
def test_a_benchmark_tells_the_losses_of_its_last_step(config, tmp_path):
    run(config(benchmark=True, benchmark_steps=6, benchmark_warmup_steps=1))
    run(config(results_dir=tmp_path / "trained", save_checkpoint_path=None))
    [benchmark] = entries(tmp_path / "results", "benchmark")
    steps = {entry["step"]: entry for entry in entries(tmp_path / "trained", "step")}
    assert benchmark["step"] == 7
    assert benchmark["total_loss"] == steps[7]["total_loss"]


@pytest.mark.slow
def test_mixed_precision_and_xla_train_to_about_the_same(config, tmp_path):
    plain = run(config())
    for number, options in enumerate(({"amp": True}, {"xla": True}, {"amp": True, "xla": True})):
        more = {"results_dir": tmp_path / str(number), "save_checkpoint_path": None}
        result = run(config(**options, **more))
        assert result["total_loss"] == pytest.approx(plain["total_loss"], abs=5e-3)
        assert result["test_log_loss"] == pytest.approx(plain["test_log_loss"], abs=5e-3)


@pytest.mark.slow
def test_a_resume_with_another_number_of_epochs_is_the_longer_run(config, tmp_path):
    whole = run(config(epochs=3, results_dir=tmp_path / "whole", save_checkpoint_path=None))
    run(config(epochs=1))
    resumed = run(config(epochs=3, load_checkpoint_path=tmp_path / "saved"))
    for name in ("total_loss", "train_auc", "test_auc", "test_log_loss"):
        assert resumed[name] == whole[name]
    assert [entry["epoch"] for entry in entries(tmp_path / "results", "epoch")] == [1, 2, 3]


class Clock:
    """Stands for the module ``time``: only steps take time, the first of a process 60 seconds."""

    def __init__(self):
        self.now, self.steps = 0.0, 0

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += 0.5 if self.steps else 60.0
        self.steps += 1


@pytest.fixture
def clock(monkeypatch):
    """Gives each run a new clock, as each process would have its own."""
    call = TrainStep.__call__

    def start():
        clock = Clock()

        def timed(step, *arguments):
            clock.step()
            return call(step, *arguments)

        monkeypatch.setattr(training_loop, "time", clock)
        monkeypatch.setattr(TrainStep, "__call__", timed)

    return start


@pytest.mark.slow
def test_times_are_of_the_steps_that_this_process_ran_after_its_first(config, tmp_path, clock):
    clock()
    run(config(checkpoint_every=2, keep_checkpoints=9))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] == first["samples/s"] == (300 - 64) / 2.0
    assert second["throughput"] == 300 / 2.5
    assert first["latency_mean"] == second["latency_p99"] == 500
    clock()
    second_step = {"load_checkpoint_path": tmp_path / "saved/step-0000000002"}
    result = run(config(**second_step, results_dir=tmp_path / "resumed"))
    first, second = entries(tmp_path / "resumed", "epoch")
    assert first["throughput"] == (300 - 3 * 64) / 1.0  # the last two of five steps
    assert first["seconds"] == 61.0
    assert first["latency_mean"] == second["latency_p99"] == 500
    assert result["throughput"] == (300 - 3 * 64 + 300) / 3.5
    assert (result["samples"], result["time_to_train"]) == (300 - 2 * 64 + 300, 63.5)


@pytest.mark.slow
def test_an_epoch_of_one_first_step_has_no_throughput(config, tmp_path, clock):
    clock()
    run(config(global_batch_size=512, save_checkpoint_path=None))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] is None and "latency_mean" not in first
    assert (second["throughput"], second["latency_mean"]) == (600, 500)


@pytest.mark.slow
def test_a_checkpoint_that_says_too_little_falls_back_to_the_one_before(config, tmp_path, capfd):
    """Its digests are right: another program wrote it, or somebody who knew how."""
    run(config(epochs=1, checkpoint_every=2))
    newest = tmp_path / "saved/step-0000000005"
    facts = json.loads((newest / "manifest.json").read_text())
    del facts["model_options"]
    write_checkpoint(newest, facts, whole({"w": np.zeros(1)}))
    run(config(epochs=1, load_checkpoint_path=tmp_path / "saved"))
    said = capfd.readouterr().out
    assert "step-0000000005 does not say what a run needs: model_options. The one before" in said
    assert "step-0000000004: epoch 1, 4 steps done" in said


WIDE = {"stage_two_mlp_dims": (200, 80), "aux_mlp_dims": (100, 50), "long_seq_length": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "sim", "model_options": {**WIDE, "dropout_rate": 0.1, "top_k": 4}},
        {"model_options": {}, "optimizer": "lazy_adam", "amp": True},
    ],
    ids=["sim", "din-lazy_adam-amp"],
)
def test_a_resume_is_exact_where_kernels_have_several_threads(config, tmp_path, options):
    """Batches and layers so large that TensorFlow shares out each kernel among its threads."""
    dataset = write_sim_dataset(tmp_path / "dataset", train=(3000, 1500), test=(64,))
    options = {"dataset_dir": dataset, "global_batch_size": 1024, "epochs": 1, **options}
    options |= {"checkpoint_every": 2, "keep_checkpoints": 9}
    run(config(**options))
    expected = losses(tmp_path / "results")
    assert len(expected) == 5
    again = {"results_dir": tmp_path / "again", "save_checkpoint_path": tmp_path / "saved again"}
    run(config(**options, **again, load_checkpoint_path=tmp_path / "saved/step-0000000002"))
    assert losses(tmp_path / "again") == {step: expected[step] for step in (3, 4, 5)}
    arrays, others = (
        np.load(tmp_path / name / "step-0000000005/arrays.npz") for name in ("saved", "saved again")
    )
    for name in arrays.files:
        assert arrays[name].tobytes() == others[name].tobytes()


@pytest.mark.slow
def test_a_run_of_few_steps_is_told_so(config, capfd):
    run(config(save_checkpoint_path=None, global_batch_size=131072))
    said = capfd.readouterr().out
    assert "only 2 steps in all: 300 training samples in batches of 131,072" in said


@pytest.mark.slow
def test_later_checkpoints_where_a_run_saves_are_told_of(config, tmp_path, capfd):
    later = tmp_path / "saved/step-0000000900"
    later.mkdir(parents=True)
    run(config(epochs=1))
    said = capfd.readouterr().out
    assert f"{tmp_path / 'saved'} holds checkpoints of later steps than 0, the last" in said
    assert "step-0000000900" in said and later.is_dir()
    shutil.rmtree(later)
    run(config(load_checkpoint_path=tmp_path / "saved", results_dir=tmp_path / "again"))
    assert "later steps" not in capfd.readouterr().out


def test_mixed_precision_without_a_gpu_is_told_to_be_slow(config, capfd):
    run(config(amp=True, epochs=1, save_checkpoint_path=None, benchmark=True, benchmark_steps=1))
    assert "no GPU: --amp computes float16 in software" in capfd.readouterr().out
    assert tf.keras.mixed_precision.global_policy().name == "float32"  # the caller's again


def test_a_gpu_out_of_memory_is_told_what_to_lower(config, monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [9,9]\nmore")
    said = r"`global_batch_size` = 64: OOM when allocating \[9,9\]\. A smaller batch needs less, "
    said += r"and --amp about half\.$"
    seen = []

    def fail(*arguments, **options):
        seen.append(tf.config.experimental.tensor_float_32_execution_enabled())
        raise error

    monkeypatch.setattr(TrainStep, "__call__", fail)
    with pytest.raises(MerlinSimError, match=said):
        run(config(global_batch_size=64, tf32=False))
    assert seen == [False]
    assert tf.config.experimental.tensor_float_32_execution_enabled()  # the caller's again


@pytest.mark.slow
def test_repeating_the_data_lengthens_the_epoch(config, tmp_path):
    run(config(epochs=1, repeat_count=2, drop_remainder=True, save_checkpoint_path=None))
    assert len(entries(tmp_path / "results", "step")) == 2 * 4


class TestRefusals:
    @pytest.fixture
    def saved(self, config, tmp_path):
        run(config(epochs=1))
        return tmp_path / "saved"

    @pytest.mark.slow
    def test_a_checkpoint_of_another_model_or_dataset(self, config, saved, sim_dataset, tmp_path):
        wider = {**DIN, "embedding_dim": 8}
        with pytest.raises(MerlinSimError, match="its model's options should be"):
            run(config(model_options=wider, load_checkpoint_path=saved))
        with pytest.raises(MerlinSimError, match="its model should be dien"):
            small = {k: SMALL_OPTIONS[k] for k in ("embedding_dim", "long_seq_length")}
            run(config(model_type="dien", model_options=small, load_checkpoint_path=saved))
        other = shutil.copytree(sim_dataset, tmp_path / "other")
        shorter = pq.read_table(other / "train/part.0.parquet").slice(1)
        pq.write_table(shorter, other / "train/part.0.parquet")
        with pytest.raises(MerlinSimError, match="its dataset should be"):
            run(config(dataset_dir=other, load_checkpoint_path=saved))

    def test_no_checkpoint(self, config, tmp_path):
        with pytest.raises(MerlinSimError, match="holds no checkpoint"):
            run(config(load_checkpoint_path=tmp_path / "nothing"))

    @pytest.mark.slow
    def test_another_order_within_an_epoch(self, config, saved):
        run(config(epochs=1, checkpoint_every=2, keep_checkpoints=9))
        first = {"load_checkpoint_path": saved / "step-0000000002"}
        with pytest.raises(MerlinSimError, match="order of rows"):
            run(config(global_batch_size=32, **first))
        with pytest.raises(MerlinSimError, match="order of rows"):
            run(config(seed=6, **first))

    def test_a_dataset_that_fails_the_models_contract(self, config, sim_dataset, tmp_path):
        other = shutil.copytree(sim_dataset, tmp_path / "other")
        spec = (other / "feature_spec.yaml").read_text()
        assert "negative_history" in spec
        (other / "feature_spec.yaml").write_text(spec.replace("negative_history", "neg"))
        with pytest.raises(MerlinSimError, match="negative_history"):
            run(config(dataset_dir=other))

    def test_an_option_that_the_model_does_not_have(self, config):
        with pytest.raises(MerlinSimError, match="top_k"):
            run(config(model_options={**DIN, "top_k": 5}))

    @pytest.mark.parametrize("column, value", [("clicked", np.nan), ("thing", 61), ("who", 0.5)])
    def test_bad_rows_end_the_run_with_file_and_row(
        self, config, sim_dataset, tmp_path, column, value
    ):
        other = shutil.copytree(sim_dataset, tmp_path / "other")
        path = other / "train/part.2.parquet"
        table = pq.read_table(path)
        if isinstance(value, float) and column == "who":
            value = -1
        values = table[column].to_pylist()
        values[33] = value
        place = table.column_names.index(column)
        array = pa.array(values, table.schema.field(column).type)
        pq.write_table(table.set_column(place, column, array), path)
        with pytest.raises(MerlinSimError, match=f"part.2.parquet, row 34: column {column}"):
            run(config(dataset_dir=other))

    def test_a_results_dir_that_cannot_be_written(self, config, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(MerlinSimError, match="cannot be written"):
            run(config(results_dir=tmp_path / "file"))

    @pytest.mark.parametrize(
        "name", ["log.json", "config.yaml", ".run.json.{pid}", ".evaluation.json.{pid}"]
    )
    def test_a_full_results_dir(self, config, tmp_path, name):
        """The system itself says that there is no space: the file lies on /dev/full."""
        results = tmp_path / "results"
        results.mkdir()
        (results / name.format(pid=os.getpid())).symlink_to("/dev/full")
        with pytest.raises(MerlinSimError, match=f"{results}.* cannot be written: No space left"):
            run(config(epochs=1))

    @pytest.mark.slow
    def test_a_full_checkpoint_directory(self, config, saved):
        partial = saved / f".step-0000000010.{os.getpid()}"
        partial.mkdir()
        (partial / "arrays.npz").symlink_to("/dev/full")
        with pytest.raises(MerlinSimError, match=f"could be written to {saved}: No space left"):
            run(config(load_checkpoint_path=saved))
        assert [path.name for path in saved.glob("*step*")] == ["step-0000000005"]
        assert CheckpointStore(saved).load().facts["epoch"] == 1

    @pytest.mark.slow
    def test_a_learning_rate_that_breaks_the_weights(self, config):
        with pytest.raises(MerlinSimError, match="a smaller `lr`"):
            run(config(optimizer="sgd", lr=1e30))

    def test_fewer_rows_than_a_batch_where_rests_are_dropped(self, config):
        with pytest.raises(MerlinSimError, match="fewer than one global batch"):
            run(config(global_batch_size=512, drop_remainder=True))


@pytest.mark.slow
def test_a_checkpoint_loads_as_the_model_that_was_trained(config, tmp_path):
    run(config(model_type="sim", model_options={**WIDE, "top_k": 4}, epochs=1))
    rows = {"batch_size": 64}
    dataset = DatasetDirectory.open(config().dataset_dir)
    (said,) = entries(tmp_path / "results", "epoch")
    for path in (tmp_path / "saved", tmp_path / "saved/step-0000000005"):
        model = SIMModel.load(path)
        auc = tf.keras.metrics.AUC(8000)
        labels = pa.concat_tables(map(pq.read_table, dataset.files("test")))["clicked"].to_numpy()
        auc.update_state(labels, model.predict(dataset, **rows)[:, 0])
        assert float(auc.result()) == pytest.approx(said["test_auc"], abs=1e-6)
    assert type(load_model(tmp_path / "saved")) is SIMModel
    with pytest.raises(CheckpointError, match="should be of a DINModel. Received: SIMModel"):
        DINModel.load(tmp_path / "saved")


@pytest.mark.slow
def test_deterministic_operations_give_equal_bits_and_end_with_the_run(config, tmp_path):
    changes = {"deterministic": True, "model_type": "sim", "save_checkpoint_path": None}
    model = {**WIDE, "top_k": 4, "dropout_rate": 0.2}
    for name in ("once", "again"):
        run(config(model_options=model, epochs=1, results_dir=tmp_path / name, **changes))
    assert losses(tmp_path / "once") == losses(tmp_path / "again")
    assert not is_op_determinism_enabled()


@pytest.mark.slow
def test_max_steps_ends_a_run_and_more_of_them_go_on_with_it(config, tmp_path):
    whole_run = run(config(results_dir=tmp_path / "whole", save_checkpoint_path=None))
    run(config(max_steps=3))
    assert len(entries(tmp_path / "results", "step")) == 3
    (evaluated,) = entries(tmp_path / "results", "evaluation")
    assert evaluated["step"] == 3 and evaluated["test_auc"] > 0
    assert not entries(tmp_path / "results", "epoch")
    run(config(max_steps=7, load_checkpoint_path=tmp_path / "saved"))
    assert [e["step"] for e in entries(tmp_path / "results", "evaluation")] == [3, 7]
    result = run(config(load_checkpoint_path=tmp_path / "saved"))
    assert losses(tmp_path / "results") == losses(tmp_path / "whole")
    assert result["test_auc"] == whole_run["test_auc"]


@pytest.mark.slow
def test_an_epoch_may_score_the_test_data_several_times(config, tmp_path):
    once = run(config(epochs=1, save_checkpoint_path=None, results_dir=tmp_path / "once"))
    result = run(config(epochs=1, evals_per_epoch=3, save_checkpoint_path=None))
    found = entries(tmp_path / "results", "evaluation")
    assert [entry["step"] for entry in found] == [2, 3]  # of 5; the last is the epoch's own
    assert losses(tmp_path / "results") == losses(tmp_path / "once")
    assert result["test_auc"] == once["test_auc"]


@pytest.mark.slow
def test_the_rate_follows_the_schedule(config, tmp_path):
    """At a rate of 0 nothing changes: the first step of a warm-up, those after a decay."""
    changes = {"optimizer": "sgd", "lr": 0.5, "shuffle": False, "save_checkpoint_path": None}
    run(config(epochs=3, decay_start_step=0, decay_steps=5, **changes))
    found = list(losses(tmp_path / "results").values())
    assert found[5:10] == found[10:15] and found[:5] != found[5:10]


def test_xla_is_refused_where_spread_tables_are_in_the_middle(sim_dataset):
    config = RunConfig(sim_dataset, model_type="sim", tables="spread", xla=True)
    with pytest.raises(MerlinSimError, match="`xla` cannot be given with spread tables of sim"):
        open_dataset(config)
