"""Events and plain rows become ids, as the fitted workflow would make them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..foundation.requests import RequestError, check_storable, missing_keys, refuse_all
from ..schemas.channels import UNITS_OF_INTERVALS
from ..schemas.layout_names import CATEGORIES
from ..workflows.criteo.criteo_columns import LEAST_NUMBER, LOGARITHMS, model_number
from ..workflows.vocabularies import Vocabularies
from .event import (
    CANDIDATES,
    HISTORY,
    HISTORY_TIMES,
    NOT_GIVEN,
    Event,
    EventTimes,
    Item,
    StoredHistory,
    StoredSummary,
    csv_key,
    csv_list,
    csv_numbers,
    number_of,
    own_seconds,
    parse_event,
)
from .histories.store import Reading, StoreError, SummedHistory, as_text
from .limits import Limits, UnavailableError
from .lookups import (
    UNSEEN,
    IdLookup,
    Lookup,
    VocabularyLookup,
    as_in_log,
    read_workflow,
)
from .numbers import NumberEncoder, PlainNumbers, WorkflowNumbers
from .servable import Servable, ServedColumn, SummaryNote

Ids = dict[str, npt.NDArray[np.generic]]
KEPT_FROM = 100
"""Interactions that come before a summary with them is kept; fewer are added at each request."""
NOT_READ = (
    "the history that is kept of this user cannot be read: send it as `history`, or try again"
)


@dataclass(frozen=True)
class EncodedEvent:
    """One event as the model reads it: column -> ids."""

    users: Ids
    """Each [1]."""
    targets: Ids
    """Each [candidates]."""
    histories: Ids
    """Each [positions], oldest first; no longer than the model reads."""
    keys: tuple[str, ...] = ()
    """Those of the user's columns that are ids."""
    stored: StoredSummary | None = None
    """What a store keeps of the whole history, where the model reads a summary of it."""
    since: Ids = field(default_factory=dict)
    """What is not in it yet, like ``histories``, of any length."""

    @property
    def candidate_count(self) -> int:
        """How many scores are asked for."""
        return len(next(iter(self.targets.values())))

    @property
    def unseen_candidates(self) -> npt.NDArray[np.bool_]:
        """Which of them were not there when the workflow was fitted: [candidates]."""
        return np.asarray(next(iter(self.targets.values())) == UNSEEN)

    @property
    def unseen_user(self) -> bool:
        """Whether the user, in any of its keys, was not."""
        return any(self.users[name][0] == UNSEEN for name in self.keys)


class EventEncoder:
    """Looks keys up in a servable's vocabularies.

    A key that was not there when the workflow was fitted, and a null, are as the workflow has
    them: id 0 (whose vector is never trained) as a user or a candidate, left out of a history.
    Then the newest positions are kept, as many as the model reads. A feature of an item that is
    not given is the item's own; of an unseen item it is 0.

    Args:
        servable: An opened servable.
        limits: What is refused.
        histories: Has the history of an event that brings none.
    """

    def __init__(
        self,
        servable: Servable,
        limits: Limits | None = None,
        histories: Reading | None = None,
    ) -> None:
        self.columns = servable.columns
        self.limits = limits or Limits()
        self.histories = histories
        self.summary = servable.summary
        self.users = [find_lookup(servable, column) for column in self.columns.event_keys]
        features = [column.domain for column in self.columns.targets[1:]]
        first, *others = self.columns.targets
        self.items = [
            find_lookup(servable, first, features),
            *(find_lookup(servable, column) for column in others),
        ]
        workflow = read_workflow(servable.path)
        self.numbers: NumberEncoder = PlainNumbers(self.columns)
        self.times: EventTimes | None = None
        self.time_fields: tuple[str, ...] = ()
        """Name the field of an event's own time, which may be missing, if any is read."""
        if workflow is not None:
            stated, fitted, timestamp = workflow
            self.users = [as_in_log(lookup, stated, fitted) for lookup in self.users]
            self.items = [as_in_log(lookup, stated, fitted) for lookup in self.items]
            lists = [find_lookup(servable, column) for column in self.columns.target_lists]
            by_name = {lookup.domain: lookup for lookup in lists}
            table = Vocabularies(servable.path / CATEGORIES).items(first.domain)
            self.numbers = WorkflowNumbers(*workflow, table, by_name, self.columns)
            if stated.reads_days:
                self.time_fields = (timestamp,)
                self._unit = stated.timestamp_unit
            if self.columns.intervals is not None and stated.time_intervals is not None:
                seconds = UNITS_OF_INTERVALS[stated.time_intervals]
                interval, unit = self.columns.intervals.name, stated.timestamp_unit
                self.times = EventTimes(timestamp, interval, unit, seconds)

    def fields_for(self, found: Collection[str]) -> tuple[str, ...]:
        """Name what a row of a file needs, by the columns that the file has."""
        intervals = (self.columns.intervals.name,) if self.columns.intervals else ()
        if self.times is not None:
            intervals = self.times.needed(found)
        users = (*(column.name for column in self.columns.event_keys), *self.numbers.user_fields)
        history = (HISTORY,) if self.histories is None else ()
        return tuple(dict.fromkeys((*users, *history, CANDIDATES, *intervals)))

    def from_cells(self, cells: Mapping[str, str]) -> dict[str, Any]:
        """Read the cells of a row of CSV; a list is JSON, or keys separated by ``|``."""
        found: dict[str, Any] = {}
        for column, lookup in zip(self.columns.event_keys, self.users, strict=True):
            found[column.name] = csv_key(cells[column.name], column.name, lookup.is_text)
        for name in (HISTORY, CANDIDATES) if HISTORY in cells else (CANDIDATES,):
            found[name] = csv_list(cells[name], name, self.items[0].is_text)
        for name in self.numbers.user_fields:
            found[name] = self.numbers.from_cell(name, cells[name])
        if self.columns.intervals is not None and (name := self.columns.intervals.name) in cells:
            found[name] = csv_numbers(cells[name], name)
        if self.times is not None and HISTORY_TIMES in cells:
            found[HISTORY_TIMES] = csv_list(cells[HISTORY_TIMES], HISTORY_TIMES, is_text=True)
            found[self.times.timestamp] = cells.get(self.times.timestamp) or None
        for name in self.time_fields:
            found[name] = cells.get(name) or None
        return found

    def output_types(self) -> dict[str, Any]:
        """Return the columns of a file of scores, beside line and scores, with their types."""
        users = {
            column.name: lookup.key_type
            for column, lookup in zip(self.columns.event_keys, self.users, strict=True)
        }
        return {**users, CANDIDATES: pa.list_(self.items[0].key_type)}

    def output_row(self, event: Event) -> dict[str, Any]:
        """Return what a file of scores says of an event."""
        users = {
            column.name: lookup.shown(event.users[column.name])
            for column, lookup in zip(self.columns.event_keys, self.users, strict=True)
        }
        return {**users, CANDIDATES: [item[0] for item in event.candidates]}

    def parse(self, fields: Any) -> Event:
        """Check the form of an event; see :func:`~merlin_sim.serving.event.parse_event`."""
        (fields,) = self.with_histories([fields])
        if isinstance(fields, Exception):
            raise fields
        more_fields = (self.numbers.user_fields, self.numbers.item_fields)
        event = parse_event(fields, self.columns, self.limits, more_fields, self.times)
        if self.time_fields:
            (timestamp,) = self.time_fields
            event = replace(event, seconds=own_seconds(fields, timestamp, self._unit))
        return event

    def with_histories(self, events: Sequence[Any]) -> list[Any]:
        """Return events with the histories that they do not bring, which are read together.

        An event whose history cannot be read is replaced by the error.
        """
        found = list(events)
        if self.histories is None:
            return found
        users: dict[int, str] = {}
        for index, fields in enumerate(events):
            if not isinstance(fields, Mapping) or HISTORY in fields:
                continue
            key = fields.get(self.columns.users[0].name)
            found[index] = {**fields, HISTORY: []}
            if isinstance(key, bool) or not isinstance(key, str | int):
                continue  # of no user, or refused where it is looked up
            try:
                check_storable(key, self.columns.users[0].name)
                users[index] = as_text(key)
            except RequestError as error:
                found[index] = error
        read = self._read(self.histories, [*users.values()]) if users else ()
        for index, history in zip(users, read, strict=True):
            if isinstance(history, StoreError):
                print(f"merlin-sim: {history}", file=sys.stderr, flush=True)
                found[index] = UnavailableError(NOT_READ)
            else:
                found[index] = {**events[index], HISTORY: history}
        return found

    def _read(self, store: Reading, users: Sequence[str]) -> list[list[Any] | StoreError]:
        """Read histories, and what is kept of the whole where the model has use for it."""
        if self.summary is None:
            read = store.read_all(users, self.newest)
            return [one if isinstance(one, StoreError) else one.items for one in read]
        summed = store.read_summed(users, self.newest, self.summary.model)
        return [
            one if isinstance(one, StoreError) else self._stored(store, self.summary, user, one)
            for user, one in zip(users, summed, strict=True)
        ]

    def _stored(
        self, store: Reading, note: SummaryNote, user: str, history: SummedHistory
    ) -> StoredHistory:
        def keep(summary: npt.NDArray[np.generic]) -> None:
            if history.mark is None or len(history.since) < KEPT_FROM:
                return
            try:
                store.keep_summary(user, note.model, summary.tobytes(), history.mark)
            except StoreError as error:  # it is made again next time
                print(f"merlin-sim: {error}", file=sys.stderr, flush=True)

        so_far = np.frombuffer(history.summary or bytes(4 * note.dim), np.float32)
        return StoredHistory(history.newest.items, StoredSummary(so_far, keep), history.since)

    @property
    def newest(self) -> int:
        """How many of a history's newest interactions can matter to the model.

        Items that it does not know are left out: there are as many again.
        """
        most = self.limits.max_history
        longest = self.columns.longest
        if self.summary is not None and self.histories is not None:
            longest = self.summary.recent  # the store has a summary of all
        return most if self.numbers.reads_whole_history else min(2 * longest, most)

    def encode(self, event: Event) -> EncodedEvent:
        """Look up an event's keys."""
        targets = self._items(event.candidates, CANDIDATES)
        return self._encode(event, targets, event.given or [{}] * len(event.candidates))

    def encode_for_items(self, event: Event, ids: npt.NDArray[np.int64]) -> EncodedEvent:
        """Look up an event's keys, for items of :meth:`item_ids`, of which nothing is given."""
        self.limits.check_candidates(len(ids))
        return self._encode(event, self._known_features(ids), [{}] * len(ids))

    def encode_items(self, ids: npt.NDArray[np.int64]) -> Ids:
        """Look up items of no user, as candidates: column -> ids or numbers, [items]."""
        no_user: Ids = {column.name: np.zeros(1, np.int64) for column in self.columns.event_keys}
        targets = self._known_features(ids)
        numbers = self.numbers.of_items(no_user, targets, [{}] * len(ids), CANDIDATES)
        return _named(self.columns.targets, targets) | numbers

    def _known_features(self, ids: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        targets = [ids]
        for index in range(1, len(self.items)):
            if (known := self._known(index, ids)) is None:
                raise RequestError(
                    f"{CANDIDATES}: expected a servable that knows {self.items[index].domain!r} of "
                    "its items"
                )
            targets.append(known)
        return targets

    def item_ids(self, keys: Sequence[Any], where: str = CANDIDATES) -> npt.NDArray[np.int64]:
        """Look up raw keys of items; an error says ``where`` one is that no key can be."""
        first = self.items[0]
        return np.array([first.look_up(key, where) for key in keys], np.int64)

    def _encode(
        self,
        event: Event,
        targets: Sequence[npt.NDArray[np.int64]],
        given: Sequence[Mapping[str, Any]],
    ) -> EncodedEvent:
        columns = self.columns
        users = {
            column.name: np.array([lookup.look_up(event.users[column.name], column.name)])
            for column, lookup in zip(columns.event_keys, self.users, strict=True)
        }
        history = self._items(event.history, HISTORY)
        known = np.flatnonzero(history[0] != UNSEEN)
        seen = known[-columns.longest :]
        histories = _named(columns.histories, [column[seen] for column in history])
        if columns.intervals is not None and event.intervals is not None:
            column = columns.intervals
            histories[column.name] = np.array(event.intervals, column.dtype)[seen]
        since = self._items(event.since, HISTORY)
        return EncodedEvent(
            _named(columns.event_keys, users.values()) | self.numbers.of_user(event.user_values),
            _named(columns.targets, targets)
            | self.numbers.of_items(users, targets, given, CANDIDATES, event.seconds)
            | self.numbers.of_history(targets, [column[known] for column in history]),
            histories,
            tuple(column.name for column in columns.users),
            event.stored,
            _named(columns.histories, [column[since[0] != UNSEEN] for column in since]),
        )

    def _items(self, items: Sequence[Item], where: str) -> list[npt.NDArray[np.int64]]:
        """The ids of items, feature by feature."""
        first = self.items[0]
        found = [first.look_up(item[0], f"{where}[{i}]") for i, item in enumerate(items)]
        ids = np.array(found, np.int64)
        others = range(1, len(self.items))
        return [ids, *(self._features(index, items, ids, where) for index in others)]

    def _features(
        self, index: int, items: Sequence[Item], ids: npt.NDArray[np.int64], where: str
    ) -> npt.NDArray[np.int64]:
        """The ids of a feature: what is given, else what is known of the items."""
        lookup = self.items[index]
        known = self._known(index, ids)
        given = [i for i, item in enumerate(items) if item[index] is not NOT_GIVEN]
        if known is None and len(given) < len(items):
            i = next(i for i, item in enumerate(items) if item[index] is NOT_GIVEN)
            raise RequestError(
                f"{where}[{i}]: expected an object with {lookup.domain!r}, which this servable "
                f"does not know of its items; received {items[i][0]!r:.60}"
            )
        found = np.zeros_like(ids) if known is None else known
        for i in given:
            found[i] = lookup.look_up(items[i][index], f"{where}[{i}].{lookup.domain}")
        return found

    def _known(self, index: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The ids of a feature that is known of the items; None where it is not."""
        known = self.items[0].features.get(self.items[index].domain)
        return None if known is None else np.asarray(known)[ids].astype(np.int64)


def _named(columns: Sequence[ServedColumn], found: Iterable[npt.NDArray[np.int64]]) -> Ids:
    pairs = zip(columns, found, strict=True)
    return {column.name: ids.astype(column.dtype) for column, ids in pairs}


def find_lookup(servable: Servable, column: ServedColumn, features: Sequence[str] = ()) -> Lookup:
    """Read the vocabulary of a column, and those features of its keys that stand in it."""
    path = servable.vocabulary(column.domain)
    if path is None:
        return IdLookup(column.domain, int(column.largest_id or 0))
    return VocabularyLookup.read(column.domain, path, features)


class RowEncoder:
    """Does for plain rows what :class:`EventEncoder` does for events.

        {"user": "A1", "item": "B9", "price": 2.5}

    A row has the columns that the model reads, by name: of ids the raw key, looked up in the
    dataset's vocabulary (without one the key is the id), of numbers the number as the dataset has
    it; where the dataset was made of a click log, as the log has it, None for a missing one. It is
    an event of one candidate.
    """

    def __init__(self, servable: Servable, limits: Limits | None = None) -> None:
        self.columns = servable.columns
        self.limits = limits or Limits()
        self.raw_numbers = servable.takes_raw_numbers
        self.lookups: dict[str, Lookup | None] = {
            column.name: None if column.largest_id is None else find_lookup(servable, column)
            for column in self.columns.targets
        }

    def fields_for(self, found: Collection[str]) -> tuple[str, ...]:
        """Name what a row of a file needs, whatever else the file has."""
        return tuple(self.lookups)

    def from_cells(self, cells: Mapping[str, str]) -> dict[str, Any]:
        """Read the cells of a row of CSV."""
        return {name: self._read_cell(cells[name], name) for name in self.lookups}

    def output_types(self) -> dict[str, Any]:
        """Return the columns of a file of scores, beside line and scores, with their types."""
        return {
            name: pa.float64() if lookup is None else lookup.key_type
            for name, lookup in self.lookups.items()
        }

    def output_row(self, event: Event) -> dict[str, Any]:
        """Return what a file of scores says of a row."""
        row = zip(self.lookups.items(), event.candidates[0], strict=True)
        return {
            name: float(value) if lookup is None and value is not None else value
            for (name, lookup), value in row
        }

    def parse(self, fields: Any) -> Event:
        """Check the form of a row."""
        if not isinstance(fields, Mapping):
            raise RequestError(f"expected an object, received {fields!r:.60}")
        refuse_all([*missing_keys(fields, self.lookups)])
        return Event({}, [tuple(fields[name] for name in self.lookups)], [], None)

    def with_histories(self, events: Sequence[Any]) -> list[Any]:
        """Return rows as they are: they have no histories."""
        return list(events)

    def encode(self, event: Event) -> EncodedEvent:
        """Look up a row's keys."""
        values = event.candidates[0]
        targets = {
            column.name: np.array([self._encode(column, value)], column.dtype)
            for column, value in zip(self.columns.targets, values, strict=True)
        }
        return EncodedEvent({}, targets, {})

    def _encode(self, column: ServedColumn, value: Any) -> float:
        lookup = self.lookups[column.name]
        if lookup is not None:
            return lookup.look_up(value, column.name)
        if value is None and self.raw_numbers:
            return model_number(None)
        number = number_of(value, column.name)
        if not self.raw_numbers:
            return number
        if number < LEAST_NUMBER:
            raise RequestError(
                f"{column.name}: expected a number of at least {LEAST_NUMBER}: {LOGARITHMS} is "
                f"taken of it; received {value!r:.60}"
            )
        return model_number(number)

    def _read_cell(self, cell: str, name: str) -> Any:
        lookup = self.lookups[name]
        if lookup is not None:
            return csv_key(cell, name, lookup.is_text)
        if not cell and self.raw_numbers:
            return None
        try:
            return float(cell)
        except ValueError:
            raise RequestError(f"{name}: expected a number, received {cell!r:.60}") from None


Encoder = EventEncoder | RowEncoder


def open_encoder(
    servable: Servable, limits: Limits | None = None, histories: Reading | None = None
) -> Encoder:
    """Open what makes a servable's requests: of events or of plain rows."""
    if histories is not None:
        servable.check_reads_histories()
    if servable.takes_rows:
        return RowEncoder(servable, limits)
    return EventEncoder(servable, limits, histories)
