"""Tasks that run twice, at once or late, leave the dataset that one undisturbed run writes."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import dask
import pytest
from preprocess_runs import COMMANDS, all_bytes, cut_small, preprocess

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.schedulers import SingleProcess


class RunsTwice(SingleProcess):
    """Runs each task in two threads at once, and those of earlier phases once a phase has begun.

    As a cluster does that has lost sight of a worker. Nobody waits for a task that comes late:
    whether it fails is all the same, what it writes is not.
    """

    def __init__(self):
        super().__init__(1)
        self.earlier = []
        self.repeated = 0

    def run(self, task, arguments):
        calls = [(task, argument) for argument in arguments]
        for number, (_, argument) in enumerate(calls):
            for again, before in self.earlier if number == min(1, len(calls) - 1) else ():
                with contextlib.suppress(Exception):
                    again(before)
                    self.repeated += 1
            with ThreadPoolExecutor(2) as threads:
                both = [threads.submit(task, argument) for _ in range(2)]
            yield [one.result() for one in both][0]
        self.earlier += calls

    def compute(self, delayed):
        yield from self.run(
            lambda value: dask.compute(value, scheduler="synchronous")[0], list(delayed)
        )


class LosesAFile(SingleProcess):
    """Removes a working file before the tasks of a phase: the first, the last, or between."""

    def __init__(self, work, phase, share):
        super().__init__(1)
        self.work, self.phase, self.share = work, phase, share
        self.lost = None

    def run(self, task, arguments):
        if not self.phase:
            files = sorted(path for path in self.work.rglob("*") if path.is_file())
            if files:
                self.lost = files[round(self.share * (len(files) - 1))]
                self.lost.unlink()
        self.phase -= 1
        yield from super().run(task, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_task_that_runs_twice_changes_nothing(undisturbed, name, tmp_path, monkeypatch):
    raw, datasets = undisturbed
    cut_small(monkeypatch)
    repeats = RunsTwice()
    preprocess(monkeypatch, raw, name, tmp_path / "dataset", repeats)
    assert all_bytes(tmp_path / "dataset") == datasets[name]
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]
    assert repeats.repeated > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phases"), [("log", 4), ("criteo", 4)])
def test_a_lost_file_is_never_taken_for_an_empty_one(
    undisturbed, name, phases, tmp_path, monkeypatch
):
    raw, datasets = undisturbed
    cut_small(monkeypatch)
    refused = 0
    for phase in range(1, phases):
        output = tmp_path / str(phase)
        losing = LosesAFile(output.with_name(f"{phase}.partial") / ".work", phase, phase % 2)
        try:
            preprocess(monkeypatch, raw, name, output, losing)
        except (MerlinSimError, OSError, RuntimeError):  # NVTabular hides what it could not open
            refused += 1
            assert not output.exists()
        else:
            assert all_bytes(output) == datasets[name], losing.lost
        assert losing.lost is not None
    assert refused > 1
