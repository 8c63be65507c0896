"""``merlin-sim data check``: what of a dataset would spoil training, found before it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....workflows.checks.feature_counts import Bounds
from ...options.devices import settle_for_tables
from ...options.shared_options import option, spec_option
from ...text_table import print_table

if TYPE_CHECKING:
    from ....workflows.checks.feature_counts import Finding


@click.command()
@click.option("--dataset_dir", type=Path, required=True, help="Dataset directory to check.")
@spec_option
@option(
    "--largest_auc",
    type=click.FloatRange(0.5, 1),
    default=Bounds.feature_auc,
    help="A feature that predicts the label with a larger AUC, alone, gives it away.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(dataset_dir: Path, feature_spec: str, largest_auc: float, as_json: bool) -> None:
    """Look through a dataset for what would spoil training or its evaluation.

    Repeated rows, rows of test that train too, features that give the label away, ids that are
    never trained, constant columns, users without history. Ends with 0 where all is well, with 1
    where something was found, with 2 where the dataset cannot be read.
    """
    from ....foundation.progress import Reporter, Silence, Terminal
    from ....schemas.dataset import DatasetDirectory
    from ....workflows.checks.check_dataset import DatasetCheck

    settle_for_tables()
    dataset = DatasetDirectory.open(dataset_dir, feature_spec=feature_spec)
    reporter: Reporter = Terminal()
    if as_json:
        reporter = Silence()
    check = DatasetCheck(dataset, Bounds(feature_auc=largest_auc), reporter)
    findings = check.run()
    problems = [finding for finding in findings if finding.problem]
    if as_json:
        document = {
            "dataset": str(dataset_dir),
            "rows": check.rows,
            "problems": len(problems),
            "findings": [asdict(finding) for finding in findings],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(findings)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        click.echo(f"{dataset_dir}: {count if problems else 'nothing found'}")
    sys.exit(1 if problems else 0)


def _print(findings: list[Finding]) -> None:
    rows = []
    for finding in findings:
        bound = "" if finding.bound is None else f"{finding.bound:g}"
        sign = "!" if finding.problem else ""
        rows.append((sign, finding.check, finding.where, finding.says, bound))
    print_table(("", "check", "where", "found", "bound"), rows)
