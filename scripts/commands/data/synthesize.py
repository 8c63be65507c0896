"""``merlin-sim data synthesize``: raw files with planted behaviour, as Amazon's or Criteo's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ....foundation.files import staged_directory
from ....foundation.settings import settings_of
from ....workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize
from ....workflows.synthetic.click_days import (
    DriftingWorld,
    PlantedClicks,
    synthesize_days,
    write_days,
)
from ...options.shared_options import (
    option,
    options_of,
    overwrite_directory,
    setting_options,
    with_options,
)


@click.group(invoke_without_command=True)
@click.option("--output", type=Path, help="Directory to make.  [required]")
@click.option("--items", default=None, type=int, help="Items. [default: 5 per user]")
@click.option("--categories", default=None, type=int, help="Categories. [default: items / 50]")
@with_options(*setting_options(PlantedBehaviour, settings_of(PlantedBehaviour)))
@option("--missing_metadata", default=0.05, help="Share of items without metadata.")
@option("--review_text", default=0, help="Characters of review text per line.")
@click.option("--gzip", "compress", is_flag=True, help="Write .json.gz files.")
@overwrite_directory
@click.pass_context
def command(
    context: click.Context,
    /,
    output: Path | None,
    items: int | None,
    categories: int | None,
    missing_metadata: float,
    review_text: int,
    compress: bool,
    overwrite: bool,
    **planted: Any,
) -> None:
    """Write synthetic raw logs: reviews_Books.json and meta_Books.json.

    Users have a few lifelong interests, a drifting interest of the moment and some noise;
    items have popularity; some items lack metadata, some users are too short to keep.

    `merlin-sim data synthesize criteo` writes click logs of another kind.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    if output is None:
        raise click.UsageError("Missing option '--output'.")
    items = 5 * planted["users"] if items is None else items
    categories = max(1, items // 50) if categories is None else categories
    behaviour = PlantedBehaviour(items=items, categories=categories, **planted)
    started = time.monotonic()
    with staged_directory(output, overwrite=overwrite, say=click.echo) as directory:
        written = synthesize(
            directory,
            behaviour,
            missing_metadata=missing_metadata,
            review_text=review_text,
            compress=compress,
        )
    click.echo(
        f"{output}: {written.interactions:,} interactions of {written.users:,} users with "
        f"{written.items_in_log:,} items, metadata of {written.items_with_metadata:,} items, "
        f"in {time.monotonic() - started:.1f} s"
    )


def _refuse_options_before(context: click.Context) -> None:
    """Options of the Amazon logs before ``criteo`` would be without effect."""
    default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    given = [name for name in context.params if context.get_parameter_source(name) not in default]
    if given:
        raise click.UsageError(
            f"--{given[0]}: options of `{context.invoked_subcommand}` stand behind it."
        )


@command.command("criteo")
@click.option("--output", type=Path, required=True, help="Directory to make.")
@option("--days", default=3, help="Day files: day_0, day_1 and so on.")
@options_of(PlantedClicks, "planted")
@click.option("--gzip", "compress", is_flag=True, help="Write .gz files.")
@overwrite_directory
def criteo(
    output: Path, days: int, planted: PlantedClicks, compress: bool, overwrite: bool
) -> None:
    """Write click logs as Criteo's: day_0, day_1 and so on, tab-separated.

    Keys follow a power law; clicks depend on keys, on pairs of keys and on numbers.
    """
    from ....foundation.progress import Terminal

    started = time.monotonic()
    with staged_directory(output, overwrite=overwrite, say=click.echo) as directory:
        clicked = synthesize_days(directory, planted, days, compress=compress, reporter=Terminal())
    rows = days * planted.rows_per_day
    click.echo(
        f"{output}: {rows:,} rows of {days} days, {clicked / rows:.1%} of them clicked, in "
        f"{time.monotonic() - started:.1f} s"
    )


@command.command("days")
@click.option("--output", type=Path, required=True, help="Directory to make.")
@option("--days", default=14, help="Files: day_00.csv and so on.")
@options_of(DriftingWorld, "world")
@overwrite_directory
def days_of_drift(output: Path, days: int, world: DriftingWorld, overwrite: bool) -> None:
    """Write days of clicks in a world that changes: new users and items, other tastes.

    Files for `preprocess log --label_column clicked`: user, item, category, time, clicked.
    """
    from ....foundation.progress import Terminal

    started = time.monotonic()
    with staged_directory(output, overwrite=overwrite, say=click.echo) as directory:
        rates = write_days(directory, world, days, Terminal())
    rows = days * world.users * world.shown
    click.echo(
        f"{output}: {rows:,} rows of {days} days, {sum(rates) / days:.1%} of them clicked, in "
        f"{time.monotonic() - started:.1f} s"
    )


@command.command("dataset")
@click.option(
    "--feature_spec", type=Path, required=True, help="The feature spec of the dataset to make."
)
@click.option("--output", type=Path, required=True, help="Dataset directory to make.")
@option("--train_rows", default=1_000_000, help="Rows to train on.")
@option("--test_rows", default=100_000, help="Rows to test with.")
@option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    help="Same seed, same rows.",
)
@overwrite_directory
def dataset(
    feature_spec: Path, output: Path, train_rows: int, test_rows: int, seed: int, overwrite: bool
) -> None:
    """Write a dataset directory of random rows, straight from a feature spec.

    Ids follow a power law. It is there to measure with: nothing can be learned from it.
    """
    from ....foundation.progress import Terminal
    from ....schemas.spec_file import read_spec
    from ....workflows.synthetic.random_dataset import synthesize_dataset

    spec = read_spec(feature_spec, check_files=False)
    rows = {"train": train_rows, "test": test_rows}
    started = time.monotonic()
    with staged_directory(output, overwrite=overwrite, say=click.echo) as directory:
        synthesize_dataset(directory, spec, rows, seed, Terminal())
    seconds = time.monotonic() - started
    click.echo(f"{output}: {train_rows + test_rows:,} rows in {seconds:.1f} s")
