from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import killed_saves
import numpy as np
import pytest
from killed_saves import SAVES

from merlin_sim.foundation.digest import digest_of
from merlin_sim.parallel.checkpoints import checkpoint_store
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import (
    CheckpointError,
    CheckpointStore,
    choose_checkpoint,
)


def save(store, steps, auc=None):
    facts = {"epoch": steps, "auc_of": "validation"}
    return store.save(steps, facts, whole({"w": np.full(1000, steps, np.float32)}), auc)


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


@pytest.mark.slow
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


def test_one_checkpoint_can_be_named(tmp_path):
    store = CheckpointStore(tmp_path)
    first = save(store, 1)
    save(store, 2)
    assert CheckpointStore(first).load().facts["steps"] == 1


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
    assert store.load().facts["steps"] == 6
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
        number = checkpoint.facts["number"]
        assert number in (saved, saved + 1) and not said, (note.stem, number, saved, said)
        assert (checkpoint.arrays["w"] == number).all()
        scored = {steps: auc for steps, auc in SAVES[:number] if auc is not None}
        best = f"step-{max(scored, key=scored.__getitem__):010d}"
        assert store.best() == best
        save(store, 5, 0.5)  # the next save clears what was left
        left = {path.name for path in directory.iterdir()}
        assert left == {"step-0000000005", *filter(None, [store.best()])}


@pytest.mark.parametrize("limit", [40, 700])
def test_a_process_killed_while_it_writes_leaves_the_one_before(tmp_path, limit):
    """The system kills it at the byte at which a file becomes too long."""
    code = (
        "import resource, signal, sys; from pathlib import Path; import numpy as np\n"
        "from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore\n"
        "store = CheckpointStore(Path(sys.argv[1]), keep=1)\n"
        "from merlin_sim.parallel.checkpoints.array_files import whole\n"
        "def save(value): store.save(2, {}, whole({'w': np.full(100, value)}))\n"
        "save(1)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "save(2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path, str(limit)], timeout=280)
    assert done.returncode == -signal.SIGXFSZ
    assert CheckpointStore(tmp_path).load().arrays["w"][0] == 1


def test_a_checkpoint_that_was_being_replaced_can_be_named(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    path = save(store, 1)
    path.rename(tmp_path / "step-0000000001.replaced")
    assert CheckpointStore(path).load().facts["steps"] == 1
    assert store.load().facts["steps"] == 1


@pytest.mark.parametrize("name", ["write_checkpoint", "read_checkpoint"])
def test_the_directory_is_locked_while_it_is_written_or_read(tmp_path, monkeypatch, name):
    work, tried = getattr(checkpoint_store, name), []

    def locked(*arguments):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        tried.append(name)
        return work(*arguments)

    monkeypatch.setattr(checkpoint_store, name, locked)
    store = CheckpointStore(tmp_path)
    save(store, 1)
    assert store.load().facts["steps"] == 1
    assert tried == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "arrays.npz", "SHA256SUMS"])
def test_a_flipped_bit_of_any_byte_is_found(tmp_path, name):
    store = CheckpointStore(tmp_path)
    store.save(1, {"epoch": 1}, whole({"w": np.zeros(4, np.float32)}))
    path = store.save(2, {"epoch": 2}, whole({"w": np.ones(4, np.float32)})) / name
    content = path.read_bytes()
    assert store.load().facts["steps"] == 2
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        said = []
        assert store.load(said.append).facts["steps"] == 1, place
        assert len(said) == 1 and "step-0000000002 is damaged" in said[0]


def with_sums(path: Path) -> None:
    """Give a directory the digests of what it holds now, as whoever edited it would."""
    lines = []
    for name in ("arrays.npz", "manifest.json"):
        with open(path / name, "rb") as file:
            lines.append(f"{digest_of(file)}  {name}\n")
    (path / "SHA256SUMS").write_text("".join(lines))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[]",
        "7",
        '{"format": 3',
        '{"format": 2}',
        '{"format": 3}',
        '{"format": 3, "arrays": {"w": {"dtype": "float32"}}}',
        "\udcff",
        '{"format": 3, "a": \x00}',
    ],
    ids=[
        "brackets",
        "list",
        "number",
        "cut",
        "format-2",
        "no-arrays",
        "half-an-array",
        "surrogate",
        "nul",
    ],
)
def test_a_manifest_that_is_none_falls_back_though_its_digest_is_right(tmp_path, text):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2)
    (path / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with_sums(path)
    said = []
    assert store.load(said.append).facts["steps"] == 1
    assert len(said) == 1 and "step-0000000002 is " in said[0]


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x93NUMPY"])
def test_arrays_that_are_none_fall_back_though_their_digest_is_right(tmp_path, content):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2)
    (path / "arrays.npz").write_bytes(content)
    with_sums(path)
    assert store.load().facts["steps"] == 1


def test_a_checkpoint_without_digests_is_of_an_earlier_version(tmp_path):
    path = save(CheckpointStore(tmp_path), 1)
    (path / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match="no SHA256SUMS: it is damaged, or of an earlier"):
        CheckpointStore(path).load()


def test_digests_are_those_of_sha256sum(tmp_path):
    path = save(CheckpointStore(tmp_path), 1)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True)


def test_what_lacks_something_needed_falls_back(tmp_path):
    def check(checkpoint):
        if checkpoint.facts["steps"] == 2:
            raise CheckpointError("the second says too little.")

    store = CheckpointStore(tmp_path)
    save(store, 1)
    second = save(store, 2)
    assert store.load(check=check).facts["steps"] == 1
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


WEIGHTS = list(whole({"w": np.zeros(3, np.float32)}))
AUCS = {10: 0.6, 20: 0.7, 30: 0.5}


def saved(directory, facts, aucs=AUCS):
    for steps, auc in aucs.items():
        CheckpointStore(directory, keep=9).save(steps, facts, WEIGHTS, auc)
    return directory


def chosen(directory, *step):
    said = []
    return choose_checkpoint(directory, *step, say=said.append).facts["steps"], "\n".join(said)


@pytest.mark.parametrize("mapping", ["validation", "test"])
def test_the_best_is_taken_by_what_the_run_chose_by(tmp_path, mapping):
    steps, said = chosen(saved(tmp_path, {"auc_of": mapping}))
    assert steps == 20
    assert said == (
        f"{tmp_path}/step-0000000020: step 20, the best by AUC of {mapping} data (0.7000); the "
        "newest is step 30"
    )


def test_the_newest_is_taken_where_the_run_chose_none(tmp_path):
    steps, said = chosen(saved(tmp_path, {"auc_of": None}))
    assert steps == 30 and "step 30, the newest: its run chose no best one" in said


def test_the_newest_and_a_step_can_be_asked_for(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    assert chosen(tmp_path, "newest")[0] == 30
    assert chosen(tmp_path, "10")[0] == 10
    assert chosen(tmp_path / "step-0000000010")[0] == 10
    assert chosen(tmp_path / "step-0000000010", "10")[0] == 10


def test_an_unknown_step_is_refused_with_those_that_are_there(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    with pytest.raises(CheckpointError, match=r"that are there \(10, 20, 30\)\. Received: 15"):
        chosen(tmp_path, "15")
    with pytest.raises(CheckpointError, match=r"that are there \(10\)\. Received: 20"):
        chosen(tmp_path / "step-0000000010", "20")


def test_a_damaged_best_one_is_passed_over_for_the_next_best(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    (tmp_path / "step-0000000020" / "arrays.npz").write_bytes(b"")
    steps, said = chosen(tmp_path)
    assert steps == 10 and "is damaged" in said and "step 10, the best by AUC" in said
