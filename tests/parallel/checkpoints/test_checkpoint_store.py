from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import killed_saves
import numpy as np
import pytest
from killed_saves import SAVES

from merlin_sim.foundation.digest import digest_of
from merlin_sim.parallel.checkpoints import checkpoint_files, checkpoint_store
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_files import write_alone
from merlin_sim.parallel.checkpoints.checkpoint_store import (
    CheckpointError,
    CheckpointStore,
    choose_checkpoint,
)


def save(store, steps, auc=None):
    metadata = {"epoch": steps, "auc_of": "validation"}
    return store.save(steps, metadata, whole({"w": np.full(1000, steps, np.float32)}), auc)


def test_the_newest_and_the_best_are_kept(tmp_path):
    directory = tmp_path / "made" / "on the way"
    store = CheckpointStore(directory, keep=2)
    for steps, auc in [(1, 0.6), (2, 0.9), (3, None), (4, 0.7), (12, 0.8)]:
        save(store, steps, auc)
    assert store.names() == ["step-0000000012", "step-0000000004", "step-0000000002"]
    assert store.best() == "step-0000000002"
    newest = store.load()
    assert (newest.metadata["steps"], newest.metadata["epoch"]) == (12, 12)
    np.testing.assert_array_equal(newest.arrays["w"], np.full(1000, 12))
    # One can be named, also while it is replaced.
    path = directory / "step-0000000004"
    assert CheckpointStore(path).load().metadata["steps"] == 4
    path.rename(directory / "step-0000000004.replaced")
    assert CheckpointStore(path).load().metadata["steps"] == 4
    assert store.load().metadata["steps"] == 12


def test_no_checkpoint_stops_with_a_message(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint: no such directory"):
        CheckpointStore(tmp_path / "nowhere").load()
    with pytest.raises(CheckpointError, match="holds no checkpoint that can be used"):
        CheckpointStore(tmp_path).load()
    path = save(CheckpointStore(tmp_path), 1)
    (path / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match="no SHA256SUMS: it is damaged, or of an earlier"):
        CheckpointStore(path).load()


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_leaves_what_was_there(tmp_path):
    """The system itself says that there is no space: the file lies on /dev/full."""
    store = CheckpointStore(tmp_path)
    save(store, 1)
    for name in ("arrays.npz", "manifest.json"):
        partial = tmp_path / f".step-0000000002.{os.getpid()}"
        partial.mkdir()
        (partial / name).symlink_to("/dev/full")
        with pytest.raises(CheckpointError, match=f"written to {tmp_path}: No space left on dev"):
            save(store, 2)
        assert store.load().metadata["steps"] == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000001"]
    gc.collect()  # nothing is left open that would complain when it goes


def test_the_best_is_reported_by_the_checkpoints_themselves(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    for steps, auc in [(1, float("nan")), (2, 0.9), (3, 0.9), (4, None), (5, 0.1)]:
        save(store, steps, auc)
    assert store.best() == "step-0000000003"  # of equal ones the newest
    manifest = tmp_path / "step-0000000003" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("0.9", "0.8"))
    assert store.best() == "step-0000000005"  # a damaged one is not believed


def test_what_is_saved_stays_beside_damaged_ones_of_later_steps(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 9)
    (tmp_path / "step-0000000009" / "manifest.json").write_text("{")
    save(store, 5)
    save(store, 6)
    assert store.load().metadata["steps"] == 6
    assert store.names() == ["step-0000000009", "step-0000000006"]


@pytest.mark.slow
def test_a_process_killed_at_any_call_leaves_a_whole_checkpoint(tmp_path):
    script = Path(killed_saves.__file__)
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=300)
    notes = sorted(tmp_path.glob("*.saved"), key=lambda path: int(path.stem))
    assert len(notes) > 6 * 8  # a save opens, syncs, makes and renames
    for note in notes:
        directory, saved, said = tmp_path / note.stem, len(note.read_bytes()), []
        store = CheckpointStore(directory, keep=1)
        if saved == 0 and not store.names():
            continue
        checkpoint = store.load(said.append)
        number = checkpoint.metadata["number"]
        assert number in (saved, saved + 1) and not said, (note.stem, number, saved, said)
        assert (checkpoint.arrays["w"] == number).all()
        scored = {steps: auc for steps, auc in SAVES[:number] if auc is not None}
        best = f"step-{max(scored, key=scored.__getitem__):010d}"
        assert store.best() == best
        save(store, 5, 0.5)  # the next save clears what was left
        left = {path.name for path in directory.iterdir()}
        assert left == {"step-0000000005", *filter(None, [store.best()])}


def test_the_directory_is_locked_while_it_is_written_or_read(tmp_path, monkeypatch):
    tried = []

    def lock_tried(name):
        work = getattr(checkpoint_store, name)

        def locked(*arguments, **options):
            descriptor = os.open(tmp_path, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
            tried.append(name)
            return work(*arguments, **options)

        monkeypatch.setattr(checkpoint_store, name, locked)

    names = ["write_checkpoint", "read_checkpoint"]
    for name in names:
        lock_tried(name)
    store = CheckpointStore(tmp_path)
    save(store, 1)
    assert store.load().metadata["steps"] == 1
    assert tried == names


@pytest.mark.timeout(60)
def test_a_run_saves_while_a_reader_compares_digests(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1)
    digest_of, waiting = checkpoint_files.digest_of, [2]

    def save_meanwhile(file):
        if waiting:
            save(store, waiting.pop())
        return digest_of(file)

    monkeypatch.setattr(checkpoint_files, "digest_of", save_meanwhile)
    read = store.load()
    assert read.metadata["steps"] == 1 and store.names() == ["step-0000000002"]
    np.testing.assert_array_equal(read.arrays["w"], np.full(1000, 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("keep", "step"), [(1, "newest"), (1, "best"), (2, "newest")])
def test_a_checkpoint_that_is_being_written_is_waited_for_and_chosen(
    tmp_path, monkeypatch, keep, step
):
    store = CheckpointStore(tmp_path, keep)
    save(store, 10, 0.5)
    begun, may_end, lock = threading.Event(), threading.Event(), fcntl.flock

    def write(path, parts):
        begun.set()
        may_end.wait()
        return write_alone(path, parts)

    def lock_and_let_the_writer_end(descriptor, kind):
        if kind == fcntl.LOCK_SH:
            may_end.set()
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", lock_and_let_the_writer_end)
    parts = whole({"w": np.zeros(3)})
    writer = threading.Thread(target=store.save, args=(20, {"auc_of": "x"}, parts, 0.7, write))
    writer.start()
    begun.wait()
    assert chosen(tmp_path, step)[0] == 20
    writer.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "arrays.npz", "SHA256SUMS"])
def test_a_flipped_bit_of_any_byte_is_found(tmp_path, name):
    store = CheckpointStore(tmp_path)
    store.save(1, {"epoch": 1}, whole({"w": np.zeros(4, np.float32)}))
    path = store.save(2, {"epoch": 2}, whole({"w": np.ones(4, np.float32)})) / name
    content = path.read_bytes()
    assert store.load().metadata["steps"] == 2
    for index in range(len(content)):
        flipped = bytearray(content)
        flipped[index] ^= 1 << index % 8
        path.write_bytes(flipped)
        said = []
        assert store.load(said.append).metadata["steps"] == 1, index
        assert len(said) == 1 and "step-0000000002 is damaged" in said[0]


def with_sums(path: Path) -> None:
    """Give a directory the digests of what it holds now, as whoever edited it would."""
    lines = []
    for name in ("arrays.npz", "manifest.json"):
        with open(path / name, "rb") as file:
            lines.append(f"{digest_of(file)}  {name}\n")
    (path / "SHA256SUMS").write_text("".join(lines))


MANIFESTS = {
    "brackets": "[" * 200_000,
    "list": "[]",
    "number": "7",
    "cut": '{"format": 3',
    "format-2": '{"format": 2}',
    "no-arrays": '{"format": 3}',
    "half-an-array": '{"format": 3, "arrays": {"w": {"dtype": "float32"}}}',
    "surrogate": "\udcff",
    "nul": '{"format": 3, "a": \x00}',
}
ARRAYS = {"empty": b"", "start-of-zip": b"PK\3\4", "start-of-npy": b"\x93NUMPY"}
FILES = [
    *(("manifest.json", MANIFESTS[n].encode("utf-8", "surrogatepass")) for n in MANIFESTS),
    *(("arrays.npz", content) for content in ARRAYS.values()),
]


@pytest.mark.parametrize(("name", "content"), FILES, ids=[*MANIFESTS, *ARRAYS])
def test_a_file_that_is_none_falls_back_though_its_digest_is_right(tmp_path, name, content):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2)
    (path / name).write_bytes(content)
    with_sums(path)
    said = []
    assert store.load(said.append).metadata["steps"] == 1
    assert len(said) == 1 and "step-0000000002 is " in said[0]


def test_digests_are_those_of_sha256sum(tmp_path):
    path = save(CheckpointStore(tmp_path), 1)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True)


def test_what_lacks_something_needed_falls_back(tmp_path):
    def check(checkpoint):
        if checkpoint.metadata["steps"] == 2:
            raise CheckpointError("the second says too little.")

    store = CheckpointStore(tmp_path)
    save(store, 1)
    second = save(store, 2)
    assert store.load(check=check).metadata["steps"] == 1
    with pytest.raises(CheckpointError, match="says too little"):
        CheckpointStore(second).load(check=check)


def test_aucs_of_other_rows_do_not_compare(tmp_path):
    store = CheckpointStore(tmp_path)
    weights = list(whole({"w": np.zeros(3, np.float32)}))
    for steps, of, auc in [(1, "test", 0.9), (2, "validation", 0.6), (3, "validation", 0.5)]:
        store.save(steps, {"auc_of": of}, weights, auc)
    assert store.best() == store.best("validation") == "step-0000000002"
    assert store.best("test") == "step-0000000001"
    store.save(4, {"auc_of": None}, weights, None)
    assert store.best() is None


def chosen(directory, *step):
    said = []
    return choose_checkpoint(directory, *step, say=said.append).metadata["steps"], "\n".join(said)


@pytest.mark.parametrize(
    ("mapping", "steps", "why"),
    [
        ("test", 20, "the best by AUC of test data (0.7000); the newest is step 30"),
        ("validation", 20, "the best by AUC of validation data (0.7000); the newest is step 30"),
        (None, 30, "the newest: its run chose no best one"),
    ],
)
def test_the_best_or_the_newest_or_a_step_is_chosen(tmp_path, mapping, steps, why):
    store = CheckpointStore(tmp_path, keep=9)
    for number, auc in {10: 0.6, 20: 0.7, 30: 0.5}.items():
        store.save(number, {"auc_of": mapping}, list(whole({"w": np.zeros(3)})), auc)
    found, said = chosen(tmp_path)
    assert found == steps
    assert said.startswith(f"{tmp_path}/step-00000000{steps}: step {steps}, {why}")
    first = tmp_path / "step-0000000010"
    assert chosen(tmp_path, "newest")[0] == 30
    assert [chosen(*asked)[0] for asked in ((tmp_path, "10"), (first,), (first, "10"))] == [10] * 3
    with pytest.raises(CheckpointError, match=r"that are there \(10, 20, 30\)\. Received: 15"):
        chosen(tmp_path, "15")
    with pytest.raises(CheckpointError, match=r"that are there \(10\)\. Received: 20"):
        chosen(first, "20")
    if mapping is not None:  # a damaged best one is passed over for the next best
        (tmp_path / "step-0000000020" / "arrays.npz").write_bytes(b"")
        found, said = chosen(tmp_path)
        assert found == 10 and "is damaged" in said and "step 10, the best by AUC" in said
