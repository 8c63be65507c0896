"""``merlin-sim drift``: how far newer data are from older ones."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ....foundation.exceptions import MerlinSimError
from ....serving.deployment.drift_findings import DriftBounds
from ...options.devices import settle_for_model
from ...options.readable_dataset import readable_dataset
from ...options.shared_options import option, options_of
from ...text_table import text_table

DRIFTED = 1
DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.option(
    "--reference",
    type=DIRECTORY,
    required=True,
    help="The older dataset directory: what the newer data are compared with.",
)
@click.option("--dataset_dir", type=DIRECTORY, help="The newer dataset directory.")
@click.option(
    "--requests",
    type=DIRECTORY,
    help="In place of --dataset_dir: what `serve --log_requests` kept, compared with the dataset "
    "that the served model was trained on.",
)
@option("--feature_spec", default="feature_spec.yaml", help="Both specs' name.")
@option("--mapping", default="train", help="Mapping of both whose rows are compared.")
@option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    help="Rows of each that are looked at, from the first; of requests the newest.",
)
@click.option(
    "--leave_out",
    default="",
    help="Columns that are not compared, between commas: of users, where others come every day.",
)
@click.option(
    "--reference_scores",
    type=DIRECTORY,
    help="Results directory of a run with --save_scores, on older test data.",
)
@click.option("--new_scores", type=DIRECTORY, help="The same on newer test data.")
@options_of(DriftBounds, "bounds")
@option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("drift"),
    help="Directory of drift.json and the page.",
)
def command(
    reference: Path,
    dataset_dir: Path | None,
    requests: Path | None,
    feature_spec: str,
    mapping: str,
    rows: int,
    leave_out: str,
    reference_scores: Path | None,
    new_scores: Path | None,
    bounds: DriftBounds,
    output: Path,
) -> None:
    """Compare newer data with those of --reference, feature by feature.

    Both are dataset directories of the same ids, of either layout; the newer may have more of them.
    Or compare what a server logged, --requests, whose scores --reference_scores is for. Compared
    are ids, numbers, lengths of histories, labels and, of runs that saved them, scores.

    Exit code 0: nothing has drifted. 1: something has. 2: they cannot be compared.
    """
    if (dataset_dir is None) == (requests is None):
        raise click.UsageError("expected either --dataset_dir or --requests.")
    if requests is not None and new_scores is not None:
        raise click.UsageError("expected no --new_scores with --requests, which have theirs.")
    if requests is None and (reference_scores is None) != (new_scores is None):
        raise MerlinSimError(
            "`reference_scores` and `new_scores` belong together. "
            f"Received: {reference_scores} and {new_scores}"
        )
    names = [name for name in leave_out.split(",") if name]
    opened = [readable_dataset(p, feature_spec) for p in (reference, dataset_dir) if p]
    settle_for_model()

    from ....foundation.progress import Terminal
    from ....schemas.dataset import DatasetDirectory
    from ....serving.deployment.drift import Drift
    from ....serving.deployment.drift_page import HEAD, rows_of, write_drift

    datasets = [DatasetDirectory.open(path, feature_spec=spec) for path, spec in opened]
    for dataset in datasets:
        dataset.stored_files(mapping)
    drift = Drift(mapping, rows, names, bounds, Terminal())
    found = drift.compare(datasets[0], requests or datasets[1], reference_scores, new_scores)
    page = write_drift(output, found.findings, bounds, found.metadata, found.curves)
    click.echo(text_table(HEAD, rows_of(found.findings)))
    for sentence in found.notes:
        click.echo(sentence)
    drifted = [finding.feature for finding in found.findings if finding.drifted]
    click.echo(f"drifted: {', '.join(drifted)}" if drifted else "nothing has drifted")
    click.echo(page)
    sys.exit(DRIFTED if drifted else 0)
