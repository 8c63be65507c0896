"""A fitted workflow's NVTabular graph: kept, saved, moved, given several partitions."""

from __future__ import annotations

import gc
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from merlin.io import Dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.ops.workflow import Workflow
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

OPTIONS = (
    "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
    "--user_feature_columns", "country", "--item_feature_columns", "brand",
    "--shortest_sequence_for_user", 2, "--scheduler", "single",
)  # fmt: skip


def some_log(users=60, each=5) -> pd.DataFrame:
    random = np.random.default_rng(1)
    who, what = np.tile(np.arange(users), each), random.integers(0, 30, users * each)
    return pd.DataFrame(
        {
            "who": [f"u{number:02d}" for number in who],
            "what": what,
            "when": np.arange(users * each),
            "country": [f"c{number % 3}" for number in who],
            "brand": [f"b{number % 7}" for number in what],
        }
    )


@pytest.fixture(scope="module")
def fitted(run_cli, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    some_log().to_parquet(directory / "log.parquet")
    result = run_cli(
        "preprocess", "log", directory / "log.parquet", "--output_path", directory / "dataset",
        *OPTIONS,
    )  # fmt: skip
    assert result.exception is None, result.output
    return directory / "dataset"


def plain(frame: pd.DataFrame) -> list:
    frame = frame.sort_values("who").reset_index(drop=True)
    return [
        [value.tolist() if hasattr(value, "tolist") else value for value in row]
        for row in frame.itertuples(index=False)
    ]


def whole(log: pd.DataFrame) -> Dataset:
    return Dataset(log, npartitions=1, cpu=True)


@pytest.mark.filterwarnings("ignore:.*in CPU mode")
def test_a_workflow_lasts_as_long_as_what_it_made(fitted):
    """Nobody keeps the FittedWorkflow, nor the workflow: a Dataset is worked out later."""
    made = FittedWorkflow.load(fitted).histories().transform(whole(some_log()))
    gc.collect()
    histories = made.to_ddf().compute(scheduler="synchronous")
    kept = FittedWorkflow.load(fitted)
    assert plain(histories) == plain(kept.histories().transform(some_log()))


@pytest.mark.filterwarnings("ignore:.*in CPU mode")
def test_a_saved_workflow_may_be_moved_without_its_dataset(fitted, tmp_path):
    dataset = tmp_path / "dataset"
    shutil.copytree(fitted, dataset)
    loaded = FittedWorkflow.load(dataset)
    workflow = loaded.histories()
    expected = workflow.transform(some_log())
    workflow.save(tmp_path / "saved")
    shutil.rmtree(dataset)
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    del loaded, workflow
    gc.collect()
    found = Workflow.load(tmp_path / "moved").transform(some_log())
    pd.testing.assert_frame_equal(found.applymap(_listed), expected.applymap(_listed))


def _listed(value):
    return list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value


def test_users_in_several_partitions_are_refused(fitted):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*in CPU mode")
        parted = Dataset(some_log(), npartitions=3, cpu=True)
        with pytest.raises(MerlinSimError, match="60 users .* 3 partitions.*shuffle_by_keys"):
            FittedWorkflow.load(fitted).histories().transform(parted)
