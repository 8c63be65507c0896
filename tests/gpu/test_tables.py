"""The feed and preprocessing on a real GPU: batches and datasets are those of the CPU."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    from merlin_sim.workflows.synthetic.planted_behaviour import PlantedBehaviour
    from merlin_sim.workflows.synthetic.synthesis import synthesize

    directory = tmp_path_factory.mktemp("logs") / "raw"
    synthesize(directory, PlantedBehaviour(users=300))
    return directory


def preprocess(on_gpu, logs, output, *options, **more):
    on_gpu(
        *("preprocess", "amazon-books", "--amazon_dataset_path", logs),
        *("--output_path", output, *options),
        **more,
    )
    return {path.name: pq.read_table(path) for path in sorted(output.glob("t*/*.parquet"))}


def test_batches_stay_on_the_gpu_and_are_those_of_the_cpu(on_gpu, sim_dataset):
    seen = on_gpu(sim_dataset, task="feed")
    assert seen["same"]
    assert seen["batches"] > 5
    assert seen["places"] == ["GPU:0"]


def test_the_array_code_gives_the_same_on_cupy(on_gpu):
    seen = on_gpu(task="arrays")
    assert seen["same"]
    assert seen["rows"] > 100


@pytest.mark.parametrize("scheduler", ["single", "local"])
@pytest.mark.parametrize("pad", [(), ("--pad",)])
def test_a_dataset_is_that_of_the_cpu(on_gpu, logs, tmp_path, scheduler, pad):
    options = ("--scheduler", scheduler, *pad)
    ours = preprocess(on_gpu, logs, tmp_path / "gpu", *options)
    expected = preprocess(on_gpu, logs, tmp_path / "cpu", *pad, hidden=True)
    assert ours.keys() == expected.keys() and len(ours) >= 2
    for name, table in expected.items():
        assert ours[name].to_pydict() == table.to_pydict()
