"""``merlin-sim preprocess``: raw behaviour logs become a dataset directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..schemas.exceptions import MerlinSimError
from ..workflows.bad_rows import FAIL, POLICIES
from .shared_options import overwrite_directory

if TYPE_CHECKING:
    from ..workflows.build import Summary
    from ..workflows.fitted import FittedWorkflow
    from ..workflows.rules import SampleRules

# The modules that import Merlin are imported by the functions that need them: help is quick.


@click.group()
def command() -> None:
    """Turn raw behaviour logs into a dataset directory."""


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
        help="single: this process, with threads; local: a Dask cluster on this machine; an "
        "address (tcp://...) of a running Dask or Dask-CUDA cluster that sees the same files; "
        "auto: local if more than one worker is asked for, else single.",
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
    **rules: Any,
) -> None:
    """Preprocess the Amazon Books 2014 logs, by the published rules."""
    from ..workflows.amazon_books import COLUMNS, AmazonReviews, amazon_files, read_categories
    from ..workflows.build import DatasetBuilder
    from ..workflows.progress import Terminal
    from ..workflows.schedulers import open_scheduler
    from ..workflows.staging import check_apart

    started = time.monotonic()
    check_apart(output_path, [amazon_dataset_path, fitted])
    workflow = _load_fitted(fitted)
    if workflow is not None and workflow.columns != COLUMNS:
        raise MerlinSimError(f"{fitted}: not a workflow fitted by `preprocess amazon-books`.")
    sample_rules = _rules(rules, workflow)
    reviews, metadata = amazon_files(amazon_dataset_path, reviews_file_name, metadata_file_name)
    counts = [n for n in (metadata_loader_n_proc, review_loader_num_workers) if n is not None]
    narrator = Terminal()
    with open_scheduler(scheduler, max(counts, default=None)) as workers:
        source = AmazonReviews(reviews)
        builder = DatasetBuilder(source, sample_rules, workers, narrator, on_bad_rows)
        if workflow is None:
            builder = builder.with_features(
                lambda: read_categories(metadata, workers, narrator, on_bad_rows)
            )
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    _say(summary, output_path, time.monotonic() - started)


def _names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


@command.command("log")
@click.argument("files", nargs=-1, required=True, type=Path)
@click.option("--output_path", type=Path, required=True, help="Dataset directory to make.")
@click.option("--user_column", required=True, help="Whose behaviour it is.")
@click.option("--item_column", required=True, help="What was interacted with.")
@click.option("--timestamp_column", required=True, help="When: numbers, or dates and times.")
@click.option(
    "--user_feature_columns",
    default="",
    callback=_names,
    help="Further columns of the user, between commas.",
)
@click.option(
    "--item_feature_columns",
    default="",
    callback=_names,
    help="Further columns of the item, between commas.",
)
@with_options(RULES)
@with_options(RUN)
@click.option(
    "--workers",
    type=int,
    help="Worker processes, or threads of --scheduler single. [default: threads, one per core]",
)
def log(
    files: tuple[Path, ...],
    output_path: Path,
    user_column: str,
    item_column: str,
    timestamp_column: str,
    user_feature_columns: tuple[str, ...],
    item_feature_columns: tuple[str, ...],
    workers: int | None,
    scheduler: str,
    on_bad_rows: str,
    overwrite: bool,
    fitted: Path | None,
    **rules: Any,
) -> None:
    """Preprocess a log of your own: CSV (.csv, .csv.gz, with a header) or parquet FILES."""
    from ..workflows.build import DatasetBuilder
    from ..workflows.columns import BehaviourColumns
    from ..workflows.progress import Terminal
    from ..workflows.schedulers import open_scheduler
    from ..workflows.staging import check_apart
    from ..workflows.table_log import TableLog

    started = time.monotonic()
    check_apart(output_path, [*files, fitted])
    columns = BehaviourColumns(
        user_column, item_column, timestamp_column, user_feature_columns, item_feature_columns
    )
    workflow = _load_fitted(fitted)
    if workflow is not None and workflow.columns != columns:
        raise MerlinSimError(f"{fitted}: was fitted on other columns: {workflow.columns}.")
    source = TableLog(files, columns)
    with open_scheduler(scheduler, workers) as cluster:
        builder = DatasetBuilder(source, _rules(rules, workflow), cluster, Terminal(), on_bad_rows)
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    _say(summary, output_path, time.monotonic() - started)


def _load_fitted(directory: Path | None) -> FittedWorkflow | None:
    from ..workflows.fitted import FittedWorkflow

    return None if directory is None else FittedWorkflow.load(directory)


def _rules(given: dict[str, Any], fitted: FittedWorkflow | None) -> SampleRules:
    """The rules as given; those left at their defaults as the fitted workflow has them."""
    from ..workflows.rules import SampleRules

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
