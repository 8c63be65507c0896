"""Commands on a machine whose GPU cannot be used: they say why, and do their work on the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from in_process import answer
from in_process import run as run_here
from processes import BIN, entries
from stand_in import FOLDER, machine

from merlin_sim.foundation.gpus import Gpu, Gpus
from merlin_sim.scripts.options import devices

pytestmark = pytest.mark.slow


def test_a_run_is_that_of_a_machine_without_a_gpu(sim_dataset, tmp_path):
    """The driver counts a GPU, and nothing else is made up."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow can use the GPU that is here")
    words = ("train", "--dataset_dir", sim_dataset, "--model_type", "din", "--embedding_dim", 4)
    words += ("--stage_two_mlp_dims", "8", "--global_batch_size", 150, "--epochs", 1, "--seed", 3)
    shutil.copy(FOLDER / "pynvml.py", tmp_path)
    shown = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [str(word) for word in (BIN / "merlin-sim", *words, "--results_dir", tmp_path / "fallen")],
        env={**shown, "PYTHONPATH": os.pathsep.join(path), "GPU_STAND_INS": machine({})},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "runs on the CPU" in line]
    assert len(said) == 1 and said[0].startswith("merlin-sim: runs on the CPU: TensorFlow "), said
    run_here(*words, "--results_dir", tmp_path / "expected")
    for kind, value in (("step", "total_loss"), ("result", "test_auc")):
        fallen, expected = (
            [entry[value] for entry in entries(tmp_path / name, kind)]
            for name in ("fallen", "expected")
        )
        assert fallen == expected and expected


def test_preprocessing_says_once_why_it_runs_on_the_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "look", lambda: Gpus((Gpu("0"),)))
    monkeypatch.setattr(devices, "why_not_cudf", lambda gpus: "cudf cannot be used: no kernel")
    log = pd.DataFrame({"user": np.repeat(np.arange(9), 4), "item": np.arange(36) % 5})
    log.assign(time=np.arange(36)).to_csv(tmp_path / "log.csv", index=False)
    words = ("preprocess", "log", tmp_path / "log.csv", "--user_column", "user")
    words += ("--item_column", "item", "--timestamp_column", "time")
    words += ("--shortest_sequence_for_user", 3, "--output_path", tmp_path / "dataset")
    done = answer(*words)
    assert done.returncode == 0 and (tmp_path / "dataset/feature_spec.yaml").is_file(), done.stderr
    reported = "merlin-sim: runs on the CPU: cudf cannot be used: no kernel."
    assert done.stderr.splitlines().count(reported) == 1, done.stderr
