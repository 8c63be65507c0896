from __future__ import annotations

import pytest
import yaml

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.runs.run_config import RunConfig, read_config


def test_defaults_are_the_published_ones():
    config = RunConfig("data")
    published = {
        "model_type": "sim",
        "feature_spec": "feature_spec.yaml",
        "optimizer": "adam",
        "lr": 0.01,
        "weight_decay": 0,
        "epochs": 3,
        "global_batch_size": 131072,
        "amp": False,
        "xla": False,
        "drop_remainder": False,
        "repeat_count": 0,
        "log_filename": "log.json",
        "mode": "train",
        "benchmark": False,
        "benchmark_warmup_steps": 20,
        "benchmark_steps": 200,
        "affinity": "socket_unique_interleaved",
        "seed": None,
        "save_checkpoint_path": None,
        "load_checkpoint_path": None,
    }
    assert {name: getattr(config, name) for name in published} == published
    assert str(config.results_dir) == "/tmp/sim"


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0, "lr": float("nan"), "optimizer": "adamw", "seed": -5, "amp": "yes"},
        {"global_batch_size": 0, "lr": 0, "weight_decay": -1, "results_dir": 3, "mode": "serve"},
        {"global_batch_size": 2.5, "lr": "0.1", "weight_decay": float("nan"), "affinity": "none"},
        {"global_batch_size": True, "checkpoint_every": 0, "log_filename": "../log.json"},
        {"gradient_exchange": "all", "step": "last"},
        {"step": "newest"},
    ],
)
def test_everything_wrong_is_said_at_once(values):
    with pytest.raises(MerlinSimError) as error:
        RunConfig("data", **values)
    for name in values:
        assert f"`{name}` should be" in str(error.value)


SPREAD_ONLY = "with spread `tables` only"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"memory": "8GB"}, SPREAD_ONLY),
        ({"cut": "rows"}, SPREAD_ONLY),
        ({"memory": "8GB", "host_memory": "64GB"}, SPREAD_ONLY),
        (
            {"tables": "spread", "host_memory": "much", "memory": "8GB"},
            "`host_memory`: a size should be written",
        ),
        (
            {"tables": "spread", "host_memory": "64GB"},
            "`host_memory` should be given with `memory`",
        ),
        (
            {
                "tables": "spread",
                "host_memory": "64GB",
                "memory": "8GB",
                "gradient_exchange": "dense",
            },
            "`gradient_exchange` should be sparse with `host_memory`",
        ),
        ({"steps_per_execution": 4, "max_steps": 6}, "`max_steps` should be a multiple of `steps"),
    ],
)
def test_what_does_not_go_together_is_refused(values, said):
    with pytest.raises(MerlinSimError, match=said):
        RunConfig("data", **values)
    if said == SPREAD_ONLY:
        RunConfig("data", tables="spread", **values)


def test_what_is_written_is_read_again(tmp_path):
    config = RunConfig("data", model_options={"stage_two_mlp_dims": (8, 4)}, seed=3)
    config.write(tmp_path / "config.yaml")
    values = read_config(tmp_path / "config.yaml", list(config.to_dict()))
    assert values == config.to_dict()
    assert values["stage_two_mlp_dims"] == [8, 4] and values["seed"] == 3


def test_unknown_keys_and_other_files_are_refused(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"lr": 1, "learning_rate": 1, "batch": 2}))
    with pytest.raises(MerlinSimError, match="unknown keys: batch, learning_rate"):
        read_config(path, ["lr"])
    path.write_text("- 1\n")
    with pytest.raises(MerlinSimError, match="names and values"):
        read_config(path, ["lr"])
    path.write_text("{")
    with pytest.raises(MerlinSimError, match="cannot be read"):
        read_config(path, ["lr"])
    path.write_text("")
    assert read_config(path, ["lr"]) == {}
