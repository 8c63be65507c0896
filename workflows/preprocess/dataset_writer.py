"""The parts of a dataset directory, written by a fitted workflow."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import nvtabular as nvt
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.dag.ops.concat_columns import ConcatColumns
from merlin.dag.ops.selection import SelectionOp
from merlin.dag.ops.subtraction import SubtractionOp
from merlin.io import Dataset

from ...dataloader.positions import counted_before, find_positions
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import whole_file
from ...foundation.process_wide import quiet_merlin
from ...foundation.progress import Reporter, Silence
from ...schemas.dataset import DatasetDirectory, natural_order, write_documents
from ...schemas.feature_spec import FeatureSpec
from ...schemas.item_table import ID
from ...schemas.layout_names import CATEGORIES
from ...schemas.merlin_schema import to_merlin_schema
from ...schemas.recency import NEVER, SECONDS_OF_DAY, days_of, recent_rows
from ...schemas.users_layout import JOINS, POSITIVE, SAMPLE, USERS, UsersLayout
from ..behaviour_columns import BehaviourColumns
from ..dataset_spec import EVENTS, ITEM_CHANGES, users_spec
from ..feature import RECENT_POPULARITY, Encoding, Number
from ..fitted_numbers import FittedNumbers
from ..frames import frame_to_arrow, lists_of_arrow
from ..known_values import ItemValues, last_days, write_events
from ..ops.categorify import Categorify
from ..ops.columns import FillAsOf
from ..ops.group_histories import GroupHistories
from ..ops.item_statistics import KNOWN, LOG_ROW, TIME, VALUE, merged, value_codes
from ..ops.key_index import keys_of_file
from ..ops.workflow import makers
from ..raw_values import matrix_of
from ..rules import LATEST
from ..schedulers import Scheduler, SingleProcess
from ..times import date_text
from ..vocabularies import Vocabularies

Array = npt.NDArray[Any]
Compute = Callable[[Sequence[Any]], Iterator[Any]]
Varying = Mapping[str, Array]
PASSING = (nvt.ops.Categorify, ConcatColumns, FillAsOf, SelectionOp, SubtractionOp)
"""Operators that make neither a number of a number, nor a bucket."""


def write_item_changes(
    group: GroupHistories, frames: Sequence[Any], directory: Path, compute: Compute
) -> tuple[str, ...]:
    """Write the changes of each feature of items that changes; returns their names.

    Items that keep what an earlier log said of them have no changes. The rows are read twice:
    which items have several values of a feature is known once all have been seen, and only of
    these are rows kept.
    """
    names = [n for n in group.columns.items_in_log if n not in group.columns.steady]
    if not names:
        return ()
    counted = [dask.delayed(group.statistics)(frame, n) for n, frame in enumerate(frames)]
    found = merged(list(compute(counted)))
    kept = group.items.kept
    varying = {name: np.setdiff1d(found.varying[name], kept.get(name, ())) for name in names}
    varying = {name: items for name, items in varying.items() if len(items)}
    if not varying:
        return ()
    rows = [dask.delayed(_rows_of)(group, frame, n, varying) for n, frame in enumerate(frames)]
    tables: dict[str, list[pa.Table]] = {name: [] for name in varying}
    for of_frame in compute(rows):
        for name, table in of_frame.items():
            tables[name].append(table)
    values = ItemValues(directory)
    written = []
    for name, pieces in tables.items():
        changes = changes_of(pieces)
        if changes.num_rows:
            ids, times = (np.asarray(changes[column]) for column in (ID, TIME))
            values.write(name, ids, times, values_as_read(name, changes[VALUE], group.columns))
            written.append(name)
    return tuple(written)


def _rows_of(
    group: GroupHistories, frame: Any, number: int, varying: Varying
) -> dict[str, pa.Table]:
    rows = group.item_rows(frame, number, list(varying))
    found = {}
    for name, table in rows.items():
        chosen = np.asarray(table[KNOWN]) & np.isin(np.asarray(table[ID]), varying[name])
        found[name] = table.filter(pa.array(chosen))
    return found


def changes_of(pieces: Iterable[pa.Table]) -> pa.Table:
    """Keep the rows at which the value of an item changes, in the order of items and times.

    Of rows of one item and time the last one of the log counts.

    >>> rows = {ID: [1, 1, 1, 2], TIME: [5, 5, 7, 1], LOG_ROW: [0, 1, 2, 3], VALUE: [3, 4, 4, 9]}
    >>> changes_of([pa.table(rows), pa.table({**rows, TIME: [1, 9, 9, 1]})]).to_pydict()[VALUE]
    [3, 4]
    """
    rows = pa.concat_tables(pieces).combine_chunks()
    ids, times, log_rows = (np.asarray(rows[name]) for name in (ID, TIME, LOG_ROW))
    order = np.lexsort((log_rows, times, ids))
    ids, times = ids[order], times[order]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = (ids[1:] != ids[:-1]) | (times[1:] != times[:-1])
    order, ids = order[is_last], ids[is_last]
    codes = value_codes(rows[VALUE].combine_chunks())[order]
    is_change = np.ones(len(order), bool)
    is_change[1:] = (ids[1:] != ids[:-1]) | (codes[1:] != codes[:-1])
    is_change &= np.bincount(ids[is_change])[ids] > 1
    return rows.take(pa.array(order[is_change]))


def values_as_read(name: str, values: pa.ChunkedArray, columns: BehaviourColumns) -> Array:
    """Values as models read them: [changes], or [changes, width] of vectors and lists."""
    values = values.combine_chunks()
    for vector in columns.features.vectors:
        if vector.name == name:
            return matrix_of(values, vector.size)
    for feature in columns.features.lists:
        if feature.name == name:
            offsets = np.asarray(values.offsets)
            counts = np.diff(offsets)
            elements = np.arange(counts.sum()) - np.repeat(offsets[:-1] - offsets[0], counts)
            made = np.zeros((len(values), feature.longest), np.int64)
            made[np.repeat(np.arange(len(values)), counts), elements] = np.asarray(values.flatten())
            return made
    found = np.asarray(values)
    return found if name in columns.item_features else found.astype(np.float32)


INTERACTIONS_PER_FILE = 1 << 23
INTERACTIONS_PER_GROUP = 1 << 21
"""What the loader has in memory at a time, and shuffles users within: 8 MB."""
ZSTD_LEVEL = 1  # lower ones store ids that hardly repeat as they are, one byte in four a zero


@dataclass
class WrittenUsers:
    """Numbers of users, interactions and samples in users' rows."""

    users: int = 0
    read: int = 0
    """Rows of the log, also those whose item has no id."""
    interactions: int = 0
    samples: int = 0
    """Interactions that may be samples, whatever stands before them."""
    unknown_users: int = 0
    positions: Counter[str] = field(default_factory=Counter)
    """Mapping -> how many interactions it predicts."""
    rows: Counter[str] = field(default_factory=Counter)
    """Mapping -> how many samples it has, negatives too."""
    outdated: int = 0
    """Interactions that train whose user or item got another value later."""
    counted: Counter[str] = field(default_factory=Counter)
    """Mapping -> how many of them the encodings of a fitted workflow counted."""

    def refuse_counted(self, group: GroupHistories, source: str, mappings: Sequence[str]) -> None:
        """Refuse samples that encodings of a whole log counted: they would see their own label."""
        until = group.items.fitted.counted_until
        counted, of = (sum(one[m] for m in mappings) for one in (self.counted, self.positions))
        if counted and until is not None:
            raise MerlinSimError(
                f"{source}: {counted:,} of {of:,} interactions to predict are no later than "
                f"{date_text(until)}, until when the fitted workflow counted for `encodings`: "
                "they may be among the rows counted, and would see their own label. Expected a "
                "later log. Leave such rows out, or fit anew on all rows (without `--fitted`)."
            )

    def add(self, other: WrittenUsers) -> None:
        """Add the numbers of other rows."""
        for name in ("users", "read", "interactions", "samples", "unknown_users", "outdated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.positions.update(other.positions)
        self.rows.update(other.rows)
        self.counted.update(other.counted)


def group_of(workflow: nvt.Workflow) -> GroupHistories:
    """The operator that a workflow ends in."""
    operator = workflow.output_node.op
    if not isinstance(operator, GroupHistories):
        raise MerlinSimError(
            "A dataset of behaviour is written by a workflow that ends in GroupHistories. "
            f"Received: one that ends in {type(operator).__name__}."
        )
    return operator


@dataclass
class DatasetWriter:
    """Writes the parts of a dataset directory, one after the other."""

    workflow: nvt.Workflow
    dataset: Dataset
    directory: Path
    scheduler: Scheduler
    reporter: Reporter = field(default_factory=Silence)
    users_expected: int = 0
    """How many users there are, for the progress."""

    @property
    def group(self) -> GroupHistories:
        """What makes users' rows."""
        return group_of(self.workflow)

    @property
    def layout(self) -> UsersLayout:
        """How samples are made of the rows."""
        return self.group.layout

    def write_users(self) -> WrittenUsers:
        """Write the users' rows, what changes in time, and what encodings count."""
        group = self.group
        frames = self._frames()
        changes = self.directory / ITEM_CHANGES
        with quiet_merlin():
            changing = write_item_changes(group, frames, changes, self.scheduler.compute)
        values = ItemValues(changes) if changing else None
        is_latest = group.rules.feature_values == LATEST
        group.changing_items = () if is_latest else changing
        with quiet_merlin():
            self.workflow.graph.construct_schema(self.dataset.schema, preserve_dtypes=True)
        outdated = (values, self._latest(changing)) if is_latest else (None, {})
        may_be_counted = bool(group.columns.features.encodings) and not group.counts_events
        write = dask.delayed(partial(_write_users, group, self.directory, outdated, may_be_counted))
        (self.directory / USERS).mkdir()
        tasks = [write(frame, number) for number, frame in enumerate(frames)]
        written = WrittenUsers()
        with self.reporter.phase("writing users", self.users_expected) as report:
            for of_part in self.scheduler.compute(tasks):
                report(of_part.users, of_part.users)
                written.add(of_part)
        if is_latest:
            shutil.rmtree(changes, ignore_errors=True)
            values = None
        if group.counts_events:
            self._write_events(values)
        else:
            self._write_last_days()
        return written

    def _frames(self) -> list[Any]:
        """Delayed partitions, as they come to the last operator; a single one is made once."""
        with quiet_merlin():
            frames = self.workflow.executor.transform(
                self.dataset.to_ddf(), self.workflow.output_node.parents_with_dependencies
            )
            delayed: list[Any] = frames.to_delayed()
            if len(delayed) == 1 and isinstance(self.scheduler, SingleProcess):
                delayed = [dask.delayed(one) for one in self.scheduler.compute(delayed)]
        return delayed

    @property
    def files(self) -> list[str]:
        """The users' files, relative to the directory."""
        paths = sorted((self.directory / USERS).glob("*.parquet"), key=natural_order)
        return [f"{USERS}/{path.name}" for path in paths]

    def _write_events(self, values: ItemValues | None) -> None:
        layout, columns = self.layout, self.group.columns
        names = [n for n in (layout.history, layout.times, layout.roles, layout.changed_at) if n]
        tables = [pq.read_table(self.directory / file, columns=names) for file in self.files]
        rows = pa.concat_tables(tables)
        flat = {name: np.asarray(rows[name].combine_chunks().flatten()) for name in names}
        items = flat[layout.history].astype(np.int64)
        seconds = flat[str(layout.times)]
        taken: Any = np.ones(len(items), np.int64)
        if layout.roles is not None:
            taken = (flat[layout.roles] & POSITIVE) > 0
        table = self._item_columns()
        for encoding in columns.features.encodings:
            name, ids = encoding.column, items
            if name != columns.item:
                ids = np.concatenate([[0], np.asarray(table[name])])
                if values is not None and values.changes(name):
                    ids = values.at(name, items, flat[str(layout.changed_at)], ids)
                else:
                    ids = ids[items]
            write_events(self.directory / EVENTS / f"{name}.parquet", ids, seconds, taken)
            self._keep_newest(encoding, ids, seconds)

    def _keep_newest(self, encoding: Encoding, ids: Array, seconds: Array) -> None:
        """Keep the last two days of each key, and its recent rows, where they are encoded.

        They are of rows that test too: a later log begins there.
        """
        items, size = self.group.items, self.group.sizes[encoding.column] + 1
        days, recent = dict(items.days), dict(items.recent)
        if encoding.days:
            days[encoding.column] = last_days(ids, days_of(seconds), size)
        if RECENT_POPULARITY in encoding.kinds:
            recent[encoding.column] = recent_rows(ids, seconds, size)
        if encoding.days or RECENT_POPULARITY in encoding.kinds:
            until = float(seconds.max(initial=items.fitted.counted_until or 0.0))
            fitted = replace(items.fitted, counted_until=until)
            self.group.items = replace(items, fitted=fitted, days=days, recent=recent)

    def _write_last_days(self) -> None:
        """Write, of each key whose recency is encoded, the last two days of the fitted log."""
        for encoding in self.group.columns.features.encodings:
            if not encoding.days:
                continue
            table, name = self._item_columns(), encoding.column
            of_item = [np.asarray(table[column]) for column in encoding.days]
            ids = np.asarray(table.get(name, np.arange(len(of_item[0])) + 1))
            keys, items = np.unique(ids, return_index=True)
            keys, days = np.tile(keys, 2), np.concatenate([days[items] for days in of_item])
            known = (keys > 0) & (days != NEVER)
            seconds = days[known] * float(SECONDS_OF_DAY)
            path = self.directory / EVENTS / f"{name}.parquet"
            write_events(path, keys[known], seconds, np.zeros(len(seconds)))

    def _item_columns(self) -> dict[str, pa.Array]:
        return self.group.items.for_ids(self.group.sizes[self.group.columns.item])

    def _latest(self, names: Sequence[str]) -> dict[str, Array]:
        """By feature of items, the value of each item, after that of id 0."""
        table, columns = self._item_columns() if names else {}, self.group.columns
        found = {}
        for name in names:
            stored = table[name]
            if name in (vector.name for vector in columns.features.vectors):  # of length 1 already
                values = np.asarray(stored.flatten()).reshape(len(stored), -1)
            else:
                values = values_as_read(name, pa.chunked_array([stored]), columns)
            found[name] = np.concatenate([np.zeros_like(values[:1]), values])
        return found

    def write_vocabularies(self) -> None:
        """Write the keys of every domain, and what is known of each item."""
        columns = self.group.columns
        vocabularies = Vocabularies(self.directory / CATEGORIES)
        for name in columns.domains:
            more = self._item_columns() if name == columns.item else {}
            vocabularies.write(name, keys_of(self.workflow, name), **more)

    @property
    def spec(self) -> FeatureSpec:
        """What the users' rows are."""
        return users_spec(self.group.samples_schema(), self.layout, self.files)

    @property
    def users(self) -> DatasetDirectory:
        """The users' rows and the vocabularies beside them, once both are written."""
        spec = self.spec
        return DatasetDirectory(self.directory, spec, to_merlin_schema(spec))

    def write_documents(self) -> None:
        """Write the spec and the schema."""
        write_documents(self.directory, self.spec)


def keys_of(workflow: nvt.Workflow, domain: str) -> pa.Array:
    """The raw keys of a domain by id: the first has id 1."""
    group, (op, name) = group_of(workflow), _maker_of_ids(workflow.output_node, domain)
    keys: pa.Array | None = None
    if isinstance(op, Categorify):
        keys = op.keys(name)
    elif op is not None:
        storage = op.storage_name.get(name, name)
        path = Path(op.categories.get(storage) or "")
        found = keys_of_file(path, storage) if path.is_file() else None
        keys = None if found is None else found.index.keys
    if keys is None or len(keys) != group.sizes[domain]:
        raise MerlinSimError(
            f"{domain!r}: expected a file with the key of each of its {group.sizes[domain]:,} ids, "
            "as `ops.Categorify` of single columns writes it without `num_buckets`; found "
            f"{type(op).__name__} with {0 if keys is None else len(keys):,} keys."
        )
    return keys


def _maker_of_ids(node: Any, name: str) -> tuple[Any, str]:
    """The Categorify that makes the ids of a node's input column, and what it calls them."""
    for one, reads in makers(node, name):
        if isinstance(one.op, nvt.ops.Categorify):
            return one.op, name
        for read in reads:
            op, called = _maker_of_ids(one, read)
            if op is not None:
                return op, called
    return None, name


def fitted_numbers(workflow: nvt.Workflow) -> FittedNumbers:
    """The operators that each number goes through, as they were fitted."""
    group = group_of(workflow)
    chains = {
        number.name: _chain(workflow.output_node, number.name)
        for number in group.columns.features
        if isinstance(number, Number)
    }
    return replace(group.items.fitted, operators=chains)


def _chain(node: Any, name: str) -> list[Any]:
    """The operators of a column up to a node, the first to the last; its buckets are the end."""
    for parent in node.parents_with_dependencies:
        if parent.op is None or name not in parent.output_columns.names:
            continue
        before = _chain(parent, name)
        return before if isinstance(parent.op, PASSING) else [*before, parent.op]
    return []


def _write_users(
    group: GroupHistories,
    directory: Path,
    outdated: tuple[ItemValues | None, Mapping[str, Array]],
    may_be_counted: bool,
    rows: Any,
    number: int,
) -> WrittenUsers:
    """Write the ``number``-th partition, as it comes to the last operator.

    Where samples have the latest values of items, ``outdated`` has those in time, and the latest.
    Where it ``may_be_counted``, a fitted workflow may have counted rows of this log.
    """
    layout, table = group.layout, frame_to_arrow(group.transform(None, rows))
    history = table[layout.history].combine_chunks()
    if group.sizes[layout.history] < 2**31:
        small = pa.list_(pa.int32())
        kind = pa.large_list(pa.int32()) if pa.types.is_large_list(history.type) else small
        index = table.schema.get_field_index(layout.history)
        table = table.set_column(index, layout.history, history.cast(kind))
    offsets = np.asarray(history.offsets).astype(np.int64)
    split = [] if layout.times is None else [f"{layout.times}.list.element"]
    path = directory / USERS / f"part.{number}.parquet"
    groups = cut(offsets, INTERACTIONS_PER_GROUP)
    tables = (table.slice(first, stop - first) for first, stop in groups)
    write_users_file(path, table.schema, tables, split)
    written = count_users(table, layout, group.columns.user)
    written.read = len(rows)
    if group.rules.feature_values == LATEST:
        written.outdated = group.count_outdated(rows, *outdated)
    if may_be_counted:
        written.counted.update(group.count_counted(rows))
    return written


def write_users_file(
    path: Path, schema: pa.Schema, groups: Iterable[pa.Table], split: Sequence[str] = ()
) -> None:
    """Write a file of users, a row group for each table; it is whole, or not there.

    The floats of a column in ``split`` nearly all have the same first bytes.
    """
    with whole_file(path) as whole, pq.ParquetWriter(
        whole, schema, compression="zstd", compression_level=ZSTD_LEVEL, use_dictionary=False,
        write_statistics=False, use_byte_stream_split=list(split),
    ) as writer:  # fmt: skip
        for table in groups:
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def cut(offsets: Array, interactions: int) -> list[tuple[int, int]]:
    """Cut users into groups of about so many interactions; one user is never cut.

    >>> cut(np.array([0, 3, 5, 15, 16]), 5)
    [(0, 2), (2, 3), (3, 4)]
    """
    groups, first = [], 0
    while first < len(offsets) - 1:
        limit = offsets[first] + interactions
        stop = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        groups.append((first, stop))
        first = stop
    return groups


def count_users(table: pa.Table, layout: UsersLayout, user: str) -> WrittenUsers:
    """Count what users' rows hold."""
    items, offsets = lists_of_arrow(table[layout.history].combine_chunks())
    roles: Any = np.full(len(items), JOINS | SAMPLE | POSITIVE)
    if layout.roles is not None:
        roles = lists_of_arrow(table[layout.roles].combine_chunks())[0]
    found = find_positions(offsets, roles, None)
    positives = counted_before(np.asarray(found.labels))
    users = table[user]
    if pa.types.is_list(users.type) or pa.types.is_large_list(users.type):
        raise MerlinSimError(f"{user!r}: expected one user in each row.")
    written = WrittenUsers(
        users=table.num_rows,
        interactions=len(items),
        samples=int(found.starts[-1]),
        unknown_users=int((np.asarray(users) == 0).sum()),
    )
    for mapping, names in layout.positions.items():
        begins, ends = (found.starts[:-1] + np.asarray(table[name]) for name in names)
        count = int((ends - begins).sum())
        taken = int((positives[ends] - positives[begins]).sum())
        written.positions[mapping] = count
        written.rows[mapping] = count + layout.negatives_per_positive * taken
    return written
