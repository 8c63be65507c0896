"""Numbers, vectors and lists of raw events become what the model reads, as the workflow makes them.

Of a dataset that `preprocess log --features` made they stand in an event as in the log, under the
log's names, and an item that the dataset knows brings its own along. Of any other dataset they are
what the model reads, under the names of the dataset's columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..foundation.requests import RequestError, check_storable, refuse_all
from ..schemas.item_table import ItemTable
from ..schemas.recency import NEVER, SECONDS_OF_DAY, days_of, log_days_since
from ..workflows.feature import (
    INTERACTION,
    ITEM,
    LIFETIME,
    RECENCY,
    TARGET_SUFFIX,
    UNITS,
    USER,
    AnyFeature,
    Cross,
    Encoding,
    FeatureSet,
    Number,
    Time,
    Vector,
)
from ..workflows.fitted_numbers import FittedNumbers, cross_ids
from ..workflows.raw_features import fits_feature, read_feature, read_unfit
from ..workflows.raw_values import can_be_number, keys_of_lists, matrix_of
from ..workflows.times import parsed_seconds
from .event import csv_numbers, number_of
from .lookups import TRIED, Lookup, a_number
from .servable import ServedColumn, ServedColumns

Array = npt.NDArray[Any]
Raw = Mapping[str, Any]


A_DATE, A_MOMENT = "2024-06-01 18:30:00", 1_717_266_600
"""A date and time for an example, and its seconds since 1970."""


class PlainNumbers:
    """Numbers as the model reads them: each has to be given."""

    def __init__(self, columns: ServedColumns) -> None:
        self._user = {column.name: column for column in columns.user_numbers}
        self._items = {c.name: c for c in (*columns.target_lists, *columns.target_numbers)}
        self.user_fields = tuple(self._user)
        self.item_fields = tuple(self._items)

    def user_examples(self) -> dict[str, Any]:
        """Give of each field of the user a value that is accepted."""
        return {name: _plain_example(column) for name, column in self._user.items()}

    def item_examples(self) -> dict[str, Any]:
        """Give the same of each field of an item."""
        return {name: _plain_example(column) for name, column in self._items.items()}

    def from_cell(self, field: str, cell: str) -> Any:
        """Read a cell of CSV."""
        numbers = csv_numbers(cell, field)
        if self._user[field].width is not None:
            return numbers
        return numbers[0] if len(numbers) == 1 else None

    def of_user(self, raw: Raw) -> dict[str, Array]:
        """Read the numbers of the user: column -> [1] or [1, width]."""
        return _plain_columns(self._user, [(raw, "")])

    reads_whole_history: bool = False
    """Whether anything is made of what a history has beyond the model's length."""

    def of_history(self, ids: Sequence[Array], history: Sequence[Array]) -> dict[str, Array]:
        """Count nothing: what a model reads of a candidate is given with it."""
        return {}

    def of_items(
        self,
        users: Mapping[str, Array],
        ids: Sequence[Array],
        given: Sequence[Raw],
        where: str,
        seconds: float | None = None,
    ) -> dict[str, Array]:
        """Read what candidates bring along: column -> [candidates] or [candidates, width].

        Args:
            users: The user's ids by column.
            ids: Those of the candidates, feature by feature.
            given: What stands in each candidate's object.
            where: What the candidates are, for messages.
            seconds: The time since 1970; None for the day after the newest row of the fitted log.
        """
        return _plain_columns(self._items, [(raw, f"{where}[{i}].") for i, raw in enumerate(given)])


def _plain_example(column: ServedColumn) -> Any:
    if column.width is None:
        return TRIED[0]
    if column.largest_id is None:
        return [TRIED[0]] * column.width
    return list(range(1, min(2, column.width, column.largest_id) + 1))


def _plain_columns(
    columns: Mapping[str, ServedColumn], rows: Sequence[tuple[Raw, str]]
) -> dict[str, Array]:
    """Read columns of rows, each with what the names of its fields begin with in messages."""
    problems: list[str] = []
    found = {}
    for name, column in columns.items():
        read = []
        for raw, where in rows:
            try:
                read.append(_plain(column, raw.get(name), where + name))
            except RequestError as error:
                problems.append(str(error))
        if not problems:
            found[name] = np.array(read, column.dtype).reshape(len(rows), *column.shape[1:])
    refuse_all(problems)
    return found


def _plain(column: ServedColumn, value: Any, where: str) -> Any:
    if column.width is None:
        return number_of(value, where)
    if not isinstance(value, list):
        raise RequestError(f"{where}: expected a list, received {value!r:.60}")
    numbers = [number_of(entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if column.largest_id is None:
        if len(numbers) != column.width:
            raise RequestError(f"{where}: expected {column.width} numbers, received {len(numbers)}")
        return numbers
    ids = [number for number in numbers if number in range(1, column.largest_id + 1)]
    return (ids + [0] * column.width)[: column.width]


class WorkflowNumbers:
    """Numbers as the log has them."""

    def __init__(
        self,
        features: FeatureSet,
        fitted: FittedNumbers,
        timestamp: str,
        items: ItemTable,
        lists: Mapping[str, Lookup],
        columns: ServedColumns,
    ) -> None:
        self._features = features
        self._fitted = fitted
        self._timestamp = timestamp
        self._lookups = lists
        self._domains = [column.domain for column in columns.targets]
        self._of_user = [f for of in (USER, INTERACTION) for f in _plain_features(features, of)]
        self._of_item = _plain_features(features, ITEM)
        self._dtypes = {
            column.name: column.dtype for column in (*columns.of_user, *columns.of_target)
        }
        lagged = (name for number in features.lagging for name in number.lagged)
        self.user_fields = (*(feature.name for feature in self._of_user), *lagged)
        self.item_fields = tuple(feature.name for feature in self._of_item)
        self._encoded: dict[str, tuple[int, Array]] = {}
        self._days: dict[str, tuple[int, Array, Array]] = {}
        for encoding in features.encodings:
            self._add_encoding(encoding, items, columns)
        self._known: dict[str, Array] = {}
        for name in features.numbers(ITEM):
            self._known[name] = items.numbers(name)
        for vector in features.vectors:
            self._known[vector.name] = items.vectors(vector.name, vector.size)
        for keys in features.lists:
            self._known[keys.name] = items.lists(keys.name, keys.longest)

    def user_examples(self) -> dict[str, Any]:
        """Give of each field of the user a value that is accepted."""
        lagged = {name: n for n in self._features.lagging for name in n.lagged}
        return {
            **{feature.name: self._example(feature) for feature in self._of_user},
            **{name: self._example(number) for name, number in lagged.items()},
        }

    def item_examples(self) -> dict[str, Any]:
        """Give the same of each field of an item."""
        return {feature.name: self._example(feature) for feature in self._of_item}

    def _example(self, feature: AnyFeature) -> Any:
        if isinstance(feature, Number):
            return a_number(lambda number: not self._fitted.unfit(feature, np.array([number]))[0])
        if isinstance(feature, Time):
            return A_DATE if feature.unit is None else int(A_MOMENT / UNITS[feature.unit])
        if isinstance(feature, Vector):
            return [TRIED[0]] * feature.size
        lookup = self._lookups[feature.name]
        return list(dict.fromkeys(lookup.example(which) for which in range(2)))

    def from_cell(self, field: str, cell: str) -> Any:
        """Leave a cell of CSV as it is: the workflow reads the log's, too."""
        return cell or None

    def of_user(self, raw: Raw) -> dict[str, Array]:
        """Read the numbers of the user: column -> [1]."""
        found: dict[str, Array] = {}
        for feature in self._of_user:
            made = self._made(feature, [raw.get(feature.name)], [feature.name], 1)
            found |= {name: values.astype(self._dtypes[name]) for name, values in made.items()}
        for number in self._features.lagging:
            for name in number.lagged:
                value = raw.get(name)
                values = np.zeros(1)  # there was no such interaction
                if value is not None:
                    values = self._made(number, [value], [name], 1)[number.name]
                found[name] = values.astype(self._dtypes[name])
        return found

    def of_items(
        self,
        users: Mapping[str, Array],
        ids: Sequence[Array],
        given: Sequence[Raw],
        where: str,
        seconds: float | None = None,
    ) -> dict[str, Array]:
        """Give what candidates bring along: their own, or what the workflow knows of them.

        The days since a key was last seen are those from the last day on which the fitted log has
        it, before the day of ``seconds``: as in training, where that is later than the log.
        """
        item = ids[0]
        found = {name: rows[item] for name, rows in self._known.items()}
        for name, (domain, of_key) in self._encoded.items():
            found[name] = of_key[ids[domain]]
        if seconds is None:
            seconds = (self._fitted.counted_until or 0.0) + SECONDS_OF_DAY
        for name, (domain, *days) in self._days.items():
            last, before = (of_key[ids[domain]] for of_key in days)
            found[name] = log_days_since(days_of(seconds), last, before)
        for feature in self._of_item:
            own = [i for i, raw in enumerate(given) if feature.name in raw]
            unknown = [i for i in np.flatnonzero(item == 0).tolist() if i not in set(own)]
            chosen = [*own, *unknown]
            if not chosen:
                continue
            values = [given[i].get(feature.name) for i in chosen]
            locations = [f"{where}[{i}].{feature.name}" for i in chosen]
            for name, rows in self._made(feature, values, locations, len(own)).items():
                found[name][chosen] = rows
        for cross in self._features.crosses:
            found[cross.name] = self._cross(cross, users, ids)
        named = {
            name if name in self._features.target_lists else name + TARGET_SUFFIX: rows
            for name, rows in found.items()
        }
        return {name: rows.astype(self._dtypes[name]) for name, rows in named.items()}

    @property
    def reads_whole_history(self) -> bool:
        """Whether anything is made of what a history has beyond the model's length."""
        return bool(self._features.lifetime_counts)

    def of_history(self, ids: Sequence[Array], history: Sequence[Array]) -> dict[str, Array]:
        """Count how often a user's whole history has candidates' features: column -> [candidates].

        Of the history, feature by feature like the candidates, there are the items that are known.
        """
        found = {}
        for column in self._features.lifetime_counts:
            domain, name = self._domains.index(column), column + LIFETIME + TARGET_SUFFIX
            known, counts = np.unique(history[domain], return_counts=True)
            counted = np.zeros(
                max(1, int(ids[domain].max(initial=0)), int(known.max(initial=0))) + 1
            )
            counted[known] = np.log1p(counts)
            values = np.where(ids[0] > 0, counted[ids[domain]], 0.0)
            found[name] = values.astype(self._dtypes[name])
        return found

    def _cross(self, cross: Cross, users: Mapping[str, Array], ids: Sequence[Array]) -> Array:
        of_item = dict(zip(self._domains, ids, strict=True))
        count = len(ids[0])
        crossed = [
            np.repeat(users[name], count) if name in users else of_item[name]
            for name in cross.columns
        ]
        made: Array = cross_ids(cross, crossed)[:, np.newaxis]
        return made

    def _add_encoding(self, encoding: Encoding, items: ItemTable, columns: ServedColumns) -> None:
        """Take what fitted rows say of each id of a key; of an unknown id nothing is known."""
        domain = self._domains.index(encoding.column)
        size = int(columns.targets[domain].largest_id or 0) + 1
        unseen = self._fitted.encode(encoding, self._features.smoothing, np.zeros(1), np.zeros(1))

        def by_key(of_item: Array, unknown: Any) -> Array:
            keys = np.arange(len(of_item)) if domain == 0 else items.feature(encoding.column)
            of_key = np.full(size, unknown, of_item.dtype)
            of_key[keys[1:]] = of_item[1:]
            return of_key

        for name in encoding.totals:
            self._encoded[name] = domain, by_key(items.numbers(name), unseen[name][0])
        if encoding.days:
            last, before = (by_key(items.feature(name), NEVER) for name in encoding.days)
            self._days[encoding.names[encoding.kinds.index(RECENCY)]] = domain, last, before

    def _made(
        self, feature: AnyFeature, values: Sequence[Any], where: Sequence[str], given: int
    ) -> dict[str, Array]:
        """What the workflow makes of raw values; only ``given`` of them, the first, were given."""
        raw = _arrow(values, where)
        if pa.types.is_null(raw.type):
            raw = raw.cast(pa.string())
        elif raw.type == pa.list_(pa.null()):
            raw = raw.cast(pa.list_(pa.string()))
        seconds, bad = None, np.zeros(len(values), bool)
        fits, expected = fits_feature(feature, raw.type)
        if feature.name == self._timestamp and can_be_number(raw.type):
            seconds, bad = parsed_seconds(raw, self._features.timestamp_unit)
        elif not fits:
            raise RequestError(f"{where[0]}: expected {expected}, received {values[0]!r:.60}")

        def refuse(bad: Array, expected: str) -> None:
            if bad[:given].any():
                i = int(np.argmax(bad))
                raise RequestError(f"{where[i]}: expected {expected}, received {values[i]!r:.60}")

        read = read_feature(feature, raw, seconds)
        refuse(bad | read.bad, read.expected)
        if isinstance(feature, Number):
            unfit = read_unfit(feature, read, self._fitted)
            if unfit is not None:
                refuse(unfit.bad, unfit.expected)
            made = self._fitted.values(feature, np.asarray(read.stored[feature.name], np.float64))
            made[given:] = np.nan_to_num(made[given:])  # of unseen items without a value
            return {feature.name: made}
        if isinstance(feature, Time):
            return {name: np.asarray(column) for name, column in read.stored.items()}
        return {feature.name: self._rows(feature, read.stored[feature.name])}

    def _rows(self, feature: Any, stored: pa.Array) -> Array:
        if feature.name not in self._lookups:
            return matrix_of(stored, feature.size)
        lookup = self._lookups[feature.name]
        keys, rows = keys_of_lists(stored, feature.longest)
        made = np.zeros((len(stored), feature.longest), np.int64)
        filled = np.zeros(len(stored), np.int64)
        for key, row in zip(keys.to_pylist(), rows.tolist(), strict=True):
            found = lookup.look_up(key, feature.name)
            if found:
                made[row, filled[row]] = found
                filled[row] += 1
        return made


NumberEncoder = PlainNumbers | WorkflowNumbers


def _plain_features(features: FeatureSet, of: str) -> list[AnyFeature]:
    return [f for f in features if f.of == of and f.name not in features.categories(of)]


def _arrow(values: Sequence[Any], where: Sequence[str]) -> pa.Array:
    """Raw values of one column as arrow has them; each by itself where they are of many types."""
    try:
        return pa.array([None if value == "" else value for value in values])
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return pa.array(
            [_text(value, location) for value, location in zip(values, where, strict=True)]
        )


def _text(value: Any, where: str) -> str | None:
    if isinstance(value, list) and all(isinstance(entry, str | int | float) for entry in value):
        value = "|".join(map(str, value))
    if value is None or isinstance(value, str):
        check_storable(value or "", where)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise RequestError(f"{where}: expected a number, text or a list, received {value!r:.60}")
