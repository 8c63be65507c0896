"""`preprocess` on a disk that is full from some moment on: a real one, of memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from preprocess_runs import cut_small, preprocess, write_raw_logs

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.schedulers import SingleProcess

PAGE = 4096
MAKES_ROOM = {("criteo", 5)}
"""Moments after which files are removed that nobody needs any more, so that there is room again."""


@pytest.fixture
def disk(tmp_path):
    """A disk of 48 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield place
    # Lazily: arrays may still be mapped from its files.
    subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=20)


class FillsTheDisk(SingleProcess):
    """Leaves no page free, before the tasks of a phase or after them."""

    def __init__(self, filler: Path, phase: int, after: bool):
        super().__init__(1)
        self.filler, self.phase, self.after = filler, phase, after
        self.phases = 0

    def run(self, task, arguments):
        phase, self.phases = self.phases, self.phases + 1
        if (phase, False) == (self.phase, self.after):
            self._fill()
        yield from super().run(task, arguments)
        if (phase, True) == (self.phase, self.after):
            self._fill()

    def _fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * PAGE):
                    pass
            except OSError:
                return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moments"),
    [
        ("amazon-books, users", 8),
        ("log", 10),
        ("criteo", 8),
    ],
)
def test_a_full_disk_is_said_with_its_place(name, moments, disk, tmp_path, monkeypatch):
    write_raw_logs(tmp_path)
    cut_small(monkeypatch)
    for moment in range(moments):
        filling = FillsTheDisk(disk / "filler", moment // 2, bool(moment % 2))
        if (name, moment) in MAKES_ROOM:
            preprocess(monkeypatch, tmp_path, name, disk / "dataset", filling)
            shutil.rmtree(disk / "dataset")
            (disk / "filler").unlink()
            continue
        with pytest.raises(MerlinSimError) as raised:
            preprocess(monkeypatch, tmp_path, name, disk / "dataset", filling)
        said = str(raised.value)
        wanted = rf"No space left on device\. The disk of {disk} is full: 0\.\d MiB are free there"
        assert re.search(wanted, said), said
        assert "No space left on device" in said.partition(f"{disk}/dataset")[2], said
        assert "name an output directory on another disk" in said
        assert [path.name for path in disk.iterdir()] == ["filler"], moment
        (disk / "filler").unlink()
    preprocess(monkeypatch, tmp_path, name, disk / "dataset", SingleProcess(1))
