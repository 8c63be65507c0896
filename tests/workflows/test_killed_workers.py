"""Workers of a real cluster are killed in each phase; the dataset is that of a quiet run."""

from __future__ import annotations

import json
import os

import dask
import pytest
from killed_dask_worker import AFTER, BEFORE, UNNAMED, KilledWorkers
from preprocess_runs import all_bytes, cut_small, preprocess

from merlin_sim.workflows.schedulers import DaskCluster, open_scheduler

EVERY = [BEFORE, UNNAMED, AFTER]


class WatchedCluster(DaskCluster):
    """Tells the workers which phase runs, and at which of its moments one of them is killed."""

    def __init__(self, client, directory, moments):
        super().__init__(client)
        self.directory = directory
        self.moments = moments
        self.phases = 0

    def run(self, task, arguments):
        self._begin(None)
        yield from super().run(task, arguments)

    def compute(self, delayed):
        self._begin([value.key for value in delayed])
        yield from super().compute(delayed)

    def _begin(self, keys):
        reported = self.directory / "phase.json"
        now = {"phase": self.phases, "keys": keys, "moments": self.moments.get(self.phases, ())}
        reported.with_suffix(".new").write_text(json.dumps(now))
        os.replace(reported.with_suffix(".new"), reported)
        self.phases += 1


@pytest.mark.slow
@pytest.mark.timeout(550)
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("name", "moments"),
    [
        # metadata, which make no file; users' rows. Between them are the phases of a log.
        ("amazon-books, users", {0: [BEFORE, AFTER], 8: [UNNAMED]}),
        # rows that train, keys counted and written, items' statistics, their changes, users' rows
        (
            "log",
            {2: EVERY, 3: [UNNAMED], 4: [UNNAMED], 7: [AFTER], 8: [BEFORE], 9: [UNNAMED]},
        ),
        ("criteo", {0: [UNNAMED], 1: [UNNAMED], 2: [BEFORE, UNNAMED], 3: [UNNAMED, AFTER]}),
    ],
)
def test_killed_workers_change_nothing(undisturbed, name, moments, tmp_path, monkeypatch):
    """A worker dies before a task, after it, and while its file has another name."""
    (raw, datasets), killed, output = undisturbed, tmp_path / "killed", tmp_path / "output"
    killed.mkdir()
    output.mkdir()
    cut_small(monkeypatch)
    # As where a worker takes longer to start again than Dask waits for it.
    impatient = dask.config.set({"distributed.deploy.lost-worker-timeout": "100ms"})
    with impatient, open_scheduler("local", 2) as cluster:
        watched = WatchedCluster(cluster.client, killed, moments)
        cluster.client.register_worker_plugin(KilledWorkers(killed, output))
        preprocess(monkeypatch, raw, name, output / "dataset", watched)
    assert all_bytes(output / "dataset") == datasets[name]
    assert [path.name for path in output.iterdir()] == ["dataset"]
    expected = {f"{phase}, {moment}" for phase in moments for moment in moments[phase]}
    assert {path.name for path in killed.iterdir()} - {"phase.json"} == expected
