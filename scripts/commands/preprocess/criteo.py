"""``merlin-sim preprocess criteo``: click logs without histories."""

from __future__ import annotations

import time
from pathlib import Path

import click
from click.core import ParameterSource

from ....foundation.exceptions import MerlinSimError
from ....workflows.rules import ALL_ROWS
from ...options.devices import settle_for_tables
from ...options.preprocess_options import (
    common_options,
    fit_on,
    names,
    output_path_option,
    workers_option,
)
from ...options.shared_options import option
from .fitted_settings import say_findings


@click.command("criteo")
@click.option(
    "--criteo_path", type=Path, required=True, help="Directory of day files, plain or .gz."
)
@output_path_option
@option("--file_pattern", default="day_*", help="Names of the files.")
@option(
    "--frequency_threshold",
    default="15",
    help="Keys seen fewer times share id 0 with missing ones; 15,3:20 gives cat_3 a limit of 20. "
    "0 or 1 keeps all.",
)
@fit_on(ALL_ROWS)
@click.option(
    "--validation_files",
    callback=names,
    help="Files that validate, between commas; of the others the last tests. [default: the first "
    "half of the last file validates, the second tests]",
)
@click.option(
    "--validation_share", default=0.0, help="Share of all rows that validate, with --test_share."
)
@click.option(
    "--test_share", default=0.0, help="Share of all rows, the last, that test; not by files then."
)
@common_options
@workers_option
def command(
    criteo_path: Path,
    output_path: Path,
    file_pattern: str,
    frequency_threshold: str,
    fit_on: str,
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

    from ....foundation.files import check_apart
    from ....foundation.progress import Terminal
    from ....workflows.criteo.build_criteo import CriteoBuilder, DaySplit
    from ....workflows.criteo.click_graph import CriteoRules, load_clicks
    from ....workflows.criteo.criteo_columns import parse_thresholds
    from ....workflows.criteo.criteo_log import find_days
    from ....workflows.schedulers import open_scheduler

    started = time.monotonic()
    check_apart(output_path, [criteo_path, fitted])
    rules = CriteoRules(parse_thresholds(frequency_threshold), fit_on)
    split = DaySplit(validation_files or (), validation_share, test_share)
    workflow = None
    if fitted is not None:
        workflow, rules = load_clicks(fitted)
        _refuse_fitted_rules(("frequency_threshold", "fit_on"), fitted)
    days = find_days(criteo_path, file_pattern)
    with open_scheduler(scheduler, workers) as cluster:
        builder = CriteoBuilder(days, rules, split, cluster, Terminal(), on_bad_rows)
        summary = builder.build(output_path, fitted=workflow, overwrite=overwrite)
    for line in summary.lines():
        click.echo(line)
    seconds = time.monotonic() - started
    say_findings(output_path)
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
