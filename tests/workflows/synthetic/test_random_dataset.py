"""Random rows straight from a feature spec."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from in_process import answer, run
from ranking_rows import write_ranking_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    directory = write_ranking_dataset(tmp_path_factory.mktemp("d") / "d", 10, (1, 40, 300))
    return directory / "feature_spec.yaml"


def test_rows_are_as_the_spec_says(spec, tmp_path):
    for name in ("one", "other"):
        options = ["--output", tmp_path / name, "--train_rows", 70_000, "--test_rows", 30]
        run("data", "synthesize", "dataset", "--feature_spec", spec, *options)
    one, other = (DatasetDirectory.open(tmp_path / name, model="dlrm") for name in ("one", "other"))
    train = pq.read_table(one.files("train")).to_pandas()
    assert len(train) == 70_000 and pq.read_metadata(one.files("test")[0]).num_rows == 30
    for index, rows in enumerate((1, 40, 300)):
        ids = train[f"category_{index}"]
        assert ids.min() == 0 and ids.max() == rows - 1 and ids.mode()[0] == 0
    assert set(train["clicked"]) == {0, 1} and 0.9 < train["number_2"].std() < 1.1
    assert train.equals(pq.read_table(other.files("train")).to_pandas())


def test_lists_are_refused(sim_dataset, tmp_path):
    spec = sim_dataset / "feature_spec.yaml"
    with pytest.raises(MerlinSimError, match="expected none: lists are not drawn"):
        run("data", "synthesize", "dataset", "--feature_spec", spec, "--output", tmp_path / "out")
    with pytest.raises(MerlinSimError, match="positive integers. Received: test 0"):
        arguments = ["--feature_spec", spec, "--output", tmp_path / "out", "--test_rows", 0]
        run("data", "synthesize", "dataset", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_negative_seed_is_refused(spec, tmp_path):
    arguments = ["--feature_spec", spec, "--output", tmp_path / "out", "--seed", -1]
    refused = answer("data", "synthesize", "dataset", *arguments)
    assert refused.returncode == 2 and "--seed" in refused.stderr
    assert not list(tmp_path.iterdir())
