"""``merlin-sim recommend-report``: how good recommendations are on clicks that were held out."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ...text_table import text_table
from .recommend import FORMATS, parse_facts, stage_options


@click.command()
@stage_options
@click.option("--dataset_dir", type=Path, required=True, help="Dataset with the clicks.")
@click.option("--mapping", default="test", show_default=True, help="Whose clicks are held out.")
@click.option(
    "--users",
    type=click.IntRange(min=1),
    default=2_000,
    show_default=True,
    help="Clicks that are asked for, drawn at random.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides which.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(
    towers: Path,
    index_path: Path,
    ranker: Path | None,
    dataset_dir: Path,
    rules_path: Path | None,
    facts: tuple[str, ...],
    retrieved: int,
    mapping: str,
    users: int,
    seed: int,
    form: str,
) -> None:
    """Measure how often answers have what a user took next, beside plainer ones.

    Every click of the dataset's test rows (or --mapping) has a history that ends before it. Answers
    are by popularity, by co-occurrence in the training rows, by the index and, with --ranker, of
    the ranker on as many popular items and of the whole.
    """
    from ....schemas.dataset import DatasetDirectory
    from ....serving.retrieval.rules import Rules, read_rules
    from ....serving.servable import Servable

    rules = Rules() if rules_path is None else read_rules(rules_path)
    given = parse_facts(facts)
    dataset = DatasetDirectory.open(dataset_dir)
    opened = Servable.open(towers)
    scored_by = None if ranker is None else Servable.open(ranker)

    from ....foundation.progress import Terminal
    from ....serving.retrieval.index import open_index
    from ....serving.retrieval.quality import Quality, format_quality
    from ....serving.retrieval.recommender import Recommender
    from ....serving.retrieval.towers import Towers

    loaded = Towers(opened)
    recommender = Recommender(loaded, open_index(index_path, loaded), scored_by, rules, retrieved)
    report = Quality(recommender, dataset, Terminal()).report(mapping, users, seed, given)
    if form == "json":
        click.echo(json.dumps(report.to_dict()))
        return
    click.echo(text_table(*format_quality(report)))
    click.echo(
        f"{report.users:,} clicks, {report.unknown:,} of them on unknown items; {report.items:,} "
        f"items; the index finds {report.index_recall:.4f} of the exact nearest 500"
    )
