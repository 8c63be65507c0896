"""`preprocess` on a disk that is full from some moment on: a real one, of memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from preprocess_runs import all_bytes, cut_small, preprocess

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.schedulers import SingleProcess

PAGE = 4096
PHASES = {
    "amazon-books, users": (0, 9),
    "log": (0, 1, 2, 3, 7, 8, 11),
    "criteo": (0, 1, 2, 4),
}
"""By a command's name, how many phases are done before another kind of file is written.

Reviews go through the phases of a log, but for the first one and the last.
"""


@pytest.fixture
def disk(tmp_path):
    """A disk of 48 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    # Lazily: arrays may still be mapped from its files.
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


class FillsTheDisk(SingleProcess):
    """Leaves no page free once so many phases are done, also of what is deleted later on."""

    def __init__(self, filler: Path, phases: int):
        super().__init__(1)
        self.filler, self.phases = filler, phases
        self.started = 0

    def run(self, task, arguments):
        yield from self._phase(super().run(task, arguments))

    def compute(self, delayed):
        yield from self._phase(SingleProcess(1).compute(delayed))

    def _phase(self, results):
        if self.started >= self.phases:
            self._fill()
        self.started += 1
        phases = self.started
        yield from results
        if phases >= self.phases:
            self._fill()

    def _fill(self):
        with open(self.filler, "ab", buffering=0) as file:
            try:
                while file.write(b"\0" * PAGE):
                    pass
            except OSError:
                return


@pytest.mark.slow
@pytest.mark.parametrize("name", PHASES)
def test_a_full_disk_is_said_with_its_place(undisturbed, name, disk, monkeypatch):
    raw, datasets = undisturbed
    cut_small(monkeypatch)
    for phases in PHASES[name]:
        filling = FillsTheDisk(disk / "filler", phases)
        with pytest.raises(MerlinSimError) as raised:
            preprocess(monkeypatch, raw, name, disk / "dataset", filling)
        said = str(raised.value)
        wanted = rf"No space left on device\. The disk of {disk} is full: 0\.\d MiB are free there"
        assert re.search(wanted, said), said
        assert "No space left on device" in said.partition(f"{disk}/dataset")[2], said
        assert "name an output directory on another disk" in said
        assert [path.name for path in disk.iterdir()] == ["filler"], phases
        (disk / "filler").unlink()
    if name == "log":
        preprocess(monkeypatch, raw, name, disk / "dataset", SingleProcess(1))
        assert all_bytes(disk / "dataset") == datasets[name]
