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
from small_runs import DIN, small_run_of

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models.trainable_model import TrainableModel
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow


def without_channel(dataset, target, channel):
    """Copy a dataset directory whose channels are all but one."""
    shutil.copytree(dataset, target)
    spec = DatasetDirectory.open(target).spec
    for document in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (target / document).unlink(missing_ok=True)
    channels = {name: names for name, names in spec.channel_spec.items() if name != channel}
    write_documents(target, replace(spec, channel_spec=channels))
    return target


@pytest.fixture(scope="module")
def begun(sim_dataset, tmp_path_factory):
    """Checkpoints of a run of one epoch, of which the second lies within it."""
    folder = tmp_path_factory.mktemp("begun")
    saves = {"save_checkpoint_path": folder / "saved", "checkpoint_every": 2}
    run(small_run_of(sim_dataset, folder, epochs=1, keep_checkpoints=9, **saves))
    return folder / "saved"


SIM = {k: SMALL_OPTIONS[k] for k in ("embedding_dim", "long_seq_length")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_options": {**DIN, "top_k": 5}}, "top_k"),
        ({"model_type": "sim", "tables": "spread", "xla": True, "model_options": {}},
            "`xla` cannot be given with spread tables of sim"),
        ({"global_batch_size": 512, "drop_remainder": True}, "fewer than one global batch"),
    ],
)  # fmt: skip
def test_options_that_no_run_can_be_made_of(config, changes, said):
    with pytest.raises(MerlinSimError, match=said):
        run(config(**changes))


def test_a_checkpoint_of_another_model(config, begun):
    wider = {"model_type": None, "model_options": {**DIN, "embedding_dim": 8}}
    dien = {"model_type": "dien", "model_options": SIM}
    sim = {"mode": "inference", "model_type": "sim", "model_options": {}}
    for begins, changes, said in (
        ("load_checkpoint_path", wider, "`embedding_dim` should be the checkpoint's, 4. Rec"),
        ("warm_start", wider, "`embedding_dim` should be the checkpoint's, 4. Rec"),
        ("load_checkpoint_path", dien, "`model_type` should be din. Received: dien"),
        ("load_checkpoint_path", sim, "`model_type` should be din. Received: sim"),
    ):
        with pytest.raises(MerlinSimError, match=said):
            run(config(**{begins: begun}, **{"save_checkpoint_path": None, **changes}))


def test_a_checkpoint_of_another_dataset_or_of_another_order(config, begun, sim_dataset, tmp_path):
    other = shutil.copytree(sim_dataset, tmp_path / "other")
    shorter = pq.read_table(other / "train/part.0.parquet").slice(1)
    pq.write_table(shorter, other / "train/part.0.parquet")
    with pytest.raises(MerlinSimError, match="its dataset should be"):
        run(config(dataset_dir=other, load_checkpoint_path=begun))
    within = {"load_checkpoint_path": begun / "step-0000000002"}
    with pytest.raises(MerlinSimError, match="order of rows"):
        run(config(global_batch_size=32, **within))
    with pytest.raises(MerlinSimError) as raised:
        run(config(seed=6, **within))
    assert "`seed` should be the checkpoint's, 5. Received: 6" in str(raised.value)
    assert "window_rows" not in str(raised.value)  # what is the same is not listed
    with pytest.raises(MerlinSimError, match="holds no checkpoint"):
        run(config(load_checkpoint_path=tmp_path / "nothing"))


def test_scores_are_saved_by_user_or_not_at_all(config, sim_dataset, tmp_path):
    with pytest.raises(MerlinSimError, match="`save_scores` should not be given with benchmark"):
        config(save_scores=True, benchmark=True)
    nobody = without_channel(sim_dataset, tmp_path / "nobody", "user_features")
    with pytest.raises(MerlinSimError, match="save_scores needs a column of users"):
        run(config(dataset_dir=nobody, save_scores=True))


def test_out_of_gpu_memory_the_error_says_what_to_lower(config, monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [9,9]\nmore")
    said = r"`global_batch_size` = 64: OOM when allocating \[9,9\]\. A smaller batch needs less, "
    said += r"and --amp about half\.$"
    seen = []

    def fail(iterator):
        seen.append(tf.config.experimental.tensor_float_32_execution_enabled())
        raise error

    monkeypatch.setattr(TrainableModel, "make_train_function", lambda model: fail)
    with pytest.raises(MerlinSimError, match=said):
        run(config(global_batch_size=64, tf32=False))
    assert seen == [False]
    assert tf.config.experimental.tensor_float_32_execution_enabled()  # the caller's again


class FirstStepError(Exception):
    pass


def test_a_dataset_without_negative_histories(config, sim_dataset, tmp_path, monkeypatch):
    """DIEN reads them for its auxiliary loss alone."""
    dataset = without_channel(sim_dataset, tmp_path / "clicked_only", "negative_history")
    other = shutil.copytree(sim_dataset, tmp_path / "other")
    spec = (other / "feature_spec.yaml").read_text()
    (other / "feature_spec.yaml").write_text(spec.replace("negative_history", "neg"))
    with pytest.raises(MerlinSimError, match="negative_history"):
        run(config(dataset_dir=other))
    options = {**DIN, "long_seq_length": 8}
    dien = {"dataset_dir": dataset, "model_type": "dien"}
    with pytest.raises(MerlinSimError, match="set `auxiliary_loss` to false"):
        run(config(**dien, model_options=options))
    begun = []

    def begin(model):
        begun.append(model)
        raise FirstStepError

    monkeypatch.setattr(TrainableModel, "make_train_function", begin)
    with pytest.raises(FirstStepError):
        run(config(**dien, model_options={**options, "auxiliary_loss": False}))
    (model,), opened = begun, DatasetDirectory.open(dataset)
    assert model.options.auxiliary_loss is False
    feed = open_loader(opened, "train", list(model.training_columns), 64, Ranks())
    columns, labels = next(iter(feed))
    feed.stop()
    assert float(model.compute_step(columns, labels, training=True)[0][0]) > 0


def test_bad_rows_end_the_run_with_file_and_row(config, sim_dataset, tmp_path):
    part = "train/part.2.parquet"
    table = pq.read_table(sim_dataset / part)
    for column, value in (("clicked", np.nan), ("thing", 61), ("who", -1)):
        other = shutil.copytree(sim_dataset, tmp_path / column)
        values = table[column].to_pylist()
        values[33] = value
        index = table.column_names.index(column)
        array = pa.array(values, table.schema.field(column).type)
        pq.write_table(table.set_column(index, column, array), other / part)
        with pytest.raises(MerlinSimError, match=f"part.2.parquet, row 34: column {column}"):
            run(config(dataset_dir=other))


def test_a_results_dir_that_cannot_be_written(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinSimError, match="cannot be written"):
        run(config(results_dir=tmp_path / "file"))


@pytest.mark.parametrize("name", ["log.json", ".evaluation.json.{pid}"])
def test_a_full_results_dir(config, begun, tmp_path, name):
    """The system itself says that there is no space: the file lies on /dev/full."""
    results = tmp_path / "results"
    results.mkdir()
    (results / name.format(pid=os.getpid())).symlink_to("/dev/full")
    with pytest.raises(MerlinSimError, match=f"{results}.*: cannot be written: No space left"):
        run(config(epochs=1, load_checkpoint_path=begun))


def test_a_full_checkpoint_directory(config, begun, tmp_path):
    saved = shutil.copytree(begun, tmp_path / "saved")
    partial = saved / f".step-0000000010.{os.getpid()}"
    partial.mkdir()
    (partial / "arrays.npz").symlink_to("/dev/full")
    with pytest.raises(MerlinSimError, match=f"could be written to {saved}: No space left"):
        run(config(load_checkpoint_path=saved, keep_checkpoints=9))
    names = [f"step-000000000{step}" for step in (2, 4, 5)]
    assert sorted(path.name for path in saved.glob("*step*")) == names
    assert CheckpointStore(saved).load().metadata["epoch"] == 1
