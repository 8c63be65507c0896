"""The options of ``merlin-sim train`` and ``merlin-sim inference``: the published ones, and ours.

Published sentinels (-1, 0, "") are accepted here and become None before a run is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...foundation.exceptions import MerlinSimError
from ...models.families.registry import DEFAULT, families
from ...steps import OPTIMIZERS
from ...training.runs.run_config import (
    AFFINITIES,
    EXCHANGES,
    MODES,
    RunConfig,
    read_config,
)
from .model_options import model_options, option, parse_own

WITHOUT_MEANING = {
    "disable_cache": "the feed reads parquet ahead in the background and caches nothing",
    "train_dataset_size": "the files tell their rows, and prefetching does not depend on them",
    "prebatch_train_size": "batches are made from rows; nothing is batched beforehand",
    "prebatch_test_size": "batches are made from rows; nothing is batched beforehand",
}
NO_MEANING = "Accepted for published command lines; without meaning here: "
CONFIG_OF = "merlin_sim.config_of"
"""Where click keeps the mode of the run that the config file is of."""
OFF = {"dropout_rate": -1, "seed": -1, "prefetch_train_size": -1, "prefetch_test_size": -1}
OFF |= {"inter_op_parallelism": 0, "intra_op_parallelism": 0, "checkpoint_every": 0}


def _read_config_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    known = [p.name for p in ctx.command.params if p.name not in (None, "config", "help")]
    values = read_config(path, [str(name) for name in known])
    given = {name: value for name, value in values.items() if value is not None}
    mode = given.pop("mode", None)  # the command says what is done
    if mode not in (None, *MODES):
        raise MerlinSimError(f"{path}: `mode` should be {' or '.join(MODES)}. Received: {mode!r}")
    ctx.meta[CONFIG_OF] = mode
    ctx.default_map = {**(ctx.default_map or {}), **given}


def _path(name: str, help_text: str, **kwargs: Any) -> Callable[[Any], Any]:
    return click.option(name, type=str, show_default=True, help=help_text, **kwargs)


def _number(name: str, kind: type, default: Any, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, show_default=True, help=help_text)


def _flag(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}/--no_{name}", name, default=False, help=help_text)


MODEL_OPTIONS = model_options(OFF)

OPTIONS = [
    click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_config_file,
        help="YAML with any of these names; the command line wins. That of a training run lets "
        "inference score what the run saved.",
    ),
    _path("--dataset_dir", "Directory with the feature spec and the data.", required=True),
    _path("--feature_spec", "Name of the spec in it.", default="feature_spec.yaml"),
    option(
        "model_type",
        str,
        f"{DEFAULT}; in inference, the checkpoint's",
        f"{', '.join(families())}, or package.module:FAMILY for one of your own.",
    ),
    *MODEL_OPTIONS.values(),
    click.option(
        "--model_option",
        "model_option",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of a family of your own; may be given several times.",
    ),
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
    _number("--start_timeout", float, 300.0, "Seconds that a rank waits for others to start."),
    _number("--stall_timeout", float, 45.0, "Seconds after which a rank that hangs ends the run."),
]


def run_options(mode: str) -> Callable[[Any], Any]:
    """Decorate a command with all options of a run; ``--mode`` is ``mode`` by default."""

    def decorate(function: Any) -> Any:
        last = click.option(
            "--mode", type=click.Choice(MODES), default=mode, show_default=True, help="What to do."
        )
        for add in reversed([*OPTIONS, last]):
            function = add(function)
        return function

    return decorate


def to_run_config(ctx: click.Context, values: dict[str, Any]) -> RunConfig:
    """Turn the options into a configuration; say what was given and has no meaning here.

    Raises:
        MerlinSimError: with everything that is wrong.
    """
    values = _of_training_run(ctx, values)
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
    own = parse_own(settled.pop("model_option"))
    options = {name: settled.pop(name) for name in MODEL_OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    given |= own
    return RunConfig(model_options=given, **settled)


def _of_training_run(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Let inference with a training run's config score what the run saved, and spare its log."""
    if ctx.meta.get(CONFIG_OF) != "train" or values["mode"] != "inference":
        return values
    changed = dict(values)
    saved = values["save_checkpoint_path"]
    if saved and not values["benchmark"] and not _is_given(ctx, "load_checkpoint_path"):
        changed["load_checkpoint_path"] = saved
        click.echo(f"merlin-sim: scores the training run's checkpoints in {saved}.", err=True)
    if ctx.get_parameter_source("results_dir") is ParameterSource.DEFAULT_MAP:
        changed["results_dir"] = str(Path(values["results_dir"]) / "inference")
        click.echo(f"merlin-sim: results go to {changed['results_dir']}.", err=True)
    return changed


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _settle(name: str, value: Any) -> Any:
    if name in OFF and value is not None and value == OFF[name]:
        return None
    if name.endswith("_path") and value == "":
        return None
    return value


def execute(ctx: click.Context, values: dict[str, Any]) -> None:
    """Run what the options say."""
    config = to_run_config(ctx, values)
    from ...ranks.arrival import lengthen_gloo_timeout, wait_for_ranks
    from ...training.runs.affinity import set_up_process
    from ...training.runs.opened_dataset import make_results_directory, open_dataset

    open_dataset(config)  # what is wrong with it is said at once
    make_results_directory(config)
    set_up_process(config)  # before TensorFlow is imported
    import tensorflow  # noqa: F401  # the longest import, which the ranks need not wait for

    lengthen_gloo_timeout(config.start_timeout)
    wait_for_ranks(config.start_timeout)  # Merlin Models initialises Horovod when it is imported
    from ...training.runs.run import run

    run(config)
