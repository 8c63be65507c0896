"""Poisoned memory for the training tests: a row that nobody filled shows. And a small run."""

import pytest
from poisoned_memory import poisoned_memory  # noqa: F401
from small_runs import DIN

from merlin_sim.training.runs.run_config import RunConfig


@pytest.fixture
def small_run(sim_dataset, tmp_path):
    """Makes the configuration of a small DIN's run, with what is to be different."""

    def make(**changes):
        values = {
            "dataset_dir": sim_dataset,
            "model_type": "din",
            "model_options": DIN,
            "global_batch_size": 64,
            "epochs": 2,
            "seed": 5,
            "results_dir": tmp_path / "results",
        }
        return RunConfig(**{**values, **changes})

    return make


@pytest.fixture
def config(small_run, tmp_path):
    """Makes the configuration of a small DIN's run that saves, with what is to be different."""

    def make(**changes):
        return small_run(**{"save_checkpoint_path": tmp_path / "saved", **changes})

    return make
