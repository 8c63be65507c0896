"""``merlin-sim preprocess``: raw behaviour logs become a dataset directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..workflows.amazon_books import AmazonReviews, amazon_files, read_categories
from ..workflows.bad_rows import FAIL, POLICIES
from ..workflows.build import DatasetBuilder, Summary
from ..workflows.progress import Terminal
from ..workflows.rules import SampleRules
from ..workflows.schedulers import AUTO, SingleProcess, open_scheduler


@click.group()
def command() -> None:
    """Turn raw behaviour logs into a dataset directory."""


def rule_options(function: Any) -> Any:
    """The options that every log has."""
    options = [
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
            "--seed", default=12345, show_default=True, help="Decides negatives and order."
        ),
        click.option("--pad", is_flag=True, help="Write histories left-padded with 0."),
        click.option(
            "--on_bad_rows",
            type=click.Choice(POLICIES),
            default=FAIL,
            show_default=True,
            help="Stop at a row that cannot be read, or leave it out and count it.",
        ),
        click.option(
            "--scheduler",
            default=AUTO,
            show_default=True,
            help="single: this process; local: a Dask cluster on this machine; an address "
            "(tcp://...) of a running Dask or Dask-CUDA cluster that sees the same files; "
            "auto: local for more than one worker or more than 1 GB of raw data.",
        ),
        click.option("--overwrite", is_flag=True, help="Replace the output directory."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


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
@rule_options
@click.option(
    "--metadata_loader_n_proc",
    type=int,
    default=None,
    help="Worker processes; the larger of the two counts is taken.",
)
@click.option(
    "--review_loader_num_workers",
    type=int,
    default=None,
    help="Worker processes. [default: one, or one per core for more than 1 GB]",
)
def amazon_books(
    amazon_dataset_path: Path,
    output_path: Path,
    metadata_file_name: str,
    reviews_file_name: str,
    max_sequence_length: int,
    shortest_sequence_for_user: int,
    shortest_sequence_for_training: int,
    seed: int,
    pad: bool,
    on_bad_rows: str,
    scheduler: str,
    overwrite: bool,
    metadata_loader_n_proc: int | None,
    review_loader_num_workers: int | None,
) -> None:
    """Preprocess the Amazon Books 2014 logs, by the published rules."""
    rules = SampleRules(
        max_sequence_length=max_sequence_length,
        shortest_sequence_for_user=shortest_sequence_for_user,
        shortest_sequence_for_training=shortest_sequence_for_training,
        seed=seed,
        pad=pad,
    )
    reviews, metadata = amazon_files(amazon_dataset_path, reviews_file_name, metadata_file_name)
    counts = [n for n in (metadata_loader_n_proc, review_loader_num_workers) if n is not None]
    raw_bytes = reviews.stat().st_size + metadata.stat().st_size
    narrator = Terminal()
    started = time.monotonic()
    with open_scheduler(scheduler, max(counts, default=None), raw_bytes) as workers:
        source = AmazonReviews(reviews, threads=isinstance(workers, SingleProcess))
        builder = DatasetBuilder(source, rules, workers, narrator, on_bad_rows)
        features, bad = read_categories(metadata, workers, narrator, on_bad_rows)
        summary = builder.build(output_path, features=features, overwrite=overwrite)
        summary.bad_rows.insert(0, bad)
    _say(summary, output_path, time.monotonic() - started)


def _say(summary: Summary, output: Path, seconds: float) -> None:
    for line in summary.lines():
        click.echo(line)
    rate = summary.interactions / max(seconds, 1e-9)
    click.echo(f"{output}: done in {seconds:.1f} s ({rate:,.0f} interactions/s)")
