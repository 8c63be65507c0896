"""What a killed server leaves is cleared; what is alive, or not ours, stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from merlin_sim.serving.triton import server_files
from merlin_sim.serving.triton.server_files import PREFIX, ServerFiles, clear_abandoned
from merlin_sim.serving.triton.triton_process import ServerError

# Makes the folder as a server does, hands its lock on to a child, and is killed.
KILLED = """
import os, subprocess, sys
from merlin_sim.serving.triton.server_files import ServerFiles
files = ServerFiles()
child = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[files.lock])
print(files.path, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A directory for temporary files, its path short enough for sockets, and a shared memory."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(server_files, "SHARED_MEMORY", memory)
    with tempfile.TemporaryDirectory(prefix="short-", dir="/tmp") as temporary:
        monkeypatch.setattr("tempfile.tempdir", temporary)
        monkeypatch.setenv("TMPDIR", temporary)
        yield Path(temporary), memory


def test_what_nobody_owns_any_more_is_cleared(folders):
    _, memory = folders
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    path = Path(process.stdout.readline().strip())
    assert process.wait(60) == -9
    (memory / f"{path.name}-region").touch()
    (memory / "somebody-else-s").touch()
    assert clear_abandoned() == []  # its child still holds it: Triton outlives a killed server
    assert path.is_dir() and (memory / f"{path.name}-region").exists()
    process.communicate("\n", timeout=60)  # the child ends; its end of the pipe is closed
    assert clear_abandoned() == [path]
    assert not path.exists()
    assert [entry.name for entry in memory.iterdir()] == ["somebody-else-s"]


def test_what_is_alive_or_not_ours_stays(folders):
    temporary, memory = folders
    files = ServerFiles()
    (memory / f"{files.path.name}-region").touch()
    (temporary / f"{PREFIX}a").mkdir()  # without a lock: not ours, or not yet
    (temporary / f"{PREFIX}b").mkdir()
    (temporary / f"{PREFIX}b" / "lock").touch()  # made, not yet locked
    (temporary / f"{PREFIX}c").touch()
    (temporary / f"{PREFIX}d").symlink_to(temporary)
    before = sorted(os.listdir(temporary))
    assert clear_abandoned() == []
    assert sorted(os.listdir(temporary)) == before and os.listdir(memory)
    files.remove()
    assert not files.path.exists() and not os.listdir(memory)


def test_what_one_triton_left_in_shared_memory_goes_with_it_and_no_others(folders, monkeypatch):
    _, memory = folders
    files = ServerFiles()
    first, second = files.next_replica(), files.next_replica()
    another = ServerFiles()
    names = {files.shared_memory_of(first), files.shared_memory_of(second)}
    # With one prefix for all, about every second pair of servers crashed or hung.
    assert len(names | {another.shared_memory_of(another.next_replica())}) == 3
    another.remove()
    for replica in (first, second):
        (memory / f"{files.shared_memory_of(replica)}region").touch()
    files.clear(first)
    assert os.listdir(memory) == [f"{files.shared_memory_of(second)}region"]
    assert sorted(os.listdir(files.path)) == ["1", "2", "lock"]
    gone = memory / f"{files.shared_memory_of(first)}region"
    with monkeypatch.context() as during:  # what goes by itself hinders nothing
        during.setattr(Path, "glob", lambda *_: iter([gone]))
        files.clear(first)
    files.remove()
    assert not os.listdir(memory)


def test_a_path_too_long_for_a_socket_is_reported(folders, monkeypatch):
    long = folders[0] / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(ServerError, match="`TMPDIR` should be a shorter path"):
        ServerFiles()
    assert not os.listdir(long)
