from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from in_process import parsed as parse

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models.known_families import find_family, presets
from merlin_sim.scripts.options.run_options import with_validation

ROOT = Path(__file__).parents[3]


DATASET = ("--dataset_dir", "data")
PUBLISHED = [
    *("--mode", "train", "--model_type", "sim", "--embedding_dim", "16"),
    *("--stage_one_mlp_dims", "200", "--stage_two_mlp_dims", "200,80", "--aux_mlp_dims", "100,50"),
    *("--feature_spec", "feature_spec.yaml", "--optimizer", "adam", "--lr", "0.01"),
    *("--weight_decay", "0", "--epochs", "3", "--global_batch_size", "131072"),
    *("--dropout_rate", "-1", "--amp", "--xla", "--drop_remainder", "--disable_cache"),
    *("--repeat_count", "0", "--prefetch_train_size", "-1", "--prefetch_test_size", "-1"),
    *("--train_dataset_size", "11796480", "--long_seq_length", "90", "--results_dir", "/tmp/sim"),
    *("--log_filename", "log.json", "--save_checkpoint_path", "", "--load_checkpoint_path", ""),
    *("--benchmark", "--benchmark_warmup_steps", "20", "--benchmark_steps", "200"),
    *("--affinity", "socket_unique_interleaved", "--inter_op_parallelism", "0"),
    *("--intra_op_parallelism", "0", "--seed", "-1"),
    *("--num_parallel_calls", "3", "--prebatch_train_size", "0", "--prebatch_test_size", "0"),
]


def test_every_published_parameter_is_accepted_and_sentinels_mean_off():
    config, output = parse(*DATASET, *PUBLISHED)
    for name in (
        *("seed", "save_checkpoint_path", "load_checkpoint_path"),
        *("inter_op_parallelism", "intra_op_parallelism"),
    ):
        assert getattr(config, name) is None
    assert config.num_parallel_calls == 3
    assert config.amp and config.xla and config.drop_remainder and config.benchmark
    assert config.model_options == {
        "embedding_dim": 16,
        "stage_one_mlp_dims": (200,),
        "stage_two_mlp_dims": (200, 80),
        "aux_mlp_dims": (100, 50),
        "long_seq_length": 90,
    }
    for name in ("disable_cache", "train_dataset_size", "prefetch_train_size"):
        assert f"--{name} has no meaning here" in output


def test_defaults_say_nothing_and_are_the_published_ones():
    config, output = parse(*DATASET)
    assert output == ""
    assert (config.lr, config.epochs, config.global_batch_size) == (0.01, 3, 131072)
    assert (config.benchmark_steps, config.benchmark_warmup_steps) == (200, 20)
    assert config.model_options == {} and config.mode == "train"
    config, _ = parse(*DATASET, "--benchmark_steps", "0", "--benchmark_warmup_steps", "-3")
    assert (config.benchmark_steps, config.benchmark_warmup_steps) == (None, 0)
    for mode in ("train", "inference"):
        assert parse(*DATASET, mode=mode)[0].mode == mode
        assert parse(*DATASET, mode=mode)[0].model_type == "sim"
        loaded, _ = parse(*DATASET, "--load_checkpoint_path", "saved", mode=mode)
        assert loaded.model_type is None  # the checkpoint says


def test_the_command_line_wins_over_the_config_file_and_a_written_one_means_the_same_run(tmp_path):
    path = tmp_path / "run.yaml"
    values = {"dataset_dir": "data", "lr": 0.5, "epochs": 7, "amp": True, "seed": 4}
    values |= {"stage_two_mlp_dims": [8, 4], "save_checkpoint_path": None}
    path.write_text(yaml.safe_dump(values))
    config, _ = parse("--config", str(path), "--epochs", "2", "--no_amp")
    assert (config.lr, config.epochs, config.amp, config.seed) == (0.5, 2, False, 4)
    assert config.model_options == {"stage_two_mlp_dims": (8, 4)}
    path.write_text("dataset_dir: data\nmode: train\n")
    assert parse("--config", str(path), mode="inference")[0].mode == "inference"
    path.write_text("dataset_dir: data\nmode: inference\n")
    assert parse("--config", str(path))[0].mode == "train"
    assert parse("--config", str(path), "--mode", "inference")[0].mode == "inference"
    for text, said in (
        ("mode: [score]\n", r"`mode` should be train or inference.*'score'"),
        ("learning_rate: 1\n", "unknown keys: learning_rate"),
    ):
        path.write_text(f"dataset_dir: data\n{text}")
        with pytest.raises(MerlinSimError, match=said):
            parse("--config", str(path))
    first, _ = parse(*DATASET, *PUBLISHED[2:], "--lr", "0.3")
    first.write(path)  # as a run leaves it
    assert parse("--config", str(path)) == (first, "")


def test_inference_with_a_training_runs_configuration_scores_what_the_run_saved(tmp_path):
    trained = ("--results_dir", "run", "--save_checkpoint_path", "run/saved")
    parse(*DATASET, *trained)[0].write(tmp_path / "config.yaml")
    words = ("--config", str(tmp_path / "config.yaml"))
    config, output = parse(*words, mode="inference")
    assert (config.mode, config.load_checkpoint_path) == ("inference", Path("run/saved"))
    assert config.results_dir == Path("run/inference")
    assert "in run/saved" in output and "go to run/inference" in output
    given = ("--load_checkpoint_path", "other", "--results_dir", "here")
    config, output = parse(*words, *given, mode="inference")
    assert (config.load_checkpoint_path, config.results_dir) == (Path("other"), Path("here"))
    assert output == ""
    assert parse(*words, "--benchmark", mode="inference")[0].load_checkpoint_path is None


@pytest.mark.parametrize(
    "words",
    [("--amp", "yes"), ("--gpus", "0"), ("--mode", "x"), ("--speed", "9"), ("--gpus",)],
)
def test_the_launcher_refuses_other_flags_and_values(words):
    launcher = [ROOT / "scripts/run_model.sh", *words]
    refused = subprocess.run(launcher, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "Usage" in refused.stderr


def test_a_preset_sets_what_is_not_given(tmp_path):
    preset = ("--preset", "lifelong")
    config, _ = parse(*DATASET, *preset)
    values = dict(presets()["lifelong"].values)
    assert (config.model_type, config.lr) == (values.pop("model_type"), values.pop("lr"))
    assert config.model_options.items() <= values.items() and config.model_options["history_counts"]
    given, _ = parse(*DATASET, *preset, "--model_type", "sdim", "--history_counts", "false")
    assert given.model_type == "sdim" and given.model_options["history_counts"] is False
    assert given.lr == config.lr
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"model_type": "eta", "preset": "lifelong", "heads": 2}))
    for words in (("--config", str(path)), ("--config", str(path), *preset)):
        of_file, _ = parse(*DATASET, *words)
        assert (of_file.model_type, of_file.lr) == ("eta", config.lr)
        assert of_file.model_options == {**config.model_options, "heads": 2}
    config.write(path)
    assert parse("--config", str(path))[0] == config, "what was resolved is written"


@pytest.mark.parametrize(
    "validates, words, stops",
    [
        (True, (), 1),
        (False, (), None),
        (True, ("--early_stopping", "3"), 3),
        (True, ("--early_stopping", "0"), None),
        (True, ("--benchmark",), None),
    ],
)
def test_a_preset_stops_early_where_data_validate(validates, words, stops):
    def settled(ctx, config):
        return with_validation(ctx, config, validates)

    config, _ = parse(*DATASET, "--preset", "lifelong", *words, then=settled)
    assert config.early_stopping == stops


@pytest.mark.parametrize("name", presets())
def test_the_values_of_a_preset_are_options_with_values_that_fit(name):
    config, _ = parse(*DATASET, "--preset", name)
    family = find_family(config.model_type)
    assert family.options.parse(dict(config.model_options)).to_dict()
