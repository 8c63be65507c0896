"""Workers of a real cluster are killed in each phase; the dataset is that of a quiet run."""

from __future__ import annotations

import json
import os

import dask
import pytest
from killed_dask_worker import AFTER, BEFORE, UNNAMED, KilledWorkers
from preprocess_runs import all_bytes, cut_small, preprocess

from merlin_sim.workflows.schedulers import DaskCluster, open_scheduler


class WatchedCluster(DaskCluster):
    """Tells the workers which phase runs."""

    def __init__(self, client, directory, killed_in):
        super().__init__(client)
        self.directory = directory
        self.killed_in = killed_in
        self.phases = 0

    def run(self, task, arguments):
        self._begin(None)
        yield from super().run(task, arguments)

    def compute(self, delayed):
        self._begin([value.key for value in delayed])
        yield from super().compute(delayed)

    def _begin(self, keys):
        reported = self.directory / "phase.json"
        keys = keys if self.phases in self.killed_in else []
        reported.with_suffix(".new").write_text(json.dumps({"phase": self.phases, "keys": keys}))
        os.replace(reported.with_suffix(".new"), reported)
        self.phases += 1


@pytest.mark.slow
@pytest.mark.timeout(550)
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("name", "phases", "with_files"),
    [
        # metadata, which make no file, interactions, users; ids are fitted; users' rows
        ("amazon-books, users", {0, 1, 2, 8}, {1, 2, 8}),
        # rows that train, keys counted and written, items' statistics, their changes, users' rows
        ("log", {2, 3, 4, 7, 8, 9}, {2, 3, 4, 9}),
        ("criteo", {0, 1, 2, 3}, {0, 1, 2, 3}),
    ],
)
def test_killed_workers_change_nothing(
    undisturbed, name, phases, with_files, tmp_path, monkeypatch
):
    """A worker dies before a task, after it, and while its file has another name."""
    (raw, datasets), killed, output = undisturbed, tmp_path / "killed", tmp_path / "output"
    killed.mkdir()
    output.mkdir()
    cut_small(monkeypatch)
    # As where a worker takes longer to start again than Dask waits for it.
    impatient = dask.config.set({"distributed.deploy.lost-worker-timeout": "100ms"})
    with impatient, open_scheduler("local", 2) as cluster:
        watched = WatchedCluster(cluster.client, killed, phases)
        cluster.client.register_worker_plugin(KilledWorkers(killed, output))
        preprocess(monkeypatch, raw, name, output / "dataset", watched)
    assert all_bytes(output / "dataset") == datasets[name]
    assert [path.name for path in output.iterdir()] == ["dataset"]
    expected = {f"{phase}, {moment}" for phase in phases for moment in (BEFORE, AFTER)}
    expected |= {f"{phase}, {UNNAMED}" for phase in with_files}
    assert {path.name for path in killed.iterdir()} - {"phase.json"} == expected
