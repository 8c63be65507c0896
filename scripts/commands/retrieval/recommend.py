"""``merlin-sim recommend``: users in, items and scores out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....foundation.exceptions import MerlinSimError
from ...options.model_options import parse_own
from ...options.store_options import store_option
from ...text_table import text_table

if TYPE_CHECKING:
    from ....serving.histories.store import HistoryStore
    from ....serving.retrieval.recommender import Answer

FORMATS = ("table", "json")


def stage_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names the four stages."""
    options = (
        click.option("--towers", type=Path, required=True, help="An exported two-tower model."),
        click.option(
            "--index", "index_path", type=Path, required=True, help="The index of its items."
        ),
        click.option(
            "--ranker",
            type=Path,
            help="An exported model that scores what is retrieved. [default: none: the index's "
            "order]",
        ),
        click.option("--rules", "rules_path", type=Path, help="What may be recommended; YAML."),
        click.option(
            "--fact",
            "facts",
            multiple=True,
            metavar="NAME=VALUE",
            help="A fact of the users that rules compare, or a field that a model reads; YAML.",
        ),
        click.option(
            "--retrieved",
            "retrieved",
            type=click.IntRange(min=1, max=10_000),
            default=500,
            show_default=True,
            help="Items that are retrieved for a user.",
        ),
    )
    return functools.reduce(lambda f, add: add(f), reversed(options), function)


@click.command()
@stage_options
@click.option("--dataset_dir", type=Path, help="Dataset with the users' histories.")
@store_option("In place of --dataset_dir, where they are kept: see `merlin-sim histories`.")
@click.option("--user", "users", multiple=True, required=True, help="A user's key, as in the log.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(
    towers: Path,
    index_path: Path,
    ranker: Path | None,
    dataset_dir: Path | None,
    histories: str | None,
    rules_path: Path | None,
    users: tuple[str, ...],
    facts: tuple[str, ...],
    top: int,
    retrieved: int,
    form: str,
) -> None:
    """Recommend items to users: retrieve, filter, score, order.

    A user of whom no history is kept gets popular items, and the answer says so.
    """
    from ....serving.retrieval.rules import Rules, read_rules
    from ....serving.retrieval.users import DatasetHistories, Histories
    from ....serving.servable import Servable

    if (dataset_dir is None) == (histories is None):
        raise click.UsageError("expected either --dataset_dir or --histories.")
    rules = Rules() if rules_path is None else read_rules(rules_path)
    given = parse_facts(facts)
    of_dataset = None if dataset_dir is None else DatasetHistories(dataset_dir)
    if of_dataset is not None:
        of_dataset.keys(users)  # refuses a user before anything is loaded
    store = None if histories is None else _opened(histories)
    opened = Servable.open(towers)
    scored_by = None if ranker is None else Servable.open(ranker)

    from ....serving.retrieval.index import open_index
    from ....serving.retrieval.recommender import Recommender
    from ....serving.retrieval.towers import Towers
    from ....serving.retrieval.users import StoreHistories

    loaded = Towers(opened)
    recommender = Recommender(loaded, open_index(index_path, loaded), scored_by, rules, retrieved)
    kept: Histories | None = of_dataset
    if store is not None:
        kept = StoreHistories(store, loaded.encoder)
    assert kept is not None
    keys = kept.keys(users)
    known = kept.of(keys)
    for user in keys:
        answer = recommender.recommend(known.get(user), top, given)
        click.echo(as_json(user, answer) if form == "json" else as_table(user, answer))


def _opened(histories: str) -> HistoryStore:
    from ....serving.histories.open_store import open_store

    return open_store(histories)


def parse_facts(facts: tuple[str, ...]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` facts; values are YAML.

    >>> parse_facts(("age=17", "market=DE"))
    {'age': 17, 'market': 'DE'}
    """
    try:
        return parse_own(facts)
    except MerlinSimError as error:
        raise MerlinSimError(str(error).replace("model_option", "fact")) from error


def as_json(user: Any, answer: Answer) -> str:
    """Write an answer as a line of JSON."""
    return json.dumps({"user": user, **answer.to_dict()}, ensure_ascii=False)


def as_table(user: Any, answer: Answer) -> str:
    """Write an answer for a terminal."""
    rows = [
        [str(place), str(item), "" if score is None else f"{score:.6f}"]
        for place, (item, score) in enumerate(zip(answer.items, answer.scores, strict=True), 1)
    ]
    found = (
        f"{answer.retrieved:,} items retrieved, {answer.kept:,} after the rules ({answer.source})"
    )
    return f"{user}: {found}\n{text_table(('', 'Item', 'Score'), rows) if rows else 'no item'}\n"
