"""All items that a servable knows: raw keys by id, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import COUNT
from ...workflows.known_values import known_rows
from ...workflows.vocabularies import Vocabularies
from ..servable import Servable, ServableError
from .rules import Rules, UserFact

MOST_POPULAR = 10_000
"""How many of the most popular items are at hand for a user of whom nothing is known."""


@dataclass(frozen=True)
class Catalogue:
    """The items of one servable."""

    domain: str
    """The item's domain of ids."""
    features: tuple[str, ...]
    """The domains of the item's further features."""
    keys: npt.NDArray[np.object_]
    """[items + 1] Raw keys by id; None for id 0."""
    counts: npt.NDArray[np.int64] | None
    """[items + 1] How often each was taken when the workflow was fitted; None if not known."""

    @classmethod
    def of(cls, servable: Servable) -> Catalogue:
        """Read the vocabulary of items."""
        item, *features = servable.columns.targets
        path = servable.vocabulary(item.domain)
        if path is None:
            raise ServableError(
                f"{servable.path}: expected a vocabulary of items, categories/{item.domain}.parquet"
                "; there is none. Only `merlin-sim preprocess` writes datasets with one."
            )
        vocabularies = Vocabularies(path.parent)
        keys = np.concatenate([[None], vocabularies.keys(item.domain).to_numpy(object)])
        has_counts = COUNT in pq.read_schema(path).names
        counts = vocabularies.items(item.domain).counts() if has_counts else None
        return cls(item.domain, tuple(f.domain for f in features), keys, counts)

    @cached_property
    def popular(self) -> npt.NDArray[np.int64]:
        """Ids of the most popular items, the most popular first; those of one count by id."""
        if self.counts is None:
            return np.empty(0, np.int64)
        order = np.argsort(-self.counts[1:], kind="stable")[:MOST_POPULAR] + 1
        taken: npt.NDArray[np.int64] = order[self.counts[order] > 0]
        return taken


Ids = npt.NDArray[np.int64]


class ItemFacts:
    """Facts of items that rules compare: a column, [items + 1], for each name that they use."""

    def __init__(self, rules: Rules, servable: Servable, catalogue: Catalogue) -> None:
        names = dict.fromkeys([*(rule.column for rule in rules.filters), *rules.caps])
        of_file = _file_facts(rules.items, catalogue) if rules.items is not None else {}
        self.rules = rules
        self.columns: dict[str, pa.Array] = {}
        for name in names:
            if name in of_file:
                self.columns[name] = of_file[name]
            elif name in catalogue.features:
                self.columns[name] = _feature_facts(name, servable, catalogue)
            else:
                known = ", ".join([*of_file, *catalogue.features]) or "none"
                raise MerlinSimError(
                    f"a rule is about the column {name!r}, of which nothing is known. Of items are "
                    f"known: {known}."
                )
        for rule in rules.filters:
            if not isinstance(rule.value, UserFact):
                rule.operand(rule.value, self.columns[rule.column].type)
        self._codes = {name: _codes(self.columns[name]) for name in rules.caps}

    def keep(self, ids: Ids, user: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Say which items, [items], pass every filter."""
        kept = np.ones(len(ids), bool)
        for rule in self.rules.filters:
            kept &= rule.keep(self.columns[rule.column].take(pa.array(ids)), user)
        return kept

    def capped(self, ids: Ids) -> list[tuple[Ids, int]]:
        """Return, for each cap, which value each item has, and how many of one there may be.

        A value that is missing is -1 and never capped.
        """
        return [(self._codes[name][ids], most) for name, most in self.rules.caps.items()]


def _known(name: str, facts: pa.Array) -> pa.Array:
    """Return facts with null where one is missing, whether by an empty text, NaN or its key."""
    if pa.types.is_dictionary(facts.type):
        facts = facts.dictionary_decode()
    missing = np.asarray(pc.is_null(facts, nan_is_null=True))
    known = known_rows(name, pa.table({name: facts})) & ~missing
    return pc.if_else(pa.array(known), facts, pa.scalar(None, facts.type))


def _codes(facts: pa.Array) -> Ids:
    codes = facts.dictionary_encode().indices
    found: Ids = np.asarray(pc.fill_null(codes, -1)).astype(np.int64)
    return found


def _feature_facts(name: str, servable: Servable, catalogue: Catalogue) -> pa.Array:
    """Return the raw key of a feature of each item."""
    path = servable.vocabulary(name)
    item = servable.vocabulary(catalogue.domain)
    if path is None or item is None or name not in pq.read_schema(item).names:
        raise MerlinSimError(
            f"a rule is about {name!r}, which {servable.path} does not know of its items. A file "
            "of facts (`items`) may have it."
        )
    of_items = Vocabularies(item.parent).items(catalogue.domain).feature(name)
    keys = _known(name, pa.array(Vocabularies(path.parent).keys(name)))
    # The first key has id 1; an item without one has id 0.
    return keys.take(pa.array(of_items - 1, mask=of_items == 0))


def _file_facts(path: Path, catalogue: Catalogue) -> dict[str, pa.Array]:
    """Read a file of facts: the item's key under its domain's name, and further columns."""
    keys = pa.array(catalogue.keys[1:])
    # Of a text of digits the zeros in front are part of the key.
    as_keys = pa_csv.ConvertOptions(column_types={catalogue.domain: keys.type})
    is_csv = path.suffix == ".csv"
    try:
        table = pa_csv.read_csv(path, convert_options=as_keys) if is_csv else pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise MerlinSimError(f"{path}: cannot be read: {error}") from error
    if catalogue.domain not in table.column_names:
        raise MerlinSimError(
            f"{path}: expected a column {catalogue.domain!r} with the items' keys. "
            f"Received: {', '.join(table.column_names)}."
        )
    try:
        given = table[catalogue.domain].combine_chunks().cast(keys.type)
    except pa.ArrowInvalid as error:
        raise MerlinSimError(
            f"{path}: {catalogue.domain}: expected {keys.type}: {error}"
        ) from error
    if len(pc.unique(given)) < len(given):
        twice = pc.value_counts(given).to_pylist()
        key = next(entry["values"] for entry in twice if entry["counts"] > 1)
        raise MerlinSimError(f"{path}: expected one row for each item. {key!r} has several.")
    rows = pc.index_in(keys, value_set=given)
    rows = pa.concat_arrays([pa.nulls(1, rows.type), rows])  # id 0
    return {
        name: _known(name, table[name].combine_chunks()).take(rows)
        for name in table.column_names
        if name != catalogue.domain
    }
