"""A small run that saves checkpoints."""

import pytest


@pytest.fixture
def config(small_run, tmp_path):
    """Makes the configuration of a small DIN's run that saves, with what is to be different."""

    def make(**changes):
        return small_run(**{"save_checkpoint_path": tmp_path / "saved", **changes})

    return make
