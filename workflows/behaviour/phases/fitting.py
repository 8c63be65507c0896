"""Vocabularies and numbers are fitted on the log, or the log is compared with fitted ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....foundation.exceptions import MerlinSimError
from ....schemas.item_table import COUNT, KEY
from ....schemas.stored_types import type_in_words
from ....schemas.users_layout import POPULARITY
from ...features.fitted_numbers import FittedNumbers
from ...vocabularies.fit_vocabularies import Train, fit_vocabularies
from ...vocabularies.item_changes import Changes
from ...vocabularies.vocabulary import Vocabularies
from ..fitted import FittedWorkflow
from ..histories import Histories
from ..kept_users import ITEMS, SHOWN, USERS, read_all
from ..rules import ALL_ROWS
from ..split import Split
from ..summary import Summary
from .build_settings import BuildSettings, Features


def fit(
    settings: BuildSettings,
    work: Path,
    vocabularies: Vocabularies,
    given: Features,
    split: Split | None,
    grown: FittedWorkflow | None,
    changes: Changes,
    summary: Summary,
) -> FittedNumbers:
    """Fit vocabularies and the numbers of features, or let fitted ones grow."""
    columns = settings.columns
    before = None if grown is None else grown.numbers
    train = None if split is None else Train(split, columns.user, columns.timestamp)
    with settings.narrator.phase("fitting vocabularies", 1) as report:
        try:
            summary.unknown, fitted = fit_vocabularies(
                columns, work, vocabularies, given, train, before, changes
            )
        except MerlinSimError as error:
            raise summary.stopped(f"{settings.files}: {error}") from error
        for name in columns.domains:
            summary.domains[name] = vocabularies.size(name)
        report(1, sum(summary.domains.values()))
    summary.fewer_buckets = fitted.fewer_buckets(columns.features)
    return fitted


def check_types_of_keys(settings: BuildSettings, work: Path, fitted: FittedWorkflow) -> None:
    """Refuse users and items of another type: none would be known."""
    for name, directory in ((settings.columns.item, ITEMS), (settings.columns.user, USERS)):
        expected = pa.array([fitted.vocabularies.first_key(name)]).type
        received = read_all(work / directory, [KEY])[KEY].type
        if expected != received:
            raise MerlinSimError(
                f"{settings.files}: column {name!r}: expected {type_in_words(expected)}, as the "
                f"workflow was fitted on, found {type_in_words(received)}."
            )


def count_unseen(
    settings: BuildSettings, work: Path, vocabularies: Vocabularies, summary: Summary
) -> None:
    """Count what the vocabularies do not know."""
    found = read_all(work / ITEMS, [KEY, SHOWN])
    items = found[KEY].combine_chunks()
    known = vocabularies.known(settings.columns.item, items.type)
    unseen = np.asarray(pc.is_null(pc.index_in(items, known)))
    summary.unseen_rows = int(np.asarray(found[SHOWN])[unseen].sum())
    summary.unseen_items = pc.count_distinct(items.filter(pa.array(unseen))).as_py()
    if unseen.all():
        raise summary.stopped(
            f"{settings.files}: column {settings.columns.item!r}: expected items that the fitted "
            f"workflow knows, found none: {summary.unseen_items:,} others.",
        )


def count_popularity(
    settings: BuildSettings,
    histories: Histories,
    vocabularies: Vocabularies,
    split: Split | None,
    grown: FittedWorkflow | None,
    summary: Summary,
) -> None:
    """Count each item's interactions in the rows that train: what negatives are drawn by."""
    if settings.rules.popularity_of == ALL_ROWS:
        return
    item = settings.columns.item
    counts = histories.count_trained(vocabularies.size(item), split)
    if grown is not None:
        before = grown.vocabularies.items(item).feature(COUNT)
        counts[: len(before)] += before
    vocabularies.set_counts(item, counts)
    refuse_a_single_item(settings, vocabularies, summary)


def refuse_a_single_item(
    settings: BuildSettings, vocabularies: Vocabularies, summary: Summary
) -> None:
    """Refuse a log that has no second item for a negative sample."""
    name = settings.columns.item
    counts = vocabularies.items(name).feature(COUNT)[1:]
    drawn = np.flatnonzero(counts if settings.rules.drawn_by == POPULARITY else counts + 1)
    if len(drawn) != 1:
        return
    item = vocabularies.keys(name).iloc[drawn[0]]
    raise summary.stopped(
        f"{settings.files}: column {name!r}: expected {settings.columns.history_in_words} "
        f"with at least two items, found only {item!r}: a negative history, and a negative "
        "sample that is drawn, needs another one. Is it the column of the items?",
    )
