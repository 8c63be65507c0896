"""Poisoned memory for the training tests: a row that nobody filled shows. And a small run."""

import functools

import pytest
from poisoned_memory import poisoned_memory  # noqa: F401
from small_runs import small_run_of


@pytest.fixture
def small_run(sim_dataset, tmp_path):
    """Makes the configuration of a small DIN's run, with what is to be different."""
    return functools.partial(small_run_of, sim_dataset, tmp_path)


@pytest.fixture
def config(small_run, tmp_path):
    """Makes the configuration of a small DIN's run that saves, with what is to be different."""

    def make(**changes):
        return small_run(**{"save_checkpoint_path": tmp_path / "saved", **changes})

    return make
