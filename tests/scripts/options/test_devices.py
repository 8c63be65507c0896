"""Commands on a machine whose GPU cannot be used: they say why, and do their work on the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from in_process import run as run_here
from processes import BIN, entries
from stand_in import FOLDER, machine

pytestmark = pytest.mark.slow


@pytest.fixture
def with_a_driver(tmp_path):
    """Run ``merlin-sim`` where the driver counts a GPU, and nothing else is made up."""
    shutil.copy(FOLDER / "pynvml.py", tmp_path)
    shown = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(*words):
        return subprocess.run(
            [str(word) for word in (BIN / "merlin-sim", *words)],
            env={
                **shown,
                "PYTHONPATH": os.pathsep.join(path),
                "GPU_STAND_INS": machine({}),
            },
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    return run


def test_a_run_is_that_of_a_machine_without_a_gpu(with_a_driver, sim_dataset, tmp_path):
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow can use the GPU that is here")
    words = ("train", "--dataset_dir", sim_dataset, "--model_type", "din", "--embedding_dim", 4)
    words += ("--stage_two_mlp_dims", "8", "--global_batch_size", 64, "--epochs", 1, "--seed", 3)
    done = with_a_driver(*words, "--results_dir", tmp_path / "fallen")
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


def test_preprocessing_is_that_of_a_machine_without_a_gpu(with_a_driver, tmp_path):
    rng = np.random.default_rng(0)
    log = pd.DataFrame({"user": np.repeat(np.arange(30), 8), "item": rng.integers(0, 20, 240)})
    log.assign(time=np.arange(240)).to_csv(tmp_path / "log.csv", index=False)
    words = ("preprocess", "log", tmp_path / "log.csv", "--user_column", "user")
    words += ("--item_column", "item", "--timestamp_column", "time")
    words += ("--shortest_sequence_for_user", 3, "--output_path")
    (tmp_path / "cudf.py").write_text("def Series(data):\n    raise RuntimeError('no kernel')\n")
    (tmp_path / "cupy.py").write_text("class ndarray: ...\n")
    done = with_a_driver(*words, tmp_path / "fallen")
    assert done.returncode == 0, done.stderr
    reported = "merlin-sim: runs on the CPU: cudf cannot be used: no kernel."
    assert done.stderr.splitlines().count(reported) == 1, done.stderr
    run_here(*words, tmp_path / "expected")
    fallen, expected = (
        {
            str(path.relative_to(tmp_path / name)): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file() and path.name != "schema.pbtxt"  # whose properties have no order
        }
        for name in ("fallen", "expected")
    )
    assert fallen == expected and len(expected) > 5
