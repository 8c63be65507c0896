"""Options that name the stages of a recommendation: towers, index, ranker, rules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...foundation.exceptions import MerlinSimError
from ...serving.settings import RETRIEVED
from .model_options import parse_own
from .shared_options import option

if TYPE_CHECKING:
    from ...serving.retrieval.recommender import Recommender

RULES = click.option(
    "--rules", "rules_path", type=Path, help="Rules of what may be recommended; YAML."
)
MOST_RETRIEVED = option(
    "--retrieved",
    type=click.IntRange(min=1, max=10_000),
    default=RETRIEVED,
    help="Items that are retrieved for a user.",
)


def index_option(required: bool) -> Callable[[Any], Any]:
    """Add ``--index``."""
    text = "The index of the towers' items."
    return click.option("--index", "index_path", type=Path, required=required, help=text)


def stage_options(function: Callable[..., Any]) -> Any:
    """Add what names the four stages; the command gets ``open_stages`` and ``facts``.

    Calling the former opens what the options name, checked before anything heavy is imported.
    """

    @functools.wraps(function)
    def with_stages(
        *,
        towers: Path,
        index_path: Path,
        ranker: Path | None,
        rules_path: Path | None,
        facts: tuple[str, ...],
        retrieved: int,
        **values: Any,
    ) -> Any:
        opening = functools.partial(_open, towers, index_path, ranker, rules_path, retrieved)
        return function(open_stages=opening, facts=parse_facts(facts), **values)

    towers = click.option("--towers", type=Path, required=True, help="An exported two-tower model.")
    ranker = click.option(
        "--ranker",
        type=Path,
        help="An exported model that scores what is retrieved. [default: none: the index's order]",
    )
    facts = click.option(
        "--fact",
        "facts",
        multiple=True,
        metavar="NAME=VALUE",
        help="A fact of the users that rules compare, or a field that a model reads; YAML.",
    )
    return towers(index_option(True)(ranker(RULES(facts(MOST_RETRIEVED(with_stages))))))


def _open(
    towers: Path, index: Path, ranker: Path | None, rules_path: Path | None, retrieved: int
) -> Recommender:
    from ...serving.retrieval.rules import Rules, read_rules
    from ...serving.servable import Servable

    rules = Rules() if rules_path is None else read_rules(rules_path)
    opened = Servable.open(towers)
    scored_by = None if ranker is None else Servable.open(ranker)

    from ...serving.retrieval.index import open_index
    from ...serving.retrieval.recommender import Recommender
    from ...serving.retrieval.towers import Towers

    loaded = Towers(opened)
    return Recommender(loaded, open_index(index, loaded), scored_by, rules, retrieved)


def parse_facts(facts: tuple[str, ...]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` facts; values are YAML.

    >>> parse_facts(("age=17", "market=DE"))
    {'age': 17, 'market': 'DE'}
    """
    try:
        return parse_own(facts)
    except MerlinSimError as error:
        raise MerlinSimError(str(error).replace("model_option", "fact")) from error
