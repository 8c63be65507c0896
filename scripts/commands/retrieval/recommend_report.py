"""``merlin-sim recommend-report``: how good recommendations are on clicks that were held out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...options.recommend_options import stage_options
from ...options.shared_options import option
from ...text_table import text_table

if TYPE_CHECKING:
    from ....serving.retrieval.recommender import Recommender


@click.command()
@stage_options
@click.option("--dataset_dir", type=Path, required=True, help="Dataset with the clicks.")
@option("--mapping", default="test", help="Mapping whose clicks are held out.")
@option(
    "--clicks",
    type=click.IntRange(min=1),
    default=2_000,
    help="Clicks that are asked for, drawn at random.",
)
@option("--seed", type=click.IntRange(min=0), default=1, help="Seed of that draw.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    open_stages: Callable[[], Recommender],
    facts: dict[str, Any],
    dataset_dir: Path,
    mapping: str,
    clicks: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure how often answers have what a user took next, and how often plainer ones do.

    Every click of the dataset's test rows (or --mapping) has a history that ends before it. Answers
    are by popularity, by co-occurrence in the training rows, by the index and, with --ranker, of
    the ranker on as many popular items and of the whole.
    """
    from ....foundation.progress import Terminal
    from ....schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(dataset_dir)
    recommender = open_stages()

    from ....serving.retrieval.quality import Quality, format_quality

    report = Quality(recommender, dataset, Terminal()).report(mapping, clicks, seed, facts)
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    click.echo(text_table(*format_quality(report)))
    click.echo(
        f"{report.users:,} clicks, {report.unknown:,} of them on unknown items; {report.items:,} "
        f"items; the index finds {report.index_recall:.4f} of the exact nearest 500"
    )
