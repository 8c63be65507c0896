"""The checks at the end of preprocessing: on some of the rows, and only what was found."""

from __future__ import annotations

from pathlib import Path

import click

MOST_ROWS = 500_000
"""Of each mapping; with more rows, the checks that need all of them are left out."""


def say_findings(directory: Path) -> None:
    """Report what `merlin-sim data check` would call a problem, a line each."""
    from ....schemas.dataset import DatasetDirectory
    from ....workflows.checks.check_dataset import DatasetCheck

    check = DatasetCheck(DatasetDirectory.open(directory), most_rows=MOST_ROWS)
    problems = [finding for finding in check.run() if finding.problem]
    for finding in problems:
        click.echo(f"look at this: {finding.where}: {finding.check}: {finding.says}")
    if problems or check.sampled:
        looked = "some rows were checked; " if check.sampled else ""
        click.echo(f"{looked}`merlin-sim data check --dataset_dir {directory}` reports all")
