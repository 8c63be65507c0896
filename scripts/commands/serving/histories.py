"""``merlin-sim histories``: users' histories, kept where requests are answered."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....foundation.exceptions import MerlinSimError
from ....foundation.requests import RequestError
from ....serving.histories.open_store import open_store, shown_store
from ....serving.histories.store import History, Interaction, key_text, parse_interaction
from ...options.devices import settle_for_tables
from ...options.preprocess_options import bad_rows_option, names
from ...options.shared_options import option
from ...options.store_options import StoreAddress
from ...text_table import text_table

if TYPE_CHECKING:
    from ....workflows.behaviour_columns import BehaviourColumns
    from ....workflows.table_log import TableLog

AT_ONCE = 1_000
"""Lines of a file that are kept together."""
store_argument = click.argument("store", type=StoreAddress())


@click.group()
def command() -> None:
    """Keep users' histories where requests are answered, so that requests need not carry them.

    STORE is a file (SQLite), or a Redis server: redis://127.0.0.1:6379/0. An address with a
    password stands in a file or in the environment: @FILE or env:NAME.
    """


@command.command()
@store_argument
@click.argument("files", nargs=-1, type=Path)
@click.option(
    "--dataset_dir",
    "dataset",
    type=Path,
    help="Take what this dataset keeps of its users' histories.",
)
@click.option("--fitted", type=Path, help="Take the columns that this dataset was made of.")
@click.option("--user_column", help="Column of the user's key.")
@click.option("--item_column", help="Column of the item's key.")
@click.option(
    "--timestamp_column",
    help="When: numbers, which stay as they are, or dates and times, which become seconds.",
)
@click.option("--label_column", help="1 where the item was taken: the other rows are left out.")
@click.option("--behaviour_column", help="Column of behaviours, where the log has several.")
@click.option(
    "--history_behaviours",
    callback=names,
    help="Behaviours that make history, between commas.",
)
@bad_rows_option
@click.option(
    "--keep_interactions",
    "keep",
    type=click.IntRange(min=1),
    help="Newest interactions to keep of a user. [default: all]",
)
@click.option("--overwrite", is_flag=True, help="Replace what STORE holds.")
def load(
    store: str,
    files: tuple[Path, ...],
    dataset: Path | None,
    fitted: Path | None,
    on_bad_rows: str,
    keep: int | None,
    overwrite: bool,
    **columns: Any,
) -> None:
    """Fill STORE from a log (CSV or parquet FILES), or from a dataset.

    It holds all of it or, if this is stopped or killed, what it held before.
    """
    settle_for_tables()

    from ....foundation.progress import Terminal
    from ....serving.histories.loading import read_dataset, read_log
    from ....workflows.text_lines import BadRows

    if bool(files) == bool(dataset):
        raise click.UsageError("Expected FILES of a log, or --dataset_dir: one of the two.")
    started = time.monotonic()
    bad: list[BadRows] = []
    reporter = Terminal()
    if dataset is None:
        source = _log(files, columns, fitted)  # refused, if it is, before the store is made
        pieces = read_log(source, on_bad_rows, bad, reporter)
    else:
        if fitted or any(columns.values()):
            raise click.UsageError("--dataset_dir knows its columns: leave the others out.")
        pieces = read_dataset(dataset, reporter)
    opened = open_store(store, keep=keep, create=True)
    rows = 0
    with opened.load(overwrite) as filling:
        for piece in pieces:
            filling.append(piece)
            rows += len(piece)
        if not rows:
            named = ", ".join(map(str, files)) or dataset
            raise MerlinSimError(f"{named}: expected interactions, found none.")
    for problem in bad:
        click.echo(problem.describe())
    seconds = time.monotonic() - started
    click.echo(
        f"{shown_store(store)}: {rows:,} interactions of {opened.users():,} users in "
        f"{seconds:.1f} s"
    )


def _log(files: tuple[Path, ...], given: dict[str, Any], fitted: Path | None) -> TableLog:
    """Open a log, of which only what makes histories is read."""
    from ....workflows.feature import NO_FEATURES
    from ....workflows.preprocess.fitted import FittedWorkflow
    from ....workflows.table_log import TableLog

    if fitted is None:
        source = TableLog(files, _columns(given))
        source.blocks()
        return source
    if any(given.values()):
        raise click.UsageError("--fitted knows the columns: leave the others out.")
    workflow = FittedWorkflow.load(fitted)
    columns = replace(workflow.columns, user_features=(), item_features=(), features=NO_FEATURES)
    source = TableLog(files, columns)
    source.blocks()
    types = {name: source.type_of(name) for name in (columns.user, columns.item)}
    workflow.check_types_of_keys(", ".join(map(str, files)), types)
    return source


def _columns(given: dict[str, Any]) -> BehaviourColumns:
    """Take the columns of a log that options name."""
    from ....workflows.behaviour_columns import BehaviourColumns

    named = {name.removesuffix("_column"): value for name, value in given.items()}
    for name in ("user", "item", "timestamp"):
        if named[name] is None:
            raise click.UsageError(f"Missing option '--{name}_column', or '--fitted'.")
    named["history_behaviours"] = named["history_behaviours"] or ()
    if bool(named["behaviour"]) != bool(named["history_behaviours"]):
        raise click.UsageError("--behaviour_column and --history_behaviours need each other.")
    return BehaviourColumns(**named)


@command.command()
@store_argument
@click.option(
    "--input",
    "source",
    type=click.File("rb"),
    default="-",
    help='JSON lines: {"user": ..., "item": ..., "time": ...}. [default: standard input]',
)
def append(store: str, source: Iterable[bytes]) -> None:
    """Append interactions to STORE; prints how many, when they are kept."""
    opened = open_store(store)
    count = 0
    try:
        for interactions in _pieces(source):
            opened.append(interactions)
            count += len(interactions)
    except MerlinSimError as error:
        raise MerlinSimError(f"{error} {count:,} interactions before are kept.") from error
    click.echo(f"{count:,} interactions")


def _pieces(lines: Iterable[bytes]) -> Iterator[list[Interaction]]:
    piece: list[Interaction] = []
    for number, line in enumerate(lines, start=1):
        try:
            piece.append(parse_interaction(json.loads(line)))
        except (ValueError, RecursionError, RequestError) as error:
            if piece:
                yield piece
            raise MerlinSimError(f"line {number}: {error}.") from error
        if len(piece) == AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece


@command.command()
@store_argument
@click.option("--user", required=True, help="The user's key; as JSON where it is a number.")
@option("--newest", default=20, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as a raw event has it.")
def show(store: str, user: str, newest: int, as_json: bool) -> None:
    """Show the newest interactions of a user, oldest first."""
    opened = open_store(store)
    found = (opened.read(key, newest) for key in _keys(user))
    history = next((history for history in found if history.items), History([], []))
    if as_json:
        click.echo(json.dumps({"history": history.items, "times": history.times}))
    elif history.items:
        rows = [(json.dumps(item), _shown(time)) for item, time in zip(*history, strict=True)]
        click.echo(text_table(("Item", "Time"), rows))
    else:
        click.echo(f"{shown_store(store)}: no interactions of user {user}", err=True)
        sys.exit(1)


@command.command()
@store_argument
@click.option("--user", required=True, help="The user's key; as JSON where it is a number.")
def delete(store: str, user: str) -> None:
    """Forget a user: remove all interactions of one from STORE; prints how many they were."""
    opened = open_store(store)
    count = next(filter(None, map(opened.delete, _keys(user))), 0)
    opened.close()
    if not count:
        click.echo(f"{shown_store(store)}: no interactions of user {user}", err=True)
        sys.exit(1)
    click.echo(f"{count:,} interactions removed")


def _keys(user: str) -> list[str]:
    """What a store may call a user: a text, or where it is one a number."""
    return [key_text(user, "user"), *([user] if user.removeprefix("-").isdigit() else [])]


def _shown(time: float | None) -> str:
    return "" if time is None else f"{time}"
