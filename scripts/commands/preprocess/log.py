"""``merlin-sim preprocess log``: a log of one's own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ....schemas.users_layout import POPULARITY
from ....workflows.feature import TIMESTAMP_UNITS
from ....workflows.rules import NONE, TRAIN_ROWS
from ...options.devices import settle_for_tables
from ...options.preprocess_options import (
    common_options,
    equal_times_option,
    feature_values_option,
    files_of_split,
    fit_on,
    layout_option,
    names,
    negatives_or_none_option,
    next_day_options,
    output_path_option,
    rule_options,
    split_options,
    validation_option,
    workers_option,
)
from ...options.short_help import ShortHelp
from .fitted_settings import (
    COLUMN_OPTIONS,
    columns_of,
    earlier_of,
    features_of,
    load_fitted,
    parts_of_files,
    rules_of,
    say_done,
    with_timestamp_unit,
)


@click.command(
    "log",
    cls=ShortHelp,
    common=(
        "output_path", "user_column", "item_column", "timestamp_column", "user_feature_columns",
        "item_feature_columns", "label_column", "behaviour_column", "target_behaviours", "features",
        "counts", "layout", "test_from", "test_users", "fit_on", "fitted", "workers", "overwrite",
        "seed",
    ),
)  # fmt: skip
@click.argument("files", nargs=-1, required=True, type=Path)
@output_path_option
@click.option("--user_column", "user", help="Column of the user's key.")
@click.option("--item_column", "item", help="Column of the item's key.")
@click.option("--timestamp_column", "timestamp", help="When: numbers, or dates and times.")
@click.option(
    "--timestamp_unit",
    type=click.Choice(TIMESTAMP_UNITS),
    help="What numbers in it count since 1970 (s, ms, us, ns), or that they are an order and "
    "nothing more. [default: s; an order where all are before 1990]",
)
@click.option(
    "--user_feature_columns",
    "user_features",
    callback=names,
    help="Further columns of the user, between commas.",
)
@click.option(
    "--item_feature_columns",
    "item_features",
    callback=names,
    help="Further columns of the item, between commas.",
)
@click.option(
    "--label_column",
    "label",
    help="1 where the item was taken (clicked): it joins the history; 0 where it was shown and "
    "not taken. Both become samples. Without it every row is taken.",
)
@click.option(
    "--behaviour_column",
    "behaviour",
    help="Column of behaviours (view, cart, buy), where the log has several. What is neither "
    "history nor predicted is left out.",
)
@click.option(
    "--history_behaviours",
    callback=names,
    help="Behaviours that make history, between commas. [default: all]",
)
@click.option(
    "--target_behaviours",
    callback=names,
    help="Behaviours that are predicted, between commas. [default: all]",
)
@click.option(
    "--features",
    "features_file",
    type=Path,
    help="YAML that names columns of numbers, times, lists and vectors, and what becomes of them.",
)
@click.option(
    "--counts",
    is_flag=True,
    help="Add how often the user, and all users, had the target item and each of its features "
    "before; with labels, at what share it was taken.",
)
@rule_options
@negatives_or_none_option
@feature_values_option
@fit_on(TRAIN_ROWS)
@split_options
@validation_option
@equal_times_option
@files_of_split
@layout_option
@next_day_options
@common_options
@workers_option
def command(
    files: tuple[Path, ...],
    output_path: Path,
    timestamp_unit: str | None,
    features_file: Path | None,
    counts: bool,
    workers: int | None,
    scheduler: str,
    on_bad_rows: str,
    overwrite: bool,
    test_files: tuple[Path, ...],
    validation_files: tuple[Path, ...],
    fitted: Path | None,
    grow: bool,
    history: Path | None,
    layout: str,
    **values: Any,
) -> None:
    """Preprocess a log of your own: CSV (.csv, .csv.gz, with a header) or parquet FILES.

    A directory stands for the files in it, and in its directories, in the order of their names.

    The user's, the item's and the timestamp's column must be named, but with --fitted, whose
    columns are taken.
    """
    settle_for_tables()

    from ....foundation.files import check_apart
    from ....foundation.progress import Terminal
    from ....workflows.csv_file import files_of_log
    from ....workflows.preprocess.preprocess_log import PreprocessLog
    from ....workflows.schedulers import open_scheduler
    from ....workflows.table_log import TableLog, unread_behaviours, unread_labels

    started = time.monotonic()
    check_apart(output_path, [*files, *validation_files, *test_files, fitted, history])
    files, validation_files, test_files = map(files_of_log, (files, validation_files, test_files))
    parts = parts_of_files(files, validation_files, test_files)
    files = (*files, *validation_files, *test_files)
    workflow = load_fitted(fitted, grow)
    given = {name: values.pop(name) for name in COLUMN_OPTIONS if name in values}
    given["features"] = features_of(features_file)
    columns = columns_of(given, features_file, fitted, workflow)
    columns = with_timestamp_unit(columns, timestamp_unit, fitted or features_file)
    if counts:
        if fitted and columns.with_counts() != columns:
            raise click.UsageError(
                f"--counts: {fitted} was fitted without these counts. Leave the option out."
            )
        columns = columns.with_counts()
    source = TableLog(files, columns)
    by_files = {"test_files": bool(test_files), "validation_files": bool(validation_files)}
    sample_rules = rules_of(values | by_files, workflow, NONE if columns.label else POPULARITY)
    earlier = earlier_of(history, workflow)
    source.blocks()  # refuses a file without the columns, before any advice about it
    for name in unread_labels(source):
        _report_labels(name)
    for name, behaviours in unread_behaviours(source).items():
        _report_behaviours(name, behaviours)
    with open_scheduler(scheduler, workers) as cluster:
        program = PreprocessLog(
            source,
            sample_rules,
            cluster,
            Terminal(),
            on_bad_rows,
            layout=layout,
            earlier=earlier,
            parts=parts,
            fitted=workflow,
            grow=grow,
        )
        summary = program.write(output_path, overwrite=overwrite)
    say_done(summary, output_path, time.monotonic() - started)
    click.echo(
        f"next: merlin-sim train --dataset_dir {output_path} --results_dir RESULTS "
        "--save_checkpoint_path RESULTS/checkpoints (by the preset `lifelong`)"
    )


def _report_labels(name: str) -> None:
    click.echo(
        f"merlin-sim: the log has a column {name!r} of 0 and 1, which is not read: every row "
        f"counts as taken. If its 0 are items that were shown and not taken, give "
        f"`--label_column {name}`.",
        err=True,
    )


def _report_behaviours(name: str, behaviours: Iterable[str]) -> None:
    click.echo(
        f"merlin-sim: the log has a column {name!r} of {', '.join(behaviours)}, which is not "
        f"read: all rows count alike. If some make history and others are predicted, give "
        f"`--behaviour_column {name}`.",
        err=True,
    )
