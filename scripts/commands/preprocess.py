"""``merlin-sim preprocess``: raw logs become a dataset directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ...foundation.exceptions import MerlinSimError
from ...schemas.users_layout import NEGATIVES, POPULARITY
from ...workflows.logs.bad_rows import FAIL, POLICIES
from ..options.devices import settle_for_tables
from ..options.shared_options import overwrite_directory

if TYPE_CHECKING:
    from ...workflows.behaviour.behaviour_columns import BehaviourColumns
    from ...workflows.behaviour.build import Summary
    from ...workflows.behaviour.fitted import FittedWorkflow
    from ...workflows.behaviour.rules import SampleRules

# The modules that import Merlin are imported by the functions that need them: help is quick.


@click.group()
def command() -> None:
    """Turn raw logs of behaviour or clicks into a dataset directory."""


RULES = (
    click.option(
        "--max_sequence_length",
        default=100,
        show_default=True,
        help="Interactions of a history to keep, the newest.",
    ),
    click.option(
        "--shortest_sequence_for_user",
        default=20,
        show_default=True,
        help="Users with fewer interactions are dropped.",
    ),
    click.option(
        "--shortest_sequence_for_training",
        default=1,
        show_default=True,
        help="Interactions that a training sample has before it, at least.",
    ),
    click.option(
        "--seed", default=12345, show_default=True, help="Decides negatives and the rows' order."
    ),
    click.option("--pad", is_flag=True, help="Write histories left-padded with 0."),
    click.option(
        "--negatives",
        type=click.Choice(NEGATIVES),
        default=POPULARITY,
        show_default=True,
        help="Draw negatives as often as they were taken, or each item as often as any other.",
    ),
)
LAYOUT = (
    click.option(
        "--layout",
        type=click.Choice(("samples", "users")),
        default="samples",
        show_default=True,
        help="One row per sample, each with a copy of its history; or one row per user, of which "
        "training and inference make the same samples.",
    ),
)
RUN = (
    click.option(
        "--fitted",
        type=Path,
        help="An earlier dataset whose ids to use instead of fitting: for the next day's data. "
        "Rules that are not given are those of that dataset.",
    ),
    click.option(
        "--on_bad_rows",
        type=click.Choice(POLICIES),
        default=FAIL,
        show_default=True,
        help="Stop at a row that cannot be read, or leave it out and count it.",
    ),
    click.option(
        "--scheduler",
        default="auto",
        show_default=True,
        help="single: this process, with threads, and one task at a time on a GPU; local: a Dask "
        "cluster on this machine, with GPUs one worker for each; an address (tcp://...) of a "
        "running Dask or Dask-CUDA cluster that sees the same files; auto: local if more than one "
        "worker is asked for or there are several GPUs, else single.",
    ),
    overwrite_directory,
)


def with_options(options: tuple[Any, ...]) -> Any:
    """Decorate a command with options, shown in their order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@command.command("amazon-books")
@click.option(
    "--amazon_dataset_path",
    type=Path,
    required=True,
    help="Directory of the raw files, .json or .json.gz.",
)
@click.option("--output_path", type=Path, required=True, help="Dataset directory to make.")
@click.option("--metadata_file_name", default="meta_Books.json", show_default=True)
@click.option("--reviews_file_name", default="reviews_Books.json", show_default=True)
@with_options(RULES)
@with_options(LAYOUT)
@with_options(RUN)
@click.option(
    "--metadata_loader_n_proc",
    type=int,
    help="Worker processes; the larger of the two counts is taken.",
)
@click.option(
    "--review_loader_num_workers",
    "--workers",
    type=int,
    help="Worker processes, or threads of --scheduler single. [default: threads, one per core]",
)
def amazon_books(
    amazon_dataset_path: Path,
    output_path: Path,
    metadata_file_name: str,
    reviews_file_name: str,
    metadata_loader_n_proc: int | None,
    review_loader_num_workers: int | None,
    scheduler: str,
    on_bad_rows: str,
    overwrite: bool,
    fitted: Path | None,
    layout: str,
    **rules: Any,
) -> None:
    """Preprocess the Amazon Books 2014 logs, by the published rules."""
    settle_for_tables()

    from ...foundation.progress import Terminal
    from ...foundation.staging import check_apart
    from ...workflows.amazon.amazon_books import (
        COLUMNS,
        AmazonReviews,
        amazon_files,
        read_categories,
    )
    from ...workflows.behaviour.build import DatasetBuilder
    from ...workflows.engine.schedulers import open_scheduler

    started = time.monotonic()
    check_apart(output_path, [amazon_dataset_path, fitted])
    workflow = _load_fitted(fitted)
    if workflow is not None and workflow.columns != COLUMNS:
        raise MerlinSimError(
            f"{fitted}: expected a workflow fitted by `preprocess amazon-books`, got one fitted on "
            f"the columns {', '.join(workflow.columns.log)} (`preprocess log` takes it)."
        )
    sample_rules = _rules(rules, workflow)
    reviews, metadata = amazon_files(amazon_dataset_path, reviews_file_name, metadata_file_name)
    counts = [n for n in (metadata_loader_n_proc, review_loader_num_workers) if n is not None]
    narrator = Terminal()
    with open_scheduler(scheduler, max(counts, default=None)) as workers:
        source = AmazonReviews(reviews)
        builder = DatasetBuilder(
            source, sample_rules, workers, narrator, on_bad_rows, layout=layout
        )
        if workflow is None:
            builder = builder.with_features(
                lambda: read_categories(metadata, workers, narrator, on_bad_rows)
            )
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    _say(summary, output_path, time.monotonic() - started)


def _names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Names between commas."""
    if value is None:
        return None
    return tuple(name.strip() for name in value.split(",") if name.strip())


@command.command("log")
@click.argument("files", nargs=-1, required=True, type=Path)
@click.option("--output_path", type=Path, required=True, help="Dataset directory to make.")
@click.option("--user_column", help="Whose behaviour it is.")
@click.option("--item_column", help="What was interacted with.")
@click.option("--timestamp_column", help="When: numbers, or dates and times.")
@click.option(
    "--user_feature_columns", callback=_names, help="Further columns of the user, between commas."
)
@click.option(
    "--item_feature_columns", callback=_names, help="Further columns of the item, between commas."
)
@with_options(RULES)
@with_options(LAYOUT)
@with_options(RUN)
@click.option(
    "--workers",
    type=int,
    help="Worker processes, or threads of --scheduler single. [default: threads, one per core]",
)
def log(
    files: tuple[Path, ...],
    output_path: Path,
    user_column: str | None,
    item_column: str | None,
    timestamp_column: str | None,
    user_feature_columns: tuple[str, ...] | None,
    item_feature_columns: tuple[str, ...] | None,
    workers: int | None,
    scheduler: str,
    on_bad_rows: str,
    overwrite: bool,
    fitted: Path | None,
    layout: str,
    **rules: Any,
) -> None:
    """Preprocess a log of your own: CSV (.csv, .csv.gz, with a header) or parquet FILES.

    The user's, the item's and the timestamp's column must be named, but with --fitted, whose
    columns are taken.
    """
    settle_for_tables()

    from ...foundation.progress import Terminal
    from ...foundation.staging import check_apart
    from ...workflows.behaviour.build import DatasetBuilder
    from ...workflows.engine.schedulers import open_scheduler
    from ...workflows.logs.table_log import TableLog

    started = time.monotonic()
    check_apart(output_path, [*files, fitted])
    workflow = _load_fitted(fitted)
    given = {
        "user": user_column,
        "item": item_column,
        "timestamp": timestamp_column,
        "user_features": user_feature_columns,
        "item_features": item_feature_columns,
    }
    columns = _columns(given, fitted, workflow)
    source = TableLog(files, columns)
    with open_scheduler(scheduler, workers) as cluster:
        builder = DatasetBuilder(
            source, _rules(rules, workflow), cluster, Terminal(), on_bad_rows, layout=layout
        )
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    _say(summary, output_path, time.monotonic() - started)


@command.command("criteo")
@click.option(
    "--criteo_path", type=Path, required=True, help="Directory of day files, plain or .gz."
)
@click.option("--output_path", type=Path, required=True, help="Dataset directory to make.")
@click.option("--file_pattern", default="day_*", show_default=True, help="Names of the files.")
@click.option(
    "--frequency_threshold",
    default="15",
    show_default=True,
    help="Keys seen fewer times share id 0 with missing ones; 15,3:20 gives cat_3 a limit of 20. "
    "0 or 1 keeps all.",
)
@click.option(
    "--count_in",
    type=click.Choice(["all", "train"]),
    default="all",
    show_default=True,
    help="Count the keys of all days, as published, or of what is trained on alone.",
)
@click.option(
    "--validation_files",
    callback=_names,
    help="Files that validate, between commas; of the others the last tests. [default: the first "
    "half of the last file validates, the second tests]",
)
@click.option(
    "--validation_share", default=0.0, help="Share of all rows that validate, with --test_share."
)
@click.option(
    "--test_share", default=0.0, help="Share of all rows, the last, that test; not by files then."
)
@with_options(RUN)
@click.option(
    "--workers",
    type=int,
    help="Worker processes, or threads of --scheduler single. [default: threads, one per core]",
)
def criteo(
    criteo_path: Path,
    output_path: Path,
    file_pattern: str,
    frequency_threshold: str,
    count_in: str,
    validation_files: tuple[str, ...] | None,
    validation_share: float,
    test_share: float,
    scheduler: str,
    workers: int | None,
    on_bad_rows: str,
    overwrite: bool,
    fitted: Path | None,
) -> None:
    """Preprocess click logs as Criteo's: label, 13 whole numbers, 26 keys, tabs between.

    Numbers become log(x + 3), missing ones 0. Keys get ids by falling count, from 1.
    """
    settle_for_tables()

    from ...foundation.progress import Terminal
    from ...foundation.staging import check_apart
    from ...workflows.criteo.build_criteo import CriteoBuilder
    from ...workflows.criteo.criteo_log import find_days
    from ...workflows.criteo.day_split import DaySplit
    from ...workflows.criteo.fitted_criteo import CriteoRules, FittedCriteo
    from ...workflows.criteo.thresholds import parse_thresholds
    from ...workflows.engine.schedulers import open_scheduler

    started = time.monotonic()
    check_apart(output_path, [criteo_path, fitted])
    rules = CriteoRules(parse_thresholds(frequency_threshold), count_in)
    split = DaySplit(validation_files or (), validation_share, test_share)
    workflow = None if fitted is None else FittedCriteo.load(fitted)
    if workflow is not None:
        _refuse_fitted_rules(("frequency_threshold", "count_in"), fitted)
    days = find_days(criteo_path, file_pattern)
    with open_scheduler(scheduler, workers) as cluster:
        builder = CriteoBuilder(days, rules, split, cluster, Terminal(), on_bad_rows)
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    for line in summary.lines():
        click.echo(line)
    seconds = time.monotonic() - started
    rate = summary.read / max(seconds, 1e-9)
    click.echo(f"{output_path}: done in {seconds:.1f} s ({rate:,.0f} rows/s)")


def _refuse_fitted_rules(names: tuple[str, ...], directory: Path | None) -> None:
    """Refuse rules that a fitted workflow has settled."""
    source = click.get_current_context().get_parameter_source
    given = [name for name in names if source(name) != ParameterSource.DEFAULT]
    if given:
        raise MerlinSimError(
            f"`{given[0]}` is settled by the ids of {directory}: leave the option out."
        )


COLUMN_OPTIONS = {
    "user": "--user_column",
    "item": "--item_column",
    "timestamp": "--timestamp_column",
    "user_features": "--user_feature_columns",
    "item_features": "--item_feature_columns",
}


def _columns(
    given: dict[str, Any], directory: Path | None, fitted: FittedWorkflow | None
) -> BehaviourColumns:
    """The columns as given; those that are not, as the fitted workflow has them."""
    from ...workflows.behaviour.behaviour_columns import BehaviourColumns

    if fitted is None:
        for name in ("user", "item", "timestamp"):
            if given[name] is None:
                raise click.UsageError(f"Missing option '{COLUMN_OPTIONS[name]}'.")
        columns: dict[str, Any] = {name: value or () for name, value in given.items()}
        return BehaviourColumns(**columns)
    for name, value in given.items():
        wanted = getattr(fitted.columns, name)
        if value not in (None, wanted):
            raise MerlinSimError(
                f"{COLUMN_OPTIONS[name]}: expected {_in_words(wanted)}, as {directory} was fitted "
                f"on, got {_in_words(value)}. Leave the option out: workflow.json holds it."
            )
    return fitted.columns


def _in_words(names: str | tuple[str, ...]) -> str:
    return (names if isinstance(names, str) else ", ".join(names)) or "none"


def _load_fitted(directory: Path | None) -> FittedWorkflow | None:
    from ...workflows.behaviour.fitted import FittedWorkflow

    return None if directory is None else FittedWorkflow.load(directory)


def _rules(given: dict[str, Any], fitted: FittedWorkflow | None) -> SampleRules:
    """The rules as given; those left at their defaults as the fitted workflow has them."""
    from ...workflows.behaviour.rules import SampleRules

    if fitted is not None:
        source = click.get_current_context().get_parameter_source
        left = [name for name in given if source(name) == ParameterSource.DEFAULT]
        given = {**given, **{name: getattr(fitted.rules, name) for name in left}}
    return SampleRules(**given)


def _say(summary: Summary, output: Path, seconds: float) -> None:
    for line in summary.lines():
        click.echo(line)
    rate = summary.interactions / max(seconds, 1e-9)
    click.echo(f"{output}: done in {seconds:.1f} s ({rate:,.0f} interactions/s)")
