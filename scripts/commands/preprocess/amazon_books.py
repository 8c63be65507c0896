"""``merlin-sim preprocess amazon-books``: the published logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ....foundation.exceptions import MerlinSimError
from ....workflows.rules import ALL_ROWS, ITEM_ORDER
from ...options.devices import settle_for_tables
from ...options.preprocess_options import (
    common_options,
    fit_on,
    layout_option,
    negatives_option,
    next_day_options,
    output_path_option,
    rule_options,
    split_options,
)
from ...options.shared_options import option
from ...options.short_help import ShortHelp
from .fitted_settings import earlier_of, load_fitted, rules_of, say_done


@click.command(
    "amazon-books",
    cls=ShortHelp,
    common=(
        "amazon_dataset_path", "output_path", "layout", "fit_on", "test_from", "validation_users",
        "shortest_sequence_for_user", "max_sequence_length", "fitted", "workers", "overwrite",
        "seed",
    ),
)  # fmt: skip
@click.option(
    "--amazon_dataset_path",
    type=Path,
    required=True,
    help="Directory of the raw files, .json or .json.gz.",
)
@output_path_option
@option("--metadata_file_name", default="meta_Books.json")
@option("--reviews_file_name", default="reviews_Books.json")
@rule_options
@negatives_option
@fit_on(ALL_ROWS)
@split_options
@layout_option
@next_day_options
@common_options
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
def command(
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
    grow: bool,
    history: Path | None,
    layout: str,
    **rules: Any,
) -> None:
    """Preprocess the Amazon Books 2014 logs, by the published rules."""
    settle_for_tables()

    from ....foundation.files import check_apart
    from ....foundation.progress import Terminal
    from ....workflows.amazon import COLUMNS, AmazonReviews, read_categories
    from ....workflows.preprocess.preprocess_log import PreprocessLog
    from ....workflows.schedulers import open_scheduler
    from ....workflows.text_lines import find_text_file

    started = time.monotonic()
    check_apart(output_path, [amazon_dataset_path, fitted, history])
    workflow = load_fitted(fitted, grow)
    if workflow is not None and workflow.columns != COLUMNS:
        raise MerlinSimError(
            f"{fitted}: expected a workflow fitted by `preprocess amazon-books`, got one fitted on "
            f"the columns {', '.join(workflow.columns.log)} (`preprocess log` takes it)."
        )
    earlier = earlier_of(history, workflow)
    sample_rules = rules_of({**rules, "equal_times": ITEM_ORDER}, workflow)
    reviews = find_text_file(amazon_dataset_path, reviews_file_name)
    metadata = find_text_file(amazon_dataset_path, metadata_file_name)
    counts = [n for n in (metadata_loader_n_proc, review_loader_num_workers) if n is not None]
    reporter = Terminal()
    with open_scheduler(scheduler, max(counts, default=None)) as workers:
        program = PreprocessLog(
            AmazonReviews(reviews),
            sample_rules,
            workers,
            reporter,
            on_bad_rows,
            lambda: read_categories(metadata, workers, reporter, on_bad_rows),
            layout,
            earlier,
            fitted=workflow,
            grow=grow,
        )
        summary = program.write(output_path, overwrite=overwrite)
    say_done(summary, output_path, time.monotonic() - started)
