"""``merlin-sim report``: figures of one or several runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("results_dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Directory of the report. [default: report/ in the first results directory]",
)
def command(results_dirs: tuple[Path, ...], output: Path | None) -> None:
    """Draw the figures of RESULTS_DIRS, several runs side by side, as HTML, markdown and PNGs.

    Runs that differ in their seed alone are one setting: the page shows mean and spread of each,
    and whether what it differs from the first is more than noise. Runs with --save_scores show that
    best.
    """
    from ...foundation.progress import Terminal
    from ...training.reports.report import write_report

    report = write_report(list(results_dirs), output, Terminal())
    for sentence in report.sentences:
        click.echo(sentence)
    click.echo(report.page)
