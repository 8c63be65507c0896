"""``merlin-sim search-report``: how good a trained model's search stage is."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.devices import settle_for_model
from ..options.readable_dataset import readable_dataset
from ..options.shared_options import checkpoint_options, option


@click.command()
@checkpoint_options(required=True)
@click.option(
    "--category_feature",
    help="The target item's column by which a hard search would go; compares with one. "
    "[default: the model's own]",
)
@click.option(
    "--best",
    type=click.IntRange(min=1),
    help="How many positions by exact attention are to be found. "
    "[default: as many as the model's search keeps; of any number: 100]",
)
@option(
    "--rows",
    type=click.IntRange(min=1),
    default=100_000,
    help="Rows of test that are looked at, from the first.",
)
def command(
    load_checkpoint_path: Path,
    step: str,
    dataset_dir: Path,
    feature_spec: str,
    category_feature: str | None,
    best: int | None,
    rows: int,
) -> None:
    """Compare a model's search with exact target attention, by the length of the long history.

    Recall: of the best positions by exact attention, the share that the search keeps. Attention:
    the share of exact attention's weight on what it keeps. The model's own search comes first; soft
    search (the dot product's best) and hard search (the same category) are there to compare.
    """
    from ...schemas.dataset import DatasetDirectory

    dataset_dir, feature_spec = readable_dataset(dataset_dir, feature_spec)
    dataset = DatasetDirectory.open(dataset_dir, feature_spec=feature_spec)
    settle_for_model()

    from ...foundation.progress import Terminal
    from ...models.search_report import format_search_report, search_rows
    from ...parallel.checkpoints.checkpoint_store import choose_checkpoint
    from ...serving.triton.export import restore_model
    from ...training.checkpoints.run_state import check_run_metadata

    checkpoint = choose_checkpoint(load_checkpoint_path, step, click.echo, check_run_metadata)
    model = restore_model(checkpoint, dataset)
    found = search_rows(model, dataset, rows, category_feature, Terminal(), best)
    click.echo(format_search_report(found))
