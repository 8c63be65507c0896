"""Every command line of the published texts (May and November 2022), on a small log.

Each stands here as a person types it. Ranks' launchers are left out where one rank runs, the global
batch is one that a small log fills, and a benchmark has few steps; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import shutil
import string
import subprocess
import sys
from pathlib import Path
from unittest import mock

import in_process
import pytest

from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize

SCRIPTS = Path(__file__).parents[2] / "scripts"
BATCH = "16"
LAUNCH = "mpiexec --allow-run-as-root --bind-to socket -np ${GPU} python "

PREPROCESS = """python preprocessing/sim_preprocessing.py \
 --amazon_dataset_path ${RAW_DATASET_PATH} --output_path ${PARQUET_PATH}"""
CONVERT = """python preprocessing/parquet_to_tfrecord.py \
 --amazon_dataset_path ${PARQUET_PATH} --tfrecord_output_dir ${TF_RECORD_PATH}"""
OF_USERS = " --number_of_user_features ${NUMBER_OF_USER_FEATURES}"
# The text of November gives the same flag twice; the last one counts, here as there.
TWICE = " --prebatch_train_size ${PREBATCH_TRAIN_SIZE} --prebatch_train_size ${PREBATCH_TEST_SIZE}"
BOTH = " --prebatch_train_size ${PREBATCH_TRAIN_SIZE} --prebatch_test_size ${PREBATCH_TEST_SIZE}"
TRAIN = f"""{LAUNCH}main.py --dataset_dir ${{TF_RECORD_PATH}} --mode train --model_type sim \
 --embedding_dim 16 --drop_remainder --optimizer adam --lr 0.01 --epochs 3 \
 --global_batch_size 131072 --amp"""
INFER = f"""{LAUNCH}main.py --dataset_dir ${{TF_RECORD_PATH}} --mode inference --model_type sim \
 --embedding_dim 16 --global_batch_size 131072 --amp"""
BENCH_TRAIN = f"""{LAUNCH}main.py --dataset_dir ${{TF_RECORD_PATH}} --mode train --model_type sim \
 --global_batch_size 131072 --drop_remainder --amp --benchmark"""
BENCH_INFER = f"""{LAUNCH}main.py --dataset_dir ${{TF_RECORD_PATH}} --mode inference \
 --model_type sim --global_batch_size 131072 --amp --benchmark"""
RUN_MODEL = "scripts/run_model.sh --data_path ${TF_RECORD_PATH} --gpus ${GPU} --amp 1 --benchmark 1"


MORE = "--benchmark_steps 50 --epochs 2 --results_dir r --log_filename l.json"
MORE += " --save_checkpoint_path c"


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> dict[str, str]:
    """What the texts leave to the person, and a raw log."""
    here = tmp_path_factory.mktemp("published")
    behaviour = PlantedBehaviour(users=2, items=60, categories=5, mean_length=30, seed=5)
    (here / "raw").mkdir()
    synthesize(here / "raw", behaviour)
    return {
        "RAW_DATASET_PATH": str(here / "raw"),
        "PARQUET_PATH": str(here / "parquet"),
        "TF_RECORD_PATH": str(here / "tfrecord"),
        "NUMBER_OF_USER_FEATURES": "1",
        "PREBATCH_TRAIN_SIZE": "32",
        "PREBATCH_TEST_SIZE": "16",
        "GPU": "1",
    }


def words_of(line: str, paths: dict[str, str]) -> list[str]:
    return shlex.split(string.Template(line).substitute(paths))


def run(line: str, paths: dict[str, str], *more: str) -> None:
    """Run a `python SCRIPT ...` in this process; it must end well."""
    words = words_of(line.removeprefix(LAUNCH).removeprefix("python "), paths)
    script, *words = [BATCH if word == "131072" else word for word in words]
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(sys, "argv", [script, *words, *more]),
        mock.patch("merlin_sim.scripts.main.hide_tensorflow"),  # other tests need it
        pytest.raises(SystemExit) as end,
    ):
        runpy.run_path(str(SCRIPTS / "published" / script), run_name="__main__")
    assert end.value.code in (None, 0)


@pytest.fixture(scope="module", autouse=True)
def transcoded_in_this_process():
    """What a run starts a process for is done here; test_readable_dataset.py has the process."""

    here = in_process.instead_of_processes([])
    with mock.patch("merlin_sim.scripts.options.readable_dataset.subprocess", here):
        yield


@pytest.fixture(scope="module")
def parquet(paths) -> dict[str, str]:
    run(PREPROCESS, paths)
    return paths


@pytest.fixture(scope="module")
def records(parquet, tmp_path_factory) -> dict[str, dict[str, str]]:
    """TFRecord directories: as of May, and prebatched as of November."""
    made = {}
    for name, line in (("may", CONVERT + OF_USERS), ("november", CONVERT + BOTH)):
        made[name] = {**parquet, "TF_RECORD_PATH": str(tmp_path_factory.mktemp("tf") / name)}
        run(line, made[name])
    return made


@pytest.mark.slow
def test_a_dataset_is_made_and_converted(records, tmp_path):
    for name, files in (("may", "part_0"), ("november", "remainder")):
        made = Path(records[name]["TF_RECORD_PATH"])
        assert (made / "feature_spec.yaml").exists()
        assert (made / "train" / f"{files}.tfrecord").exists()
    run(CONVERT, {**records["may"], "TF_RECORD_PATH": str(tmp_path / "plain")})
    run(CONVERT + TWICE, {**records["may"], "TF_RECORD_PATH": str(tmp_path / "twice")})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "data"), [(TRAIN + TWICE, "november"), (INFER, "may")], ids=["train", "inference"]
)
def test_main_runs_and_logs_as_published(line, data, records, tmp_path):
    run(line, records[data], "--results_dir", str(tmp_path / "results"))
    lines = (tmp_path / "results" / "log.json").read_text().splitlines()
    logged = [json.loads(text.removeprefix("DLLL ")) for text in lines]
    steps = [entry["step"] for entry in logged if entry["type"] == "LOG"]
    assert [0, 0] in steps and steps[-1] == []
    assert ([2] in steps) == (line.startswith(TRAIN))
    assert "throughput" in logged[-1]["data"]


@pytest.mark.parametrize(
    ("may", "november"),
    [(TRAIN, TRAIN + TWICE), (BENCH_TRAIN, BENCH_TRAIN + BOTH), (BENCH_INFER, BENCH_INFER + BOTH)],
)
def test_prebatch_sizes_change_nothing_of_a_run_so_that_one_of_two_lines_is_run(
    may, november, paths
):
    first, second = (words_of(line.removeprefix(LAUNCH), paths)[1:] for line in (may, november))
    assert config_of(first) == config_of(second)


def recorded(line: str, paths: dict[str, str], tmp_path: Path) -> list[str]:
    """What a launcher would start, by a `merlin-sim` that only notes its words."""
    folder, bin_folder = tmp_path / "scripts", tmp_path / ".venv" / "bin"
    folder.mkdir()
    bin_folder.mkdir(parents=True)
    shutil.copy(SCRIPTS / "run_model.sh", folder)
    noting = bin_folder / "merlin-sim"
    noting.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path / 'words'}\n")
    noting.chmod(0o755)
    subprocess.run(words_of(line, paths), cwd=tmp_path, check=True, capture_output=True)
    return (tmp_path / "words").read_text().splitlines()


def config_of(words: list[str]):
    config, _ = in_process.parsed(*words)
    return config


@pytest.mark.parametrize(
    ("line", "equivalent"),
    [
        pytest.param(RUN_MODEL, BENCH_TRAIN, id="training, May"),
        pytest.param(RUN_MODEL + BOTH, BENCH_TRAIN + BOTH, id="training, November"),
        pytest.param(
            RUN_MODEL + " --mode inference", BENCH_INFER + " --drop_remainder", id="inference, May"
        ),
        # November's line of inference is that of training: its text lacks the mode.
        pytest.param(
            f"{RUN_MODEL} --xla 0 --batch_size 64 {MORE}",
            BENCH_TRAIN.replace("131072", "64") + f" {MORE}",
            id="other flags",
        ),
    ],
)
def test_the_launcher_starts_what_the_texts_call_its_equivalent(line, equivalent, paths, tmp_path):
    mode, *words = recorded(line, paths, tmp_path)
    theirs = words_of(equivalent.removeprefix(LAUNCH), paths)[1:]
    assert config_of([*words, "--mode", mode]) == config_of(theirs)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no mpiexec here")
@pytest.mark.timeout(300)
def test_mpiexec_starts_two_ranks(records, tmp_path):
    if not pytest.importorskip("horovod.tensorflow").mpi_built():
        pytest.skip("Horovod was built without MPI: HOROVOD_WITH_MPI=1 make setup")
    words = words_of(BENCH_INFER, {**records["may"], "GPU": "2"})
    words = [BATCH if word == "131072" else word for word in words]
    words[words.index("python")] = sys.executable
    done = subprocess.run(
        [*words, "--benchmark_steps", "2", "--results_dir", str(tmp_path)],
        cwd=SCRIPTS / "published",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "log.json").read_text().startswith("DLLL {")
