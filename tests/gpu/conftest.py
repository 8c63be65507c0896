"""Tests that need a real GPU: everything runs in processes of its own, which see the GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from merlin_sim.foundation.gpus import look

PROGRAM = Path(sys.executable).with_name("merlin-sim")
WORKER = Path(__file__).parents[1] / "support/workers/gpu_worker.py"
FOLDER = Path(__file__).parent


def environment() -> dict[str, str]:
    """This process's, but for the GPUs that the other tests hide."""
    hidden = not os.environ.get("CUDA_VISIBLE_DEVICES")
    return {
        name: value
        for name, value in os.environ.items()
        if not (hidden and name == "CUDA_VISIBLE_DEVICES")
    }


def pytest_collection_modifyitems(items):
    with mock.patch.dict(os.environ, environment(), clear=True):
        gpus = look()
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if not gpus.visible:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {gpus.problem or 'none visible'}"))


@pytest.fixture(scope="session")
def gpu_count():
    with mock.patch.dict(os.environ, environment(), clear=True):
        return len(look().visible)


@pytest.fixture
def on_gpu():
    """Run ``merlin-sim`` with the GPUs in sight (or hidden), or one of the worker's tasks.

    With a launcher before it, it has to fail: launchers end with codes of their own.
    """

    def run(*words, task=None, launch=(), hidden=False, code=0, **more):
        command = [*launch, PROGRAM] if task is None else [sys.executable, WORKER, task]
        variables = {**environment(), **({"CUDA_VISIBLE_DEVICES": ""} if hidden else {}), **more}
        result = subprocess.run(
            [str(word) for word in (*command, *words)],
            capture_output=True,
            text=True,
            timeout=280,
            env=variables,
        )
        as_expected = result.returncode != 0 if launch else result.returncode == code
        assert as_expected, result.stdout + result.stderr
        if task is not None:
            return json.loads(result.stdout.splitlines()[-1])
        return result.stdout + result.stderr

    return run


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Purchases of 300 users, as Amazon's."""
    from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize

    directory = tmp_path_factory.mktemp("logs")
    synthesize(directory, PlantedBehaviour(users=300, items=900, categories=30))
    return directory


def _merlin_sim(*words):
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([PROGRAM, *map(str, words)], check=True, timeout=280, env=hidden)


@pytest.fixture(scope="session")
def users_dataset(logs, tmp_path_factory):
    """One row for each of the users."""
    directory = tmp_path_factory.mktemp("data") / "users"
    _merlin_sim(
        *("preprocess", "amazon-books", "--amazon_dataset_path", logs, "--output_path", directory),
        *("--layout", "users", "--max_sequence_length", 12),
    )
    return directory


@pytest.fixture(scope="session")
def counted_dataset(tmp_path_factory):
    """Users whose items have counts and popularities as of each sample's time."""
    directory = tmp_path_factory.mktemp("counted")
    random = np.random.default_rng(1)
    rows = 9000
    log = {
        "user": random.integers(0, 300, rows),
        "item": random.integers(0, 80, rows),
        "time": 1_700_000_000 + 60 * np.arange(rows),
    }
    pd.DataFrame(log).to_parquet(directory / "log.parquet")
    (directory / "features.yaml").write_text(
        "encodings: {item: [count, popularity, recency, recent_popularity]}\n"
        "lifetime_counts: [item]\n"
    )
    _merlin_sim(
        *("preprocess", "log", directory / "log.parquet", "--output_path", directory / "dataset"),
        *("--user_column", "user", "--item_column", "item", "--timestamp_column", "time"),
        *("--layout", "users", "--features", directory / "features.yaml"),
        *("--max_sequence_length", 12, "--shortest_sequence_for_user", 5),
    )
    return directory / "dataset"


@pytest.fixture(scope="session")
def clicks_dataset(tmp_path_factory):
    """Clicks, as Criteo's."""
    directory = tmp_path_factory.mktemp("clicks")
    _merlin_sim(
        "data", "synthesize", "criteo", "--output", directory / "raw", "--rows_per_day", 3000
    )
    _merlin_sim(
        *("preprocess", "criteo", "--criteo_path", directory / "raw"),
        *("--output_path", directory / "dataset"),
    )
    return directory / "dataset"
