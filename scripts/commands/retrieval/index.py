"""``merlin-sim index``: the vectors of all items become an index."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ...options.shared_options import overwrite_directory


@click.command()
@click.argument("towers", type=Path)
@click.option("--output", type=Path, required=True, help="Directory of the index to make.")
@click.option(
    "--dataset_dir",
    type=Path,
    help="Dataset with users' histories, by whose vectors it is settled how much of the index is "
    "looked at. [default: by items, of which less is enough than of users]",
)
@overwrite_directory
def command(towers: Path, output: Path, dataset_dir: Path | None, overwrite: bool) -> None:
    """Make the index of all items that an exported two-tower model knows.

    The directory appears whole or not at all, holds a digest of its file, and opens for this model
    alone. docs/recommend.md says what is measured when it is made.
    """
    from ....serving.retrieval.index import QUERIES, import_faiss
    from ....serving.retrieval.users import DatasetHistories
    from ....serving.servable import Servable

    import_faiss()
    servable = Servable.open(towers)
    kept = None if dataset_dir is None else DatasetHistories(dataset_dir)

    from ....serving.retrieval.index import write_index
    from ....serving.retrieval.towers import Towers

    started = time.monotonic()
    loaded = Towers(servable)
    users = None if kept is None else loaded.users_by(kept.some(QUERIES))
    index = write_index(loaded, output, users=users, overwrite=overwrite, say=click.echo)
    seconds = time.monotonic() - started
    click.echo(
        f"{output}: {index.items:,} items in {index.groups:,} groups, of which "
        f"{index.looked_at:,} are looked at: {index.recall:.3f} of the nearest are found; "
        f"{seconds:.1f} s"
    )
