"""The feed and preprocessing on a real GPU: batches and datasets are those of the CPU."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest


def preprocess(on_gpu, logs, output, *options, **more):
    on_gpu(
        *("preprocess", "amazon-books", "--amazon_dataset_path", logs),
        *("--output_path", output, *options),
        **more,
    )
    files = sorted(output.glob("*/*.parquet"))
    return {str(path.relative_to(output)): pq.read_table(path) for path in files}


def test_batches_stay_on_the_gpu_and_are_those_of_the_cpu(on_gpu, sim_dataset):
    seen = on_gpu(sim_dataset, task="feed")
    assert seen["same"]
    assert seen["batches"] > 5
    assert seen["devices"] == ["GPU:0"]


@pytest.mark.parametrize("candidates", [1, 8])
def test_samples_are_made_on_the_gpu_and_are_those_of_the_cpu(on_gpu, users_dataset, candidates):
    seen = on_gpu(users_dataset, candidates, task="samples")
    assert seen["same"]
    assert seen["batches"] > 5
    assert seen["devices"] == ["GPU:0"]


@pytest.mark.parametrize("scheduler", ["single", "local"])
@pytest.mark.parametrize("form", [(), ("--pad",), ("--layout", "users")])
def test_a_dataset_is_that_of_the_cpu(on_gpu, logs, tmp_path, scheduler, form):
    ours = preprocess(on_gpu, logs, tmp_path / "gpu", "--scheduler", scheduler, *form)
    expected = preprocess(on_gpu, logs, tmp_path / "cpu", *form, hidden=True)
    assert ours.keys() == expected.keys() and ours
    for name, table in expected.items():
        assert ours[name].to_pydict() == table.to_pydict()
