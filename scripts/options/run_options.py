"""The options of ``merlin-sim train`` and ``merlin-sim inference``: the published ones, and ours.

Published sentinels (-1, 0, "") are accepted here and become None before a run is configured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import local_rank
from ...foundation.settings import settings_of
from ...models.family import Preset
from ...models.known_families import DEFAULT, families, find_family, presets
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import VALIDATION
from ...training.runs.recipe import batch_of, is_own_log, rate_for, training_samples
from ...training.runs.run_config import MODES, RunConfig, read_config
from .devices import settle_for_model
from .model_options import model_options, option, parse_own
from .readable_dataset import readable_dataset
from .shared_options import setting_option, setting_options, with_options

# Published options without meaning here -> why, and the published default.
WITHOUT_MEANING = {
    "disable_cache": ("--data_memory_mb says how much of the data stays in memory", False),
    "train_dataset_size": ("the files say how many rows they have", 11796480),
    "prefetch_train_size": ("batches are made within the step", -1),
    "prefetch_test_size": ("batches are made within the step", -1),
    "prebatch_train_size": ("records say how many samples they hold", 0),
    "prebatch_test_size": ("records say how many samples they hold", 0),
}
CONFIG_OF = "merlin_sim.config_of"
"""Where click keeps the mode of the run that the config file is of."""
OF_FILE = "merlin_sim.of_file"
"""Where it keeps the names that the config file has, those that are off among them."""
PRESET = "merlin_sim.preset"
"""Where it keeps the preset's name."""
SETTINGS = settings_of(RunConfig)
OFF = {"dropout_rate": -1}
"""What is given in place of None, as the published command line has it."""
OFF |= {name: known.off for name, (known, _) in SETTINGS.items() if known.off is not None}
PUBLISHED = Preset({}, "The published recipe, whatever the dataset. The default of other datasets.")
OWN_LOGS = "lifelong"
"""The preset of datasets that `preprocess log` made."""
PRESETS = {**presets(), "published": PUBLISHED}


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
    ctx.meta[OF_FILE] = frozenset(values)
    ctx.default_map = {**(ctx.default_map or {}), **given}


def _take_preset(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    if name is not None:  # what a config file says wins
        ctx.meta[PRESET] = name
        ctx.default_map = {**PRESETS[name].values, **(ctx.default_map or {})}


def _published_option(name: str) -> Callable[[Any], Any]:
    """Accept an option of published command lines; no help shows it."""
    default = WITHOUT_MEANING[name][1]
    if isinstance(default, bool):
        return click.option(f"--{name}/--no_{name}", name, default=default, hidden=True)
    return click.option(f"--{name}", type=int, default=default, hidden=True)


MODEL_OPTIONS = model_options(OFF)
MODEL = [
    option(
        "model_type",
        str,
        f"{DEFAULT}; in inference, the checkpoint's",
        f"{', '.join(families())}, or your own package.module:FAMILY.",
    ),
    *MODEL_OPTIONS.values(),
    click.option(
        "--model_option",
        "model_option",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of a family of your own; may be given several times.",
    ),
]
"""Which model, and its options."""

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
    click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        is_eager=True,
        expose_value=False,
        callback=_take_preset,
        help="A named set of values, for those of these options that are not given. "
        + " ".join(f"{name}: {preset.help}" for name, preset in PRESETS.items()),
    ),
    *setting_options(RunConfig, ["dataset_dir", "feature_spec"]),
    *MODEL,
    *setting_options(
        RunConfig, (n for n in SETTINGS if n not in ("dataset_dir", "feature_spec", "mode"))
    ),
    *map(_published_option, WITHOUT_MEANING),
]


def run_options(mode: str) -> Callable[[Any], Any]:
    """Decorate a command with all options of a run; ``--mode`` is ``mode`` by default."""
    return with_options(*OPTIONS, setting_option(RunConfig, "mode", mode))


def to_run_config(ctx: click.Context, values: dict[str, Any]) -> RunConfig:
    """Turn the options into a configuration; say what was given and has no meaning here."""
    values = _of_training_run(ctx, values)
    settled = settle(values)
    for name, (reason, _) in WITHOUT_MEANING.items():
        settled.pop(name)
        if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
            click.echo(f"merlin-sim: --{name} has no meaning here: {reason}.", err=True)
    for name in ("benchmark_steps", "benchmark_warmup_steps"):
        if settled[name] is not None and settled[name] <= 0:
            settled[name] = None if name == "benchmark_steps" else 0
    given = take_model_options(settled)
    kind, preset = settled["model_type"], PRESETS.get(ctx.meta.get(PRESET, ""))
    if kind is not None and preset is not None:  # of which some options may be of another model
        own = {field.name for field in dataclasses.fields(find_family(kind).options)}
        others = preset.values.keys() - own
        given = {n: v for n, v in given.items() if n not in others or _is_chosen(ctx, n)}
    return RunConfig(model_options=given, **settled)


def take_model_options(values: dict[str, Any]) -> dict[str, Any]:
    """Take the model's options that were given out of a command's values."""
    own = parse_own(values.pop("model_option"))
    options = {name: values.pop(name) for name in MODEL_OPTIONS}
    return {name: value for name, value in options.items() if value is not None} | own


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


def _is_chosen(ctx: click.Context, name: str) -> bool:
    """Return whether the command line or the config file says a value, or that there is none."""
    return _is_given(ctx, name) or name in ctx.meta.get(OF_FILE, ())


def settle(values: dict[str, Any]) -> dict[str, Any]:
    """Put None where a command line has what stands for it."""
    return {
        name: None if name in OFF and value is not None and value == OFF[name] else value
        for name, value in values.items()
    }


def readable(config: RunConfig) -> RunConfig:
    """Let a run read its dataset in a form that the feed reads."""
    contract = None if config.model_type is None else find_family(config.model_type).contract
    source = readable_dataset(config.dataset_dir, config.feature_spec, contract)
    if source == (config.dataset_dir, config.feature_spec):
        return config
    return dataclasses.replace(config, read_from=source)


def with_validation(ctx: click.Context, config: RunConfig, has_validation: bool) -> RunConfig:
    """Add what the preset says of datasets that validate, where it is not given otherwise."""
    preset = PRESETS.get(ctx.meta.get(PRESET, ""))
    if preset is None or not has_validation or config.mode != "train" or config.benchmark:
        return config
    return dataclasses.replace(config, **_open_ones(ctx, preset.with_validation))


def _open_ones(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not _is_chosen(ctx, name)}


def with_recipe(ctx: click.Context, config: RunConfig, dataset: DatasetDirectory) -> RunConfig:
    """Add what a preset, or the default of the dataset's kind, says where nothing is given.

    A log of one's own is trained by the preset :data:`OWN_LOGS`. A model that is named keeps its
    own options, and one that goes on from a checkpoint has those of the checkpoint.
    """
    is_default = PRESET not in ctx.meta
    if config.mode != "train" or (is_default and not is_own_log(config.dataset_dir)):
        return config
    name = ctx.meta.setdefault(PRESET, OWN_LOGS)
    if PRESETS[name] is PUBLISHED:
        return config
    begun = config
    if is_default and not _is_chosen(ctx, "model_type"):
        config = _with_preset(ctx, config, PRESETS[name])
    samples = training_samples(dataset)
    config = _sized(ctx, config, dataset, samples)
    config = with_validation(ctx, config, VALIDATION in dataset.spec.source_spec)
    if local_rank().rank == 0:
        _report_recipe(begun, config, name if is_default else None, samples)
    return config


def _with_preset(ctx: click.Context, config: RunConfig, preset: Preset) -> RunConfig:
    """Set the preset's values; those of the model only where no checkpoint says them."""
    values = _open_ones(ctx, preset.values)
    options = {name: values.pop(name) for name in list(values) if name in MODEL_OPTIONS}
    if config.load_checkpoint_path is not None or config.warm_start is not None:
        options = {}
        values.pop("model_type")
    return dataclasses.replace(config, **values, model_options={**options, **config.model_options})


def _sized(
    ctx: click.Context, config: RunConfig, dataset: DatasetDirectory, samples: int
) -> RunConfig:
    """Choose the batch and Adam's learning rate for the size of the data."""
    if not _is_chosen(ctx, "global_batch_size"):
        batch = batch_of(config, dataset, samples)
        config = dataclasses.replace(config, global_batch_size=batch)
    if not _is_chosen(ctx, "lr") and config.optimizer in ("adam", "lazy_adam"):
        config = dataclasses.replace(config, lr=rate_for(config.global_batch_size))
    return config


def _report_recipe(begun: RunConfig, config: RunConfig, default: str | None, samples: int) -> None:
    """Say what was chosen, and why."""
    before, after = begun.to_dict(), config.to_dict()
    changed = [f"--{name} {value}" for name, value in after.items() if value != before.get(name)]
    if not changed:
        return
    why = f"for {samples:,} training samples"
    if default is not None:
        why = (
            f"{config.dataset_dir} is of a log of your own, with {samples:,} training samples "
            f"(--preset {default}; --preset published is the published recipe)"
        )
    click.echo(f"merlin-sim: chosen, as {why}: {' '.join(changed)}. What is given wins.", err=True)


def execute(ctx: click.Context, values: dict[str, Any]) -> None:
    """Run what the options say."""
    config = to_run_config(ctx, values)
    from ...foundation.files import writing
    from ...foundation.gpus import look
    from ...parallel.ranks.arrival import lengthen_gloo_timeout, wait_for_ranks
    from ...parallel.ranks.own_gpu import take
    from ...parallel.ranks.run_lock import check_free
    from ...training.runs.affinity import near_cores, set_up_process
    from ...training.runs.opened_dataset import open_dataset

    config = readable(config)
    dataset = open_dataset(config)  # what is wrong with it is reported at once
    config = with_recipe(ctx, config, dataset)
    with writing(config.results_dir):
        config.results_dir.mkdir(parents=True, exist_ok=True)
    check_free(config.written_directories)  # each rank, before one of them holds the directories
    gpus = look()
    local = local_rank()
    set_up_process(config, local, near_cores(gpus, local))  # before TensorFlow is imported
    take(gpus, local)
    import tensorflow  # noqa: F401  # the longest import, which the ranks need not wait for

    settle_for_model(gpus)  # before Merlin is imported
    lengthen_gloo_timeout(config.start_timeout)
    wait_for_ranks(config.start_timeout)  # Merlin Models initialises Horovod when it is imported
    from ...training.runs.run import run

    run(config)
