"""``merlin-sim drift``: how far newer data are from older ones."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ....foundation.exceptions import MerlinSimError
from ...options.devices import settle_for_model
from ...options.readable_dataset import readable_dataset
from ...text_table import text_table

DRIFTED = 1
DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("reference", type=DIRECTORY)
@click.argument("new", type=DIRECTORY)
@click.option(
    "--feature_spec", default="feature_spec.yaml", show_default=True, help="Both specs' name."
)
@click.option(
    "--mapping", default="train", show_default=True, help="Which rows of both are compared."
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Rows of each that are looked at, from the first.",
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
@click.option(
    "--psi",
    type=click.FloatRange(min=0),
    default=0.25,
    show_default=True,
    help="Population stability index above which a feature has drifted.",
)
@click.option(
    "--ks",
    type=click.FloatRange(min=0, max=1),
    default=0.2,
    show_default=True,
    help="Kolmogorov and Smirnov's distance above which it has.",
)
@click.option(
    "--unknown",
    type=click.FloatRange(min=0, max=1),
    default=0.1,
    show_default=True,
    help="Rise of the share of ids unknown to REFERENCE above which it has.",
)
@click.option(
    "--label_rate",
    type=click.FloatRange(min=0, max=1),
    default=0.05,
    show_default=True,
    help="Change of the share of clicks above which labels have.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("drift"),
    show_default=True,
    help="Directory of drift.json and the page.",
)
def command(
    reference: Path,
    new: Path,
    feature_spec: str,
    mapping: str,
    rows: int,
    leave_out: str,
    reference_scores: Path | None,
    new_scores: Path | None,
    psi: float,
    ks: float,
    unknown: float,
    label_rate: float,
    output: Path,
) -> None:
    """Compare the dataset NEW with REFERENCE, feature by feature.

    Both are dataset directories of the same ids, of either layout; NEW may have more of them.
    Compared are ids, numbers, lengths of histories, labels and, of runs that saved them, scores.

    Exit code 0: nothing has drifted. 1: something has. 2: they cannot be compared.
    """
    if (reference_scores is None) != (new_scores is None):
        raise MerlinSimError(
            "`reference_scores` and `new_scores` belong together. "
            f"Received: {reference_scores} and {new_scores}"
        )
    places = [readable_dataset(path, feature_spec) for path in (reference, new)]
    settle_for_model()

    from ....deployment.drift.comparison import compare_datasets
    from ....deployment.drift.drift_page import HEAD, rows_of, write_drift
    from ....deployment.drift.findings import Bounds
    from ....foundation.progress import Terminal
    from ....schemas.dataset import DatasetDirectory

    older, newer = (DatasetDirectory.open(path, feature_spec=spec) for path, spec in places)
    for dataset in (older, newer):
        dataset.stored_files(mapping)
    bounds = Bounds(psi, ks, unknown, label_rate)
    names = [name for name in leave_out.split(",") if name]
    scores = None
    if reference_scores is not None and new_scores is not None:
        scores = reference_scores, new_scores
    found = compare_datasets(older, newer, mapping, rows, names, scores, bounds, Terminal())
    page = write_drift(output, found.findings, bounds, found.facts, found.curves)
    click.echo(text_table(HEAD, rows_of(found.findings)))
    for sentence in found.notes:
        click.echo(sentence)
    drifted = [finding.feature for finding in found.findings if finding.drifted]
    click.echo(f"drifted: {', '.join(drifted)}" if drifted else "nothing has drifted")
    click.echo(page)
    sys.exit(DRIFTED if drifted else 0)
