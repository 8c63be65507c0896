from __future__ import annotations

import gc
import json
import os
import resource

import numpy as np
import pytest

from merlin_sim.training.checkpoints import CheckpointError, CheckpointStore


def save(store, steps, auc=None):
    return store.save(steps, {"epoch": steps}, {"w": np.full(1000, steps, np.float32)}, auc)


def test_what_was_saved_is_read(tmp_path):
    store = CheckpointStore(tmp_path / "made" / "on the way")
    save(store, 7)
    checkpoint = store.load()
    assert (checkpoint.facts["steps"], checkpoint.facts["epoch"]) == (7, 7)
    np.testing.assert_array_equal(checkpoint.arrays["w"], np.full(1000, 7))


def test_the_newest_and_the_best_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for steps, auc in [(1, 0.6), (2, 0.9), (3, None), (4, 0.7), (12, 0.8)]:
        save(store, steps, auc)
    assert store.names() == ["step-0000000012", "step-0000000004", "step-0000000002"]
    assert store.best() == "step-0000000002"
    assert store.load().facts["steps"] == 12


@pytest.mark.parametrize("kept", [0, 10, 3000])
def test_a_truncated_newest_falls_back_and_says_so(tmp_path, kept):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    newest = save(store, 2)
    with open(newest / "arrays.npz", "r+b") as file:
        file.truncate(kept)
    said = []
    assert store.load(said.append).facts["steps"] == 1
    assert len(said) == 1 and "step-0000000002 is damaged" in said[0]


def test_one_flipped_bit_is_found(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2) / "arrays.npz"
    content = bytearray(path.read_bytes())
    content[2500] ^= 1
    path.write_bytes(content)
    assert store.load().facts["steps"] == 1


@pytest.mark.parametrize("text", ["", "{", '{"format": 99}', "[]"])
def test_a_broken_manifest_falls_back(tmp_path, text):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    (save(store, 2) / "manifest.json").write_text(text)
    assert store.load().facts["steps"] == 1


def test_no_checkpoint_stops_with_a_message(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint: no such directory"):
        CheckpointStore(tmp_path / "nowhere").load()
    with pytest.raises(CheckpointError, match="holds no checkpoint that can be used"):
        CheckpointStore(tmp_path).load()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["arrays.npz", "manifest.json"])
def test_a_full_disk_leaves_what_was_there(tmp_path, name):
    """The system itself says that there is no space: the file lies on /dev/full."""
    store = CheckpointStore(tmp_path)
    save(store, 1)
    partial = tmp_path / f".step-0000000002.{os.getpid()}"
    partial.mkdir()
    (partial / name).symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=f"written to {tmp_path}: No space left on device"):
        save(store, 2)
    gc.collect()  # nothing is left open that would complain when it goes
    assert store.load().facts["steps"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000001"]


def test_a_file_that_may_not_grow_leaves_what_was_there(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            save(store, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.load().facts["steps"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000001"]


def test_a_run_killed_while_writing_leaves_nothing_half(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    (tmp_path / ".step-0000000002.4711").mkdir()  # what a kill leaves
    assert store.load().facts["steps"] == 1
    save(store, 3)
    assert not list(tmp_path.glob(".step-*"))


def test_one_checkpoint_can_be_named(tmp_path):
    store = CheckpointStore(tmp_path)
    first = save(store, 1)
    save(store, 2)
    assert CheckpointStore(first).load().facts["steps"] == 1


def test_the_best_survives_an_unreadable_note(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1, 0.9)
    (tmp_path / "best.json").write_text("{")
    save(store, 2, 0.1)
    assert json.loads((tmp_path / "best.json").read_text())["checkpoint"] == "step-0000000002"
