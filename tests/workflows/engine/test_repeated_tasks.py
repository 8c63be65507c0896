"""Tasks that run twice, at once or late, leave the dataset that one undisturbed run writes."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor

import dask
import pytest
from preprocess_runs import COMMANDS, all_bytes, cut_small, preprocess, write_raw_logs

from merlin_sim.workflows.engine.schedulers import SingleProcess


class RunsTwice(SingleProcess):
    """Runs each task in two threads at once, as a cluster does that has lost sight of a worker."""

    def run(self, task, arguments):
        for argument in arguments:
            with ThreadPoolExecutor(2) as threads:
                both = [threads.submit(task, argument) for _ in range(2)]
            yield [one.result() for one in both][0]


class RunsAgainLater(SingleProcess):
    """Runs the tasks of earlier phases again, before the first and after each task of a phase.

    Nobody waits for such a task: whether it fails is all the same, what it writes is not.
    """

    def __init__(self):
        super().__init__(1)
        self.earlier = []
        self.repeated = 0

    def run(self, task, arguments):
        calls = [(task, argument) for argument in arguments]
        for call, number in zip(calls, itertools.count()):
            for again, argument in self.earlier if number < 2 else ():
                with contextlib.suppress(Exception):
                    again(argument)
                    self.repeated += 1
            yield call[0](call[1])
        self.earlier += calls

    def compute(self, delayed):
        yield from self.run(
            lambda value: dask.compute(value, scheduler="synchronous")[0], list(delayed)
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The raw logs, and by the command's name the files of the dataset that one process makes."""
    raw = tmp_path_factory.mktemp("raw")
    write_raw_logs(raw)
    datasets = {}
    with pytest.MonkeyPatch.context() as patched:
        cut_small(patched)
        preprocess(patched, raw, "criteo", raw / "known", SingleProcess(1))
        for name in COMMANDS:
            preprocess(patched, raw, name, raw / name, SingleProcess(1))
            datasets[name] = all_bytes(raw / name)
    return raw, datasets


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("scheduler", [RunsTwice, RunsAgainLater])
def test_a_task_that_runs_twice_changes_nothing(
    undisturbed, name, scheduler, tmp_path, monkeypatch
):
    raw, datasets = undisturbed
    cut_small(monkeypatch)
    repeats = scheduler()
    preprocess(monkeypatch, raw, name, tmp_path / "dataset", repeats)
    assert all_bytes(tmp_path / "dataset") == datasets[name]
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]
