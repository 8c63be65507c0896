"""What a run cannot be made of, or cannot go on with, ends it with a message that says why."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from small_logs import SMALL_OPTIONS
from small_runs import DIN

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models.trainable_model import TrainableModel
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.training.runs.opened_dataset import open_dataset
from merlin_sim.training.runs.run import run
from merlin_sim.training.runs.run_config import RunConfig


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


def test_a_gpu_out_of_memory_is_told_what_to_lower(config, monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [9,9]\nmore")
    said = r"`global_batch_size` = 64: OOM when allocating \[9,9\]\. A smaller batch needs less, "
    said += r"and --amp about half\.$"
    seen = []

    def fail(*arguments, **options):
        seen.append(tf.config.experimental.tensor_float_32_execution_enabled())
        raise error

    monkeypatch.setattr(TrainableModel, "_train_on", fail)
    with pytest.raises(MerlinSimError, match=said):
        run(config(global_batch_size=64, tf32=False))
    assert seen == [False]
    assert tf.config.experimental.tensor_float_32_execution_enabled()  # the caller's again


def without_negatives(dataset, place):
    """Copy a dataset directory whose channels are all but the negative history."""
    shutil.copytree(dataset, place)
    spec = DatasetDirectory.open(place).spec
    for document in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (place / document).unlink(missing_ok=True)
    channels = {name: c for name, c in spec.channel_spec.items() if name != "negative_history"}
    write_documents(place, replace(spec, channel_spec=channels))
    return place


class TestRefusals:
    @pytest.fixture
    def saved(self, config, tmp_path):
        run(config(epochs=1))
        return tmp_path / "saved"

    @pytest.mark.slow
    def test_a_checkpoint_of_another_model_or_dataset(self, config, saved, sim_dataset, tmp_path):
        wider = {**DIN, "embedding_dim": 8}
        with pytest.raises(MerlinSimError, match="`embedding_dim` should be the check"):
            run(config(model_options=wider, load_checkpoint_path=saved))
        with pytest.raises(MerlinSimError, match="`model_type` should be din. Received: dien"):
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
        with pytest.raises(MerlinSimError) as raised:
            run(config(seed=6, **first))
        assert "`seed` should be the checkpoint's, 5. Received: 6" in str(raised.value)
        assert "window_rows" not in str(raised.value)  # what is the same is not listed

    def test_a_dataset_that_fails_the_models_contract(self, config, sim_dataset, tmp_path):
        other = shutil.copytree(sim_dataset, tmp_path / "other")
        spec = (other / "feature_spec.yaml").read_text()
        assert "negative_history" in spec
        (other / "feature_spec.yaml").write_text(spec.replace("negative_history", "neg"))
        with pytest.raises(MerlinSimError, match="negative_history"):
            run(config(dataset_dir=other))

    @pytest.mark.slow
    def test_a_dataset_without_what_the_auxiliary_loss_reads(self, config, sim_dataset, tmp_path):
        dataset = without_negatives(sim_dataset, tmp_path / "clicked_only")
        options = {**DIN, "long_seq_length": 8}
        with pytest.raises(MerlinSimError, match="set `auxiliary_loss` to false"):
            run(config(dataset_dir=dataset, model_type="dien", model_options=options))
        off = {**options, "auxiliary_loss": False}
        run(config(dataset_dir=dataset, model_type="dien", model_options=off, epochs=1))
        assert (
            CheckpointStore(tmp_path / "saved").load().facts["model_options"]["auxiliary_loss"]
            is False
        )

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

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["log.json", ".evaluation.json.{pid}"])
    def test_a_full_results_dir(self, config, tmp_path, name):
        """The system itself says that there is no space: the file lies on /dev/full."""
        results = tmp_path / "results"
        results.mkdir()
        (results / name.format(pid=os.getpid())).symlink_to("/dev/full")
        with pytest.raises(MerlinSimError, match=f"{results}.*: cannot be written: No space left"):
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


def test_xla_is_refused_where_spread_tables_are_in_the_middle(sim_dataset):
    config = RunConfig(sim_dataset, model_type="sim", tables="spread", xla=True)
    with pytest.raises(MerlinSimError, match="`xla` cannot be given with spread tables of sim"):
        open_dataset(config)
