"""The script that `sbatch` gets, as far as it can be followed without Slurm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm_multinode.sh"


@pytest.fixture
def submitted(tmp_path):
    """Runs the script beside an `srun` that notes its words and ends with a code."""

    def run(*words, code=0, **variables):
        srun = tmp_path / "srun"
        srun.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path / 'words'}\nexit {code}\n")
        srun.chmod(0o755)
        environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **variables}
        return subprocess.run(
            [SCRIPT, *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    return run


def test_a_job_trains_in_the_container_on_what_it_is_given(submitted, tmp_path):
    given = {"SLURM_JOB_ID": "7", "DATASET": "/data/books", "RESULTS": str(tmp_path / "results")}
    done = submitted("--amp", "--global_batch_size", "262144", **given)
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    assert "--mpi=pmix" in words and "--kill-on-bad-exit=1" in words
    assert f"--container-mounts=/data/books:/dataset:ro,{tmp_path / 'results'}:/results" in words
    begin = words.index("merlin-sim")
    assert words[begin : begin + 4] == ["merlin-sim", "train", "--dataset_dir", "/dataset"]
    assert words[-3:] == ["--amp", "--global_batch_size", "262144"]


def test_its_code_is_that_of_the_ranks(submitted):
    assert submitted(code=75, SLURM_JOB_ID="7", DATASET="/data").returncode == 75


@pytest.mark.parametrize(
    ("variables", "message"),
    [({}, "run this with sbatch"), ({"SLURM_JOB_ID": "7"}, "set DATASET to the dataset directory")],
)
def test_what_is_missing_is_said(variables, message, submitted):
    done = submitted(**variables)
    assert done.returncode != 0 and message in done.stderr
