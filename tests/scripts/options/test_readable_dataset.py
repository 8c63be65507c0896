"""Training straight from csv, tfrecord and several chunks: brought to parquet once, beside them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from in_process import instead_of_processes, run
from small_users import write_users_dataset

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError, Stopped
from merlin_sim.schemas.channels import BEHAVIOUR, PLAIN_ROWS
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.spec_file import read_spec
from merlin_sim.scripts.options import readable_dataset as readable
from merlin_sim.workflows.transcoding.parquet_cache import parquet_cache
from merlin_sim.workflows.transcoding.transcode import Transcoder

SPEC = """
feature_spec:
  clicked: {dtype: int8}
  age: {dtype: float32}
  kind: {dtype: int64, cardinality: 3}
source_spec:
  train:
  - {type: csv, features: [clicked, age], files: [train_0.csv]}
  - {type: csv, features: [kind], files: [train_1.csv]}
  test:
  - {type: csv, features: [clicked, age, kind], files: [test.csv]}
channel_spec: {label: [clicked], numerical: [age], categorical: [kind]}
metadata: {}
"""


@pytest.fixture
def source(tmp_path) -> Path:
    """The published example's way: two chunks of train, one of test, in csv."""
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "feature_spec.yaml").write_text(SPEC)
    labels = [row % 2 for row in range(64)]
    (directory / "train_0.csv").write_text("".join(f"{y},{n / 8}\n" for n, y in enumerate(labels)))
    (directory / "train_1.csv").write_text("".join(f"{2 * y}\n" for y in labels))
    (directory / "test.csv").write_text("0,1.5,0\n1,0.5,2\n0,0.25,0\n1,8,2\n")
    return directory


@pytest.fixture
def in_this_process(monkeypatch) -> list[list[str]]:
    """Transcode here, where starting a process for it is most of the work; lists the words."""
    started = []
    monkeypatch.setattr(readable, "subprocess", instead_of_processes(started))
    return started


def test_it_is_made_once_and_anew_when_a_file_has_changed(source, in_this_process, capsys):
    parquet, name = readable.readable_dataset(source, "feature_spec.yaml", PLAIN_ROWS)
    assert parquet.parent == source / "parquet-cache" and name == "feature_spec.yaml"
    reported = f"is in several chunks of csv: it is brought to parquet once, in {parquet}."
    assert reported in capsys.readouterr().err
    dataset = DatasetDirectory.open(parquet)
    assert pq.read_table(dataset.files("train")[0])["kind"].to_pylist() == [0, 2] * 32
    assert readable.readable_dataset(source, "feature_spec.yaml") == (parquet, name)
    assert f"{source} is read from {parquet}." in capsys.readouterr().err
    assert [words[-1] for words in in_this_process] == [str(parquet)]
    (source / "test.csv").write_text("0,1.5,1\n1,0.5,1\n0,0.25,1\n1,8,1\n")  # of the same length
    newer, _ = readable.readable_dataset(source, "feature_spec.yaml")
    assert [words[-1] for words in in_this_process] == [str(parquet), str(newer)]
    assert newer != parquet
    assert f"{parquet} is of files that have changed" in capsys.readouterr().err
    rows = pq.read_table(DatasetDirectory.open(newer).files("test")[0])
    assert rows["kind"].to_pylist() == [1] * 4


def test_validation_alone_in_csv_is_brought_to_parquet(source, in_this_process):
    whole, _ = readable.readable_dataset(source, "feature_spec.yaml")
    spec = read_spec(whole / "feature_spec.yaml")
    validation = read_spec(source / "feature_spec.yaml").source_spec["test"]
    shutil.copy(source / "test.csv", whole)
    sources = {**spec.source_spec, "validation": validation}
    replace(spec, source_spec=sources).write(whole / "feature_spec.yaml")
    parquet, _ = readable.readable_dataset(whole, "feature_spec.yaml", PLAIN_ROWS)
    dataset = DatasetDirectory.open(parquet)
    kinds = {
        mapping: pq.read_table(dataset.files(mapping)[0])["kind"].to_pylist()
        for mapping in ("train", "validation", "test")
    }
    assert kinds == {"train": [0, 2] * 32, "validation": [0, 2] * 2, "test": [0, 2] * 2}


@pytest.mark.parametrize("command", ["train", "data transcode"])
def test_users_whose_layout_is_incomplete_are_refused(tmp_path, command):
    users = write_users_dataset(tmp_path / "users", [[[5, 9]]])
    spec = users / "feature_spec.yaml"
    spec.write_text(spec.read_text().replace("negatives:", "others:"))
    words = {
        "train": ["--dataset_dir", users, "--results_dir", tmp_path / "made"],
        "data transcode": ["--input", users, "--output", tmp_path / "made"],
    }
    with pytest.raises(SpecError, match="a mapping with history.* negatives"):
        run(*command.split(), *words[command])
    assert not (tmp_path / "made").exists()


def test_what_is_refused_leaves_no_cache_and_those_that_are_there(
    source, sim_dataset, in_this_process, capsys
):
    with pytest.raises(SpecError, match="positive_history"):
        readable.readable_dataset(source, "feature_spec.yaml", BEHAVIOUR)
    test, rows = source / "test.csv", (source / "test.csv").read_text()
    test.write_text("0,1.5,3\n")
    with pytest.raises(MerlinSimError, match=r"test.csv, row 1: kind: .*found 3"):
        readable.readable_dataset(source, "feature_spec.yaml")
    cache = source / "parquet-cache"
    assert not cache.exists()
    test.write_text(rows)
    parquet, _ = readable.readable_dataset(source, "feature_spec.yaml")
    test.write_text("0,1.5,3\n")
    with pytest.raises(MerlinSimError, match="found 3"):
        readable.readable_dataset(source, "feature_spec.yaml")
    assert list(cache.iterdir()) == [parquet]
    shutil.rmtree(cache)
    cache.write_text("a file")
    cannot = "cannot be written: .*`merlin-sim data transcode --input"
    with pytest.raises(MerlinSimError, match=cannot):
        readable.readable_dataset(source, "feature_spec.yaml")
    capsys.readouterr()
    in_this_process.clear()
    fed = (sim_dataset, "feature_spec.yaml")  # what the feed reads is left alone
    assert readable.readable_dataset(*fed) == fed
    assert in_this_process == [] and capsys.readouterr().err == ""
    assert not (sim_dataset / "parquet-cache").exists()


def test_whoever_waited_while_rows_were_refused_looks_for_itself(source):
    spec = read_spec(source / "feature_spec.yaml")
    begun, go, tried, found_at = threading.Event(), threading.Event(), [], []

    def refuse(parquet):
        begun.set()
        assert go.wait(100)
        raise ValueError("refused")

    def transcode(parquet):
        tried.append(parquet)
        Transcoder(spec, source).transcode(parquet)

    def first():
        with pytest.raises(ValueError, match="refused"):
            parquet_cache(source, "feature_spec.yaml", spec, refuse)

    def second():
        found_at.append(parquet_cache(source, "feature_spec.yaml", spec, transcode))

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert begun.wait(100)
    threads += [threading.Thread(target=second) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(100)
    assert len(tried) == 1 and found_at == tried * 3


def test_what_a_killed_transcoding_left_is_never_read(source, in_this_process):
    parquet, _ = readable.readable_dataset(source, "feature_spec.yaml")
    partial = parquet.with_name(f"{parquet.name}.partial")
    parquet.rename(partial)  # whole, but for the last step
    (partial / "train" / "part.0.parquet").write_bytes(b"half")
    again, _ = readable.readable_dataset(source, "feature_spec.yaml")
    assert again == parquet and not partial.exists()
    assert pq.read_table(parquet / "train" / "part.0.parquet").num_rows == 64


def test_a_transcoding_whose_run_was_killed_is_waited_for(source):
    spec = read_spec(source / "feature_spec.yaml")
    orphans, found_at = [], []

    def killed(parquet):
        words = ["bash", "-c", "read line"]
        orphans.append(subprocess.Popen(words, stdin=subprocess.PIPE, close_fds=False))
        raise ValueError("the run is gone")

    with pytest.raises(ValueError, match="the run is gone"):
        parquet_cache(source, "feature_spec.yaml", spec, killed)
    transcode = Transcoder(spec, source).transcode
    next_run = threading.Thread(
        target=lambda: found_at.append(parquet_cache(source, "feature_spec.yaml", spec, transcode))
    )
    next_run.start()
    next_run.join(0.5)
    assert next_run.is_alive() and not found_at
    orphans[0].communicate()
    next_run.join(100)
    assert len(found_at) == 1


def test_sigterm_ends_the_transcoding_too(source, monkeypatch):
    """However soon it comes: here while the process is started."""
    monkeypatch.setattr(readable, "MERLIN_SIM", "import time; time.sleep(300)")
    started = []

    def start(*words, **options):
        started.append(popen(*words, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(readable.subprocess, "Popen", start)
    with pytest.raises(Stopped, match="stopped on request; no cache was made"):
        readable.readable_dataset(source, "feature_spec.yaml")
    assert started[0].poll() is not None
    assert not (source / "parquet-cache").exists()


@pytest.mark.slow
def test_a_run_trains_from_csv_and_its_dataset_is_the_one_that_was_given(source, tmp_path, capfd):
    words = ("train", "--dataset_dir", source, "--model_type", "dlrm", "--global_batch_size", 16)
    sizes = ("--embedding_dim", 4, "--bottom_mlp_dims", "8,4", "--top_mlp_dims", "8,1")
    results = ("--results_dir", tmp_path / "run", "--save_checkpoint_path", tmp_path / "saved")
    output = run(*words, *sizes, *results, "--epochs", 1, "--seed", 1, "--affinity", "disabled")
    assert "test_auc" in output
    assert "transcoding train" in capfd.readouterr().err  # in a process of its own
    assert f"dataset_dir: {source}\n" in (tmp_path / "run" / "config.yaml").read_text()
    saved = ("--load_checkpoint_path", tmp_path / "saved", "--dataset_dir", source)
    assert "exported" in run("export", *saved, "--output", tmp_path / "servable")
    (source / "test.csv").write_text("0,1.5,3\n")
    with pytest.raises(MerlinSimError, match="`merlin-sim data transcode` ended with 2"):
        run(*words, *sizes, "--results_dir", tmp_path / "other")
    assert "row 1: kind: expected an id in 0..2" in capfd.readouterr().err
