"""``merlin-sim recommend``: users in, items and scores out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...options.recommend_options import stage_options
from ...options.shared_options import option
from ...options.store_options import store_option
from ...text_table import text_table

if TYPE_CHECKING:
    from ....serving.retrieval.recommender import Answer, Recommender


@click.command()
@stage_options
@click.option("--dataset_dir", type=Path, help="Dataset with the users' histories.")
@store_option(
    "Store of the users' histories, in place of --dataset_dir: see `merlin-sim histories`."
)
@click.option("--user", "users", multiple=True, required=True, help="A user's key, as in the log.")
@option("--top", type=click.IntRange(min=1), default=20)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each user.")
def command(
    open_stages: Callable[[], Recommender],
    facts: dict[str, Any],
    dataset_dir: Path | None,
    histories: str | None,
    users: tuple[str, ...],
    top: int,
    as_json: bool,
) -> None:
    """Recommend items to users: retrieve, filter, score, order.

    A user of whom no history is kept gets popular items, and the answer says so.
    """
    from ....serving.histories.open_store import open_store
    from ....serving.retrieval.users import DatasetHistories, StoreHistories

    if (dataset_dir is None) == (histories is None):
        raise click.UsageError("expected either --dataset_dir or --histories.")
    of_dataset = None if dataset_dir is None else DatasetHistories(dataset_dir)
    if of_dataset is not None:
        of_dataset.keys(users)  # refuses a user before anything is loaded
    store = None if histories is None else open_store(histories)
    recommender = open_stages()
    kept: DatasetHistories | StoreHistories | None = of_dataset
    if store is not None:
        kept = StoreHistories(store, recommender.towers.encoder)
    assert kept is not None
    keys = kept.keys(users)
    known = kept.of(keys)
    for user in keys:
        answer = recommender.recommend(known.get(user), top, facts)
        click.echo(json_of(user, answer) if as_json else table_of(user, answer))


def json_of(user: Any, answer: Answer) -> str:
    """Write an answer as a line of JSON."""
    return json.dumps({"user": user, **answer.to_dict()}, ensure_ascii=False)


def table_of(user: Any, answer: Answer) -> str:
    """Write an answer for a terminal."""
    rows = [
        [str(number), str(item), "" if score is None else f"{score:.6f}"]
        for number, (item, score) in enumerate(zip(answer.items, answer.scores, strict=True), 1)
    ]
    found = (
        f"{answer.retrieved:,} items retrieved, {answer.kept:,} after the rules ({answer.source})"
    )
    return f"{user}: {found}\n{text_table(('', 'Item', 'Score'), rows) if rows else 'no item'}\n"
