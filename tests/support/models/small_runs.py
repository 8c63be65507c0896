"""Models in small, for tests of what is done around them, and a small run of one."""

from __future__ import annotations

from merlin_sim.training.runs.run_config import RunConfig

DIN = {"embedding_dim": 4, "stage_two_mlp_dims": (8,)}

TWO_TOWER = {"embedding_dim": 4, "tower_dim": 8, "tower_mlp_dims": (16,), "history_weightings": 2}
"""Small two towers."""


def small_run_of(dataset, folder, **changes):
    """Return the configuration of a small DIN's run, with what is to be different."""
    values = {
        "dataset_dir": dataset,
        "model_type": "din",
        "model_options": DIN,
        "global_batch_size": 64,
        "epochs": 2,
        "seed": 5,
        "results_dir": folder / "results",
    }
    return RunConfig(**{**values, **changes})
