"""The options of ``merlin-sim train`` and ``merlin-sim inference``: the published ones, and ours.

Published sentinels (-1, 0, "") are accepted here and become None before a run is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..training.config import AFFINITIES, EXCHANGES, MODES, OPTIMIZERS, RunConfig, read_config

MODEL_OPTIONS = (
    "embedding_dim",
    "stage_one_mlp_dims",
    "stage_two_mlp_dims",
    "aux_mlp_dims",
    "dropout_rate",
    "long_seq_length",
    "top_k",
    "search",
    "category_feature",
    "heads",
    "time_buckets",
    "attention",
)
WITHOUT_MEANING = {
    "disable_cache": "the feed reads parquet ahead in the background and caches nothing",
    "train_dataset_size": "the files tell their rows, and prefetching does not depend on them",
    "prebatch_train_size": "batches are made from rows; nothing is batched beforehand",
    "prebatch_test_size": "batches are made from rows; nothing is batched beforehand",
}
NO_MEANING = "Accepted for published command lines; without meaning here: "
OFF = {"dropout_rate": -1, "seed": -1, "prefetch_train_size": -1, "prefetch_test_size": -1}
OFF |= {"inter_op_parallelism": 0, "intra_op_parallelism": 0, "checkpoint_every": 0}


class Dims(click.ParamType[tuple[int, ...]]):
    """Sizes of hidden layers, ``200,80``; a list in a config file."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Read the sizes; an empty text is no hidden layer."""
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            return tuple(int(part) for part in parts if str(part).strip())
        except ValueError:
            self.fail(f"{value!r} should be integers with commas between, as 200,80", param, ctx)


def _read_config_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    known = [p.name for p in ctx.command.params if p.name not in (None, "config", "help")]
    values = read_config(path, [str(name) for name in known])
    given = {name: value for name, value in values.items() if value is not None}
    ctx.default_map = {**(ctx.default_map or {}), **given}


def _path(name: str, help_text: str, **kwargs: Any) -> Callable[[Any], Any]:
    return click.option(name, type=str, show_default=True, help=help_text, **kwargs)


def _number(name: str, kind: type, default: Any, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, show_default=True, help=help_text)


def _flag(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}/--no_{name}", name, default=False, help=help_text)


def _model(name: str, kind: Any, default: str, help_text: str) -> Callable[[Any], Any]:
    # Without a click default: the model has its own, and an option it lacks is refused if given.
    return click.option(name, type=kind, default=None, help=f"{help_text} [default: {default}]")


OPTIONS = [
    click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_config_file,
        help="YAML with any of these names; the command line wins.",
    ),
    _path("--dataset_dir", "Directory with the feature spec and the data.", required=True),
    _path("--feature_spec", "Name of the spec in it.", default="feature_spec.yaml"),
    _number("--model_type", str, "sim", "din, dien or sim."),
    _model("--embedding_dim", int, "16", "Length of the vector of one feature."),
    _model("--stage_one_mlp_dims", Dims(), "200", "Hidden sizes of SIM's first classifier."),
    _model("--stage_two_mlp_dims", Dims(), "200,80", "Hidden sizes of the classifier."),
    _model("--aux_mlp_dims", Dims(), "100,50", "Hidden sizes of the auxiliary network."),
    _model("--dropout_rate", float, "-1: off", "Dropout of the classifiers."),
    _model("--long_seq_length", int, "90", "Positions of the history that are the long one."),
    _model("--top_k", int, "50", "Positions that SIM's search keeps."),
    _model("--search", str, "soft", "SIM's search: soft (learned) or hard (same category)."),
    _model("--category_feature", str, "none", "Target feature by which a hard search goes."),
    _model("--heads", int, "none", "Heads of SIM's second attention; none: DIN's attention."),
    _model("--time_buckets", int, "32", "Buckets of the time intervals, if the data has any."),
    _model("--attention", str, "dot", "DIN's attention: dot or activation_unit."),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", show_default=True),
    _number("--lr", float, 0.01, "Learning rate, as given for any number of ranks."),
    _number("--weight_decay", float, 0.0, "Share of each weight that a step takes off it."),
    _number("--epochs", int, 3, "Epochs in all, those before a resume included."),
    _number("--global_batch_size", int, 131072, "Rows per step over all ranks."),
    _flag("amp", "Mixed precision: float16, dynamic loss scaling."),
    _flag("xla", "Compile with XLA (on CPU: over 20 s before the first step)."),
    _flag("drop_remainder", "Leave out rows that do not fill a global batch in training."),
    _number(
        "--repeat_count", int, 0, "Go through the training data so many times an epoch; 0: once."
    ),
    click.option(
        "--shuffle/--no_shuffle", default=True, help="A new order in each epoch. [default: shuffle]"
    ),
    _number("--window_rows", int, 65536, "Rows shuffled together; bounds the feed's memory."),
    _number("--prefetch_train_size", int, -1, "Batches made ahead; -1: two, or more if small."),
    _number("--prefetch_test_size", int, -1, "The same for test data."),
    _flag("disable_cache", NO_MEANING + WITHOUT_MEANING["disable_cache"] + "."),
    _number("--train_dataset_size", int, 11796480, NO_MEANING + "the files tell their rows."),
    _number("--prebatch_train_size", int, 0, NO_MEANING + "nothing is batched beforehand."),
    _number("--prebatch_test_size", int, 0, NO_MEANING + "nothing is batched beforehand."),
    _path("--results_dir", "Where logs, metrics and configuration go.", default="/tmp/sim"),
    _path("--log_filename", "One JSON object a line, in results_dir.", default="log.json"),
    _flag("tensorboard", "Write TensorBoard summaries to results_dir/tensorboard."),
    _path("--save_checkpoint_path", 'Directory of checkpoints to write; "": none.', default=""),
    _path(
        "--load_checkpoint_path", 'Directory of checkpoints to go on from; "": none.', default=""
    ),
    _number("--checkpoint_every", int, 0, "Steps between checkpoints; 0: at the end of epochs."),
    _number("--keep_checkpoints", int, 3, "Newest checkpoints kept; the best by test AUC stays."),
    _flag("benchmark", "Measure throughput: no evaluation, no checkpoints."),
    _number("--benchmark_warmup_steps", int, 20, "Steps before those measured."),
    _number(
        "--benchmark_steps",
        int,
        200,
        "Steps measured after those; 0 or less: one pass over the data.",
    ),
    click.option(
        "--affinity",
        type=click.Choice(AFFINITIES),
        default="socket_unique_interleaved",
        show_default=True,
        help="How the cores of a machine are shared out among its ranks.",
    ),
    _number("--inter_op_parallelism", int, 0, "Threads over operations; 0: TensorFlow's choice."),
    _number(
        "--intra_op_parallelism",
        int,
        0,
        "Threads in an operation; 0: one on at most two cores, TensorFlow's choice on more.",
    ),
    _number("--seed", int, -1, "Seed of weights, order and dropout; -1: drawn, and logged."),
    _flag("fp16_compression", "Send gradients between ranks as float16."),
    click.option(
        "--gradient_exchange",
        type=click.Choice(EXCHANGES),
        default="sparse",
        show_default=True,
        help="What ranks exchange of embedding tables: rows of the batches, or whole tables.",
    ),
    _number("--stall_timeout", float, 45.0, "Seconds after which a rank that hangs ends the run."),
]


def run_options(mode: str) -> Callable[[Any], Any]:
    """Decorate a command with all options of a run; ``--mode`` is ``mode`` by default."""

    def decorate(function: Any) -> Any:
        last = click.option(
            "--mode", type=click.Choice(MODES), default=mode, show_default=True, help="What to do."
        )
        for option in reversed([*OPTIONS, last]):
            function = option(function)
        return function

    return decorate


def to_run_config(ctx: click.Context, values: dict[str, Any]) -> RunConfig:
    """Turn the options into a configuration; say what was given and has no meaning here.

    Raises:
        MerlinSimError: with everything that is wrong.
    """
    settled = {name: _settle(name, value) for name, value in values.items()}
    for name, reason in WITHOUT_MEANING.items():
        settled.pop(name)
        if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
            click.echo(f"merlin-sim: --{name} has no meaning here: {reason}.", err=True)
    for name in ("benchmark_steps", "benchmark_warmup_steps"):
        if settled[name] is not None and settled[name] <= 0:
            settled[name] = None if name == "benchmark_steps" else 0
    for name in ("prefetch_train_size", "prefetch_test_size"):
        if settled[name] == 0:
            settled[name] = 1  # nothing ahead: one batch in the making
    options = {name: settled.pop(name) for name in MODEL_OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    return RunConfig(model_options=given, **settled)


def _settle(name: str, value: Any) -> Any:
    if name in OFF and value is not None and value == OFF[name]:
        return None
    if name.endswith("_path") and value == "":
        return None
    return value


def execute(ctx: click.Context, values: dict[str, Any]) -> None:
    """Run what the options say."""
    config = to_run_config(ctx, values)
    from ..training.affinity import set_up_process
    from ..training.opened_dataset import open_dataset

    open_dataset(config)  # what is wrong with it is said at once
    set_up_process(config)  # before TensorFlow is imported
    from ..training.run import run

    run(config)
