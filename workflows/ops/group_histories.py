"""Interactions become one row per user: the history, and which positions of it are samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import nvtabular as nvt
import pyarrow as pa
from merlin.dag.ops.stat_operator import StatOperator
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

from ...dataloader.positions import Positions, counted_before, find_positions
from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ...foundation.hashing import hash_keys, hashes_without_id
from ...schemas.item_table import ID
from ...schemas.layout_names import CATEGORIES, TRAIN
from ...schemas.users_layout import SAMPLE, UsersLayout
from ..behaviour_columns import (
    EARLIER,
    LOG_ROW,
    ROLE,
    SECONDS,
    SHOWN_ROLES,
    TAKEN_ROLES,
    BehaviourColumns,
    checked_arguments,
    roles_of_labels,
)
from ..dataset_spec import samples_schema, users_layout_of
from ..feature import INTERACTION, ITEM, UNITS, USER, Category, FeatureSet, KeyList, Number, Vector
from ..feature_file import features_from_plain
from ..fitted_numbers import expected_of
from ..frames import (
    array_module,
    column_to_arrow,
    distinct,
    is_on_gpu,
    keys_of,
    list_column,
    new_frame,
    on_host,
    order_by,
    ordered_codes,
    values_of,
)
from ..interactions import (
    exclude_own_time,
    first_of_times,
    order_within_times,
)
from ..known_values import ItemValues, cycles_of, known_rows, ordered_times
from ..raw_values import refuse_nulls
from ..rules import (
    ALL_ROWS,
    TRAIN_ROWS,
    ByTime,
    ByUsers,
    LastInteraction,
    SampleRules,
    Split,
    last_parts,
    rules_of_split,
)
from ..table_columns import EXPECTED_LABEL, labels_of
from ..times import TimeRange, kind_of_times, known_times, read_times, seconds_of, times_of
from .item_statistics import KNOWN, TIME, VALUE, ItemStatistics, ItemTableFitter, merged
from .item_statistics import LOG_ROW as ITEM_LOG_ROW
from .registry import register
from .workflow import ColumnsOfLog, Compute, refuse_features_of_label

RAW = " (raw)"
"""What is added to the name of a column that an operator also reads as the log has it."""
CODES_BEFORE_KEYS = 2
"""Categorify's codes of padding, of nulls and of what is out of the vocabulary come before 3."""
OF_CODES = (
    "cat_path", "domain", "embedding_sizes", "freq_threshold", "max_size", "num_buckets",
)  # fmt: skip
"""Properties that Categorify gives its codes: ids have others."""
TAGS_OF = ((USER, Tags.USER), (ITEM, Tags.ITEM), (INTERACTION, Tags.CONTEXT))
LOG = Path("the log")
"""How messages name a log that is a frame."""
MERGED_AT_ONCE = 4
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Ordered:
    """The rows of a partition in the order of users and times."""

    order: Array
    """[rows] The rows of the partition."""
    offsets: Array
    """[users + 1] Where each user's rows begin."""
    time_numbers: Array
    """[rows] Times as whole numbers, in this order."""
    roles: Array
    """[rows] What part each row plays, in this order."""
    parts: Array
    """[rows] The part of the split that each row belongs to, in this order."""

    def kept(self, is_kept: Array) -> Ordered:
        """Leave rows out."""
        return Ordered(
            self.order[is_kept],
            counted_before(is_kept)[self.offsets],
            self.time_numbers[is_kept],
            self.roles[is_kept],
            self.parts[is_kept],
        )


@register
class GroupHistories(StatOperator):
    """Make one row per user of interactions, with the positions of each split.

    The rows are those of the dataset layout ``users``: ids of the user and of its features, the
    items of all interactions, oldest first, with other lists, and from which position to
    which other one the samples of each split are. Ids run from 1; what Categorify has no key of
    has none either: such an item is left out of the history, all else becomes 0.

    NVTabular's Groupby makes lists, but no samples of them: it knows no split, no items that are
    shown and not taken, and no values that change in time.

    ``fit`` learns what is known of items, from the rows that it is given: how often each was taken
    (negatives are drawn by it), and the last known value of each item feature. All rows of a user
    should stand in one partition (``Dataset.shuffle_by_keys`` brings them together). ``fit``,
    ``ops.Workflow`` and ``write_dataset`` refuse others. ``transform`` of a plain
    ``nvtabular.Workflow`` does not: this operator sees one partition at a time there, and makes a
    row of each part of a user.

    Ids and numbers that no argument names are features too: of whom, their tags say (``USER``,
    ``ITEM`` or ``CONTEXT``), and without a tag they are of the item. Ids are those of
    ``Categorify``. The columns of users and items are read as the log has them too, so both have
    the names that they have there.

    Example usage::

        ids = ["user", "item", "category"] >> ops.Categorify()
        price = ["price"] >> nvt.ops.LogOp() >> nvt.ops.Normalize()
        rows = ids + price + ["time", "clicked"] >> ops.GroupHistories(
            user="user", item="item", order="time", label="clicked",
            split=ops.ByTime("2024-03-01"),
        )
        workflow = ops.Workflow(rows)
        workflow.fit(ms.rows_that_train(workflow, log))

    Args:
        order: The column of the times that histories are ordered by.
        label: 1 where the item was taken, 0 where it was shown; None where all were taken.
        user_features: Further ids of the user; ``item_features`` are those of the item, and
            ``context_features`` those of the interaction itself, such as the device.
        user_numbers: Numbers of the user; ``item_numbers`` are those of the item, and
            ``context_numbers`` those of the interaction.
        item_vectors: Vectors of the item -> how many numbers each has.
        item_lists: Lists of ids of the item -> how many of them are kept.
        time_intervals: The unit of the time between each interaction and the candidate, if it is
            a feature: seconds, minutes, hours or days.
        timestamp_unit: What numbers of ``order`` count, where intervals are made of them: s (the
            default), ms, us or ns.
        split: ``LastInteraction`` (the default), ``ByTime`` or ``ByUsers``.
        fit_on: What ``rows_that_train`` gives to ``fit``: the rows that ``train``, or ``all``, the
            published rule, by which training knows which items the test period brings.
        max_length: How many interactions of a history a sample has, the newest.
        min_before: How many interactions a sample that trains has before it, at least.
        equal_times: As ``negatives``, ``negatives_per_positive``, ``negatives_not_in_history``,
            ``feature_values`` and ``seed`` a rule of
            :class:`~merlin_sim.workflows.rules.SampleRules`. Negatives are drawn by ``popularity``
            or ``uniform``, or are ``none`` where the log has labels. Values are ``as_of_sample``,
            or ``latest``, which leak: a sample that trains has values that came after it.
        steady: Features of users and items that never change: they are stored once.
    """

    def __init__(
        self,
        user: str,
        item: str,
        order: str,
        *,
        label: str | None = None,
        user_features: Sequence[str] = (),
        item_features: Sequence[str] = (),
        context_features: Sequence[str] = (),
        user_numbers: Sequence[str] = (),
        item_numbers: Sequence[str] = (),
        context_numbers: Sequence[str] = (),
        item_vectors: Mapping[str, int] | None = None,
        item_lists: Mapping[str, int] | None = None,
        time_intervals: str | None = None,
        timestamp_unit: str | None = None,
        split: LastInteraction | ByTime | ByUsers | None = None,
        fit_on: str = TRAIN_ROWS,
        max_length: int = 100,
        min_before: int = 1,
        equal_times: str = "unknown",
        negatives: str | None = None,
        negatives_per_positive: int = 1,
        negatives_not_in_history: bool = False,
        feature_values: str = "as_of_sample",
        steady: Sequence[str] = (),
        seed: int = 12345,
    ) -> None:
        if timestamp_unit not in (None, *UNITS):
            raise MerlinSimError(
                f"`timestamp_unit` should be one of {', '.join(UNITS)}, or None. Received: "
                f"`timestamp_unit` = {timestamp_unit!r}."
            )
        features = FeatureSet(
            (
                *(Number(name, USER) for name in user_numbers),
                *(Number(name, ITEM) for name in item_numbers),
                *(Number(name, INTERACTION) for name in context_numbers),
                *(Category(name, INTERACTION) for name in context_features),
                *(Vector(name, size) for name, size in (item_vectors or {}).items()),
                *(KeyList(name, longest) for name, longest in (item_lists or {}).items()),
            ),
            time_intervals,
            timestamp_unit,
        )
        columns = BehaviourColumns(
            user, item, order, tuple(user_features), tuple(item_features), label,
            features=features, steady=tuple(steady),
        )  # fmt: skip
        drawn = negatives or ("none" if label else "popularity")
        rules = SampleRules(
            max_sequence_length=max_length,
            shortest_sequence_for_user=1,
            shortest_sequence_for_training=min_before,
            seed=seed,
            negatives=drawn,
            negatives_per_positive=negatives_per_positive,
            negatives_not_in_history=negatives_not_in_history,
            equal_times=equal_times,
            feature_values=feature_values,
            fit_on=fit_on,
            **rules_of_split(LastInteraction() if split is None else split),
        )
        self._take(exclude_own_time(columns, rules), rules, rules.split)
        self.reads_raw = False
        self._takes_unnamed = True

    @classmethod
    def of(
        cls, columns: BehaviourColumns, rules: SampleRules, split: Split | None
    ) -> GroupHistories:
        """Make one of a log's columns and rules, as ``preprocess`` has them."""
        made = cls.__new__(cls)
        made._take(columns, rules, split)
        return made

    def _take(self, columns: BehaviourColumns, rules: SampleRules, split: Split | None) -> None:
        super().__init__()
        self.columns = columns
        self.rules = rules
        self.split = split
        self.items = ItemTableFitter(columns)
        self.sizes: dict[str, int] = {}
        self._shifts: dict[str, int] = {}
        self.reads_raw = True
        self._takes_unnamed = False
        self.counts_events = False
        self.fitted_rows: tuple[int, int] | None = None
        self.changing_items: tuple[str, ...] = ()

    # ---- columns ----

    @property
    def dependencies(self) -> list[Any]:
        """The columns that are also read as the log has them.

        Users without an id are distinguished by their keys, rows of one time are ordered by a hash
        of the keys, and what is known of an item is seen before missing values are filled.
        """
        names = [self.columns.user, self.columns.item]
        if self.reads_raw:
            operated = [number.name for number in self._operated_numbers()]
            names = list(dict.fromkeys([*names, *self.columns.items_in_log, *operated]))
        return [ColumnsOfLog(names) >> nvt.ops.Rename(postfix=RAW)]

    def _operated_numbers(self) -> list[Number]:
        """Numbers that operators changed, whose raw ones messages name."""
        numbers = (f for f in self.columns.features if isinstance(f, Number))
        of_rows = [n for n in numbers if n.operators and n.stored and n.of != ITEM]
        return of_rows

    def _required(self) -> tuple[str, ...]:
        columns = self.columns
        names = (*columns.users, columns.item, columns.timestamp, *columns.roles)
        numbers = (*columns.of_users, *columns.of_interactions)
        numbers = tuple(name for name in numbers if name != SECONDS)
        return (*names, *self._part_columns(), *numbers)

    def compute_selector(self, input_schema: Schema, *selectors: Any) -> Any:
        """Take all columns."""
        return nvt.ColumnSelector(list(input_schema.column_names))

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """Every output column depends on all columns but those of items."""
        needed = [name for name in col_selector.names if name not in self._of_items()]
        return dict.fromkeys(self._types(), needed)

    def _of_items(self) -> set[str]:
        """Columns that only ``fit`` looks at: a log that is transformed need not have them."""
        names = (*self.columns.item_features, *self.columns.of_items)
        return {LOG_ROW, *names, *(name + RAW for name in names)}

    def compute_output_schema(
        self, input_schema: Schema, col_selector: Any, prev_output_schema: Schema | None = None
    ) -> Schema:
        """Describe users' rows; the ids' domains are those of the inputs, counted from 1."""
        if self._takes_unnamed:
            self.columns = self._with_unnamed(input_schema)
            self.items = replace(self.items, columns=self.columns)
        missing = [name for name in self._required() if name not in input_schema.column_names]
        if missing:
            raise MerlinSimError(
                f"GroupHistories: expected the columns {', '.join(self._required())}. Missing: "
                f"{', '.join(missing)}."
            )
        for name in self.columns.domains:
            if name in input_schema.column_names:
                self._shifts[name], self.sizes[name] = _domain(input_schema[name])
        types = self._types().items()
        return Schema([self._schema_of(name, kind, input_schema) for name, kind in types])

    def _with_unnamed(self, input_schema: Schema) -> BehaviourColumns:
        """The columns, with those that no argument names: ids and numbers, by their tags."""
        columns = self.columns
        named = {*self._required(), *self._of_items(), columns.user + RAW, columns.item + RAW}
        features: list[Any] = []
        ids: dict[str, tuple[str, ...]] = {USER: (), ITEM: ()}
        for column in input_schema:
            if column.name in {*named, SECONDS}:
                continue
            if column.is_list:
                raise MerlinSimError(
                    f"GroupHistories: column {column.name!r} is a list; `item_lists` and "
                    "`item_vectors` say what it is."
                )
            of = next((of for of, tag in TAGS_OF if tag in column.tags), ITEM)
            is_id = Tags.CATEGORICAL in column.tags and Tags.CONTINUOUS not in column.tags
            if is_id:
                _domain(column)
            if is_id and of in ids:
                ids[of] = (*ids[of], column.name)
            else:
                kind: Any = Category if is_id else Number
                features.append(kind(column.name, of))
        more = replace(columns.features, features=(*columns.features.features, *features))
        return replace(
            columns,
            features=more,
            user_features=(*columns.user_features, *ids[USER]),
            item_features=(*columns.item_features, *ids[ITEM]),
        )

    def _schema_of(self, name: str, kind: tuple[str, bool], inputs: Schema) -> ColumnSchema:
        dtype, is_list = kind
        dims = (None, (0, None)) if is_list else (None,)
        columns, tags, properties = self.columns, [], {}
        if name in columns.users:
            tags = [Tags.CONTEXT if name in columns.contexts else Tags.USER, Tags.CATEGORICAL]
            tags += [Tags.USER_ID] * (name == columns.user)
        elif name == columns.item:
            tags = [Tags.ITEM, Tags.ITEM_ID, Tags.SEQUENCE, Tags.CATEGORICAL]
        if name in inputs.column_names:
            given = inputs[name]
            properties = {n: of for n, of in given.properties.items() if n not in OF_CODES}
            tags += [tag for tag in given.tags if tag not in tags]
        if name in self.sizes and tags:
            properties["domain"] = {"min": 0, "max": self.sizes[name], "name": name}
        return ColumnSchema(name, tags=tags, dtype=dtype, dims=dims, properties=properties)

    def samples_schema(self) -> Schema:
        """Describe the samples that are made of the rows; ids have the domains of the inputs."""
        return samples_schema(self.columns, self.sizes, self.rules.max_sequence_length)

    @property
    def layout(self) -> UsersLayout:
        """How samples are made of the rows."""
        events = self.items.fitted if self.counts_events else None
        return users_layout_of(self.columns, self.rules, events, self.changing_items)

    def _types(self) -> dict[str, tuple[str, bool]]:
        """By name of an output column: its type, and whether it is a list."""
        layout, columns = self.layout, self.columns
        found = {name: ("int64", name in layout.per_interaction) for name in columns.users}
        for name in columns.features.numbers(USER):
            found[name] = ("float32", name in layout.per_interaction)
        for names in layout.positions.values():
            found |= dict.fromkeys(names, ("int64", False))
        if layout.samples_before is not None:
            found[layout.samples_before] = ("int64", False)
        if layout.user_hash is not None:
            found[layout.user_hash] = ("int64", False)
        found[layout.history] = ("int64", True)
        for of_row, dtype in (
            (layout.times, "float64"),
            (layout.same_time, "int32"),
            (layout.roles, "int8"),
            (layout.changed_at, "int64"),
        ):
            if of_row is not None:
                found[of_row] = (dtype, True)
        for name in layout.per_interaction:
            found.setdefault(name, ("float32", True))
        return found

    # ---- fit ----

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        """Learn what is known of items, and whose rows each partition has."""
        found = self._of_partitions(ddf)
        while len(found) > 1:
            groups = [found[n : n + MERGED_AT_ONCE] for n in range(0, len(found), MERGED_AT_ONCE)]
            found = [dask.delayed(merged)(group) for group in groups]
        return found[0]

    def fit_in_phases(self, col_selector: Any, ddf: Any, compute: Compute) -> ItemStatistics:
        """Learn what :meth:`fit` learns; ``compute`` runs the tasks in any order."""
        found: list[ItemStatistics] = []
        for of_partition in compute(self._of_partitions(ddf)):
            found.append(of_partition)
            if len(found) == MERGED_AT_ONCE:
                found = [merged(found)]
        return merged(found)

    def _of_partitions(self, ddf: Any) -> list[Any]:
        return [
            dask.delayed(self.statistics)(part, number)
            for number, part in enumerate(ddf.to_delayed())
        ]

    def fit_finalize(self, dask_stats: ItemStatistics) -> None:
        """Keep what was learned; refuse users who stand in several partitions."""
        self._refuse_split(dask_stats.users)
        self.items = self.items.fitted_on(dask_stats)
        self.counts_events = bool(self.columns.features.encodings)
        self.fitted_rows = dask_stats.rows, dask_stats.held_out

    def clear(self) -> None:
        """Forget what was learned."""
        self.items = self.items.cleared()

    def statistics(self, frame: Any, number: int) -> ItemStatistics:
        """Count one partition, the ``number``-th."""
        columns = self.columns
        seconds = self._seconds(frame) if columns.features.needs_seconds else None
        names = [name for name in columns.items_in_log if name in frame]
        return ItemStatistics.of(
            users=_users(frame[[columns.user + RAW]]),
            items=self._ids_on_host(frame, columns.item),
            features=self.item_rows(frame, number, names),
            roles=self._roles(frame),
            seconds=seconds,
            held_out=self._count_held_out(frame),
        )

    def _count_held_out(self, frame: Any) -> int:
        """How many rows of a log do not train; 0 where that takes all rows of a user.

        Where raw values are read, ``fit`` is given the rows that train alone: nothing is counted.
        """
        if self.split is None or self.reads_raw:
            return 0
        times = self._times(frame)
        return int((self.split.parts(_keys(frame, self.columns.user + RAW), times) > 0).sum())

    def refuse_features_of_label(self, node: Any) -> None:
        """Raise a MerlinSimError where the graph before this operator's node encodes the label."""
        for label in self.columns.labels:
            refuse_features_of_label(node, label)

    def refuse_split_users(self, dataset: Dataset) -> None:
        """Raise a MerlinSimError where a user stands in several partitions of a log."""
        user = self.columns.user
        if user not in dataset.schema.column_names:  # the graph makes it
            return
        frames = dataset.to_ddf(columns=[user]).to_delayed()
        if len(frames) > 1:
            users = np.concatenate(dask.compute(*map(dask.delayed(_users), frames)))
            self._refuse_split(users, f" (of {len(frames)} partitions)")

    def _refuse_split(self, users: npt.NDArray[np.uint64], of: str = "") -> None:
        """Refuse users of several partitions, by hashes of those of each partition once."""
        split = int((np.unique(users, return_counts=True)[1] > 1).sum())
        if split:
            user = self.columns.user
            raise MerlinSimError(
                "A history needs all rows of its user in one partition. Received: "
                f"{split:,} users (column {user!r}) with rows in several partitions{of}. "
                f"`dataset.shuffle_by_keys([{user!r}])` brings them together."
            )

    def item_rows(self, frame: Any, number: int, names: Sequence[str]) -> dict[str, pa.Table]:
        """What the rows of the ``number``-th partition say of their items, by feature."""
        if not names:
            return {}
        columns = self.columns
        times = self._times(frame)
        log_rows = np.arange(len(frame)) + (number << 40)
        if LOG_ROW in frame:
            log_rows = _host_numbers(frame, LOG_ROW)
        rows = {
            ID: self._ids_on_host(frame, columns.item), TIME: ordered_times(times),
            ITEM_LOG_ROW: log_rows,
        }  # fmt: skip
        found = {}
        for name in names:
            known = self._is_known(frame, name)
            value = self._item_value(frame, name, known)
            table = pa.table({**rows, KNOWN: known, VALUE: value})
            found[name] = table.filter(pa.array(rows[ID] > 0))
        return found

    def _is_known(self, frame: Any, name: str) -> npt.NDArray[np.bool_]:
        """Which rows say something of a feature of their item."""
        if name + RAW not in frame:
            if name in self.columns.features.numbers(ITEM):
                return np.asarray(np.isfinite(on_host(_numbers(frame, name))))
            if name in self._shifts and name not in self.columns.list_names:
                return np.asarray(self._ids_on_host(frame, name) > 0)
            return np.asarray(column_to_arrow(frame, name).is_valid())
        cycle = cycles_of(self.columns.features).get(name, ())
        table = pa.table({one: column_to_arrow(frame, one + RAW) for one in {name, *cycle}})
        return known_rows(name, table, cycle)

    def _item_value(self, frame: Any, name: str, known: Array) -> pa.Array:
        """What an item table holds of a column of items: ids, numbers, lists or vectors."""
        if name in self._shifts and name not in self.columns.list_names:
            return pa.array(self._ids_on_host(frame, name))
        values = column_to_arrow(frame, name)
        if name in self.columns.list_names:
            return _list_ids(values, self._shifts[name])
        if name in self.columns.features.numbers(ITEM):
            numbers = on_host(_numbers(frame, name))
            self._check(frame, name, numbers[known], np.flatnonzero(known))
            return pa.array(numbers)
        return values

    def fitted_beyond(self, read: int, trains: int) -> int:
        """How many rows that ``fit`` saw do not train; of a log of so many rows, so many train.

        Each user's last rows are not told from others by what ``fit`` saw, but by their number.
        A workflow that was loaded does not know it any more.
        """
        if self.fitted_rows is None or self.rules.fit_on == ALL_ROWS:
            return 0
        rows, held_out = self.fitted_rows
        if self.split is None and rows == read:
            return read - trains
        return held_out

    # ---- transform ----

    def times_that_train(self, frame: Any) -> pa.Array:
        """The times of the rows of a partition, as the log has it, that train."""
        times = self._times(frame)
        assert self.split is not None
        parts = self.split.parts(_keys(frame, self.columns.user), times)
        return times.filter(pa.array(parts == 0))

    def validate_from(self, time: str) -> None:
        """Have rows of a time and later validate, where they do not test."""
        assert self.split is not None
        self.rules = replace(self.rules, validation_from=time)
        self.split = replace(self.split, validation_from=time)

    def trains(self, frame: Any) -> npt.NDArray[np.bool_]:
        """Whether each row of a partition, as the log has it, trains; see ``rows_that_train``."""
        ordered = self._ordered(frame, "")
        found = np.empty(len(ordered.order), bool)
        found[ordered.order] = ordered.parts == 0
        return found

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Group one partition."""
        xp = array_module(df)
        if not len(df):
            return self._no_rows(xp, df)
        ordered = self._ordered(df, RAW)
        users = ordered.order[ordered.offsets[:-1]]
        ids = self._ids(df, self.columns.item)
        kept = self._kept(ordered, on_host(ids))
        found = self._user_columns(df, xp, users, kept)
        lists, offsets = self._lists(df, xp, ids, kept), xp.asarray(kept.offsets)
        for name, (dtype, is_list) in self._types().items():
            if is_list:
                found[name] = list_column(xp.asarray(lists[name]).astype(dtype), offsets, like=df)
            else:
                found[name] = xp.asarray(found[name]).astype(dtype)
        return new_frame({name: found[name] for name in self._types()}, like=df)

    def _no_rows(self, xp: Any, df: Any) -> Any:
        """The columns without a row: Merlin's executor gives no inputs where there is none."""
        nothing, offsets = xp.zeros(0, "int64"), xp.zeros(1, "int64")
        return new_frame(
            {
                name: list_column(nothing.astype(dtype), offsets, like=df)
                if is_list
                else nothing.astype(dtype)
                for name, (dtype, is_list) in self._types().items()
            },
            like=df,
        )

    def _ordered(self, frame: Any, raw: str) -> Ordered:
        """Order the rows by user, time, and what orders those of one time."""
        columns = self.columns
        times = self._times(frame)
        users, items = (_keys(frame, name + raw) for name in (columns.user, columns.item))
        rows = pa.table({columns.user: users, columns.item: items, columns.timestamp: times})
        codes = ordered_codes(users)
        ties = order_within_times(rows, columns, self.rules)
        given = [_host_numbers(frame, name) for name in self._part_columns()]
        order = order_by(
            codes, [keys_of(times), *(keys_of(pa.array(part)) for part in given), *ties]
        )
        counts = np.bincount(codes) if len(codes) else codes
        offsets = np.concatenate([[0], np.cumsum(counts[counts > 0])]).astype(np.int64)
        roles = self._roles(frame, is_log=not raw)[order]
        if self.split is None:
            held_out = 2 if self.rules.validates_last else 1
            parts = last_parts((roles & SAMPLE) > 0, offsets, held_out)
        else:
            parts = (given[0] if given else self.split.parts(users, times))[order]
        return Ordered(order, offsets, ordered_times(times)[order], roles, parts)

    def _kept(self, ordered: Ordered, items: Array) -> Ordered:
        """The rows whose item has an id.

        Where all rows were fitted on, each user's last one that is left tests. Otherwise a row
        that trained stays one, whatever is left out behind it.
        """
        kept = ordered.kept(items[ordered.order] > 0)
        if self.split is not None or self.rules.fit_on != ALL_ROWS:
            return kept
        is_sample, held_out = (kept.roles & SAMPLE) > 0, len(self.rules.mappings) - 1
        return replace(kept, parts=last_parts(is_sample, kept.offsets, held_out))

    def _part_columns(self) -> tuple[str, ...]:
        return () if self.split is None else self.split.part_columns

    def _user_columns(self, frame: Any, xp: Any, users: Array, kept: Ordered) -> dict[str, Any]:
        columns, layout = self.columns, self.layout
        has_any = np.diff(kept.offsets) > 0
        last = np.maximum(kept.offsets[1:] - 1, 0)
        lasts = kept.order[last] if len(kept.order) else np.zeros(len(users), np.int64)
        users, lasts, has_any = (xp.asarray(array) for array in (users, lasts, has_any))
        found: dict[str, Any] = {}
        for name in columns.users:
            if name not in layout.per_interaction:
                ids = self._ids(frame, name)
                changes = name in columns.changing_keys
                found[name] = xp.where(has_any, ids[lasts], 0) if changes else ids[users]
        for name in columns.features.numbers(USER):
            if name not in layout.per_interaction:
                changes = name in columns.changing_numbers
                found[name] = self._number(frame, name)[lasts if changes else users]
        if layout.samples_before is not None:
            found[layout.samples_before] = _numbers(frame, EARLIER)[users]
        if layout.user_hash is not None:
            keys = _keys(frame, columns.user + RAW).take(pa.array(on_host(users)))
            if pa.types.is_dictionary(keys.type):
                keys = keys.dictionary_decode()
            found[layout.user_hash] = xp.asarray(
                hashes_without_id(on_host(self._ids(frame, columns.user)[users]), keys)
            )
        return found | self._positions(self._samples(kept), kept)

    def _samples(self, kept: Ordered) -> Positions:
        same_time = None
        if self.columns.time_numbers:
            same_time = np.arange(len(kept.order)) - first_of_times(kept.time_numbers, kept.offsets)
        return find_positions(kept.offsets, kept.roles, same_time)

    def _positions(self, samples: Positions, kept: Ordered) -> dict[str, Array]:
        least: Any = self.rules.shortest_sequence_for_training
        if self.columns.roles or self.columns.time_numbers:  # not all that stands before is seen
            too_early = counted_before(np.asarray(samples.seen) < least)
            least = too_early[samples.starts[1:]] - too_early[samples.starts[:-1]]
        found: dict[str, Array] = {}
        before: Any = np.zeros(len(samples.starts) - 1, np.int64)
        for part, (mapping, names) in enumerate(self.layout.positions.items()):
            counts = counted_before(kept.parts[samples.interactions] <= part)
            ends = counts[samples.starts[1:]] - counts[samples.starts[:-1]]
            needs = 0 if self.split is None and mapping == self.rules.mappings[-1] else least
            begins = np.minimum(np.maximum(before, needs), ends)
            found |= dict(zip(names, (begins, ends), strict=True))
            before = ends
        return found

    def _lists(self, frame: Any, xp: Any, ids: Any, kept: Ordered) -> dict[str, Any]:
        """The other lists of a history, of each interaction."""
        layout, columns, order = self.layout, self.columns, xp.asarray(kept.order)
        own = behind = np.arange(len(kept.order))
        lists: dict[str, Any] = {layout.history: ids[order]}
        if layout.times is not None:
            lists[layout.times] = self._seconds(frame)[kept.order]
        if layout.same_time is not None:
            behind = first_of_times(kept.time_numbers, kept.offsets)
            lists[layout.same_time] = own - behind
        if layout.roles is not None:
            lists[layout.roles] = kept.roles
        if layout.changed_at is not None:
            lists[layout.changed_at] = kept.time_numbers
        before = behind - np.repeat(kept.offsets[:-1], np.diff(kept.offsets))
        for number in columns.features.lagging:
            values = self._number(frame, number.name)[order]
            for name, lag in number.lagged.items():
                # 0 where there was none: what operators bring to 0 is in the middle, or the least.
                lagging = values[xp.asarray(np.maximum(behind - lag, 0))]
                lists[name] = xp.where(xp.asarray(before >= lag), lagging, 0)
        for name in layout.per_interaction:
            if name in (*columns.changing_keys, *columns.contexts):
                lists[name] = self._ids(frame, name)[order]
            elif name not in lists:
                lists[name] = self._number(frame, name)[order]
        return lists

    def count_counted(self, frame: Any) -> dict[str, int]:
        """Count the samples that ``encodings`` counted, whose own label they show, by mapping."""
        until = self.items.fitted.counted_until
        kept, samples, _ = self._grouped(frame)
        seconds = self._seconds(frame)[kept.order]
        return {
            mapping: int(
                (seconds[self._users_and_indices(mapping, kept, samples)[1]] <= (until or 0)).sum()
            )
            for mapping in self.layout.positions
        }

    def _grouped(self, frame: Any) -> tuple[Ordered, Positions, Array]:
        """The rows that are left of a partition, their samples, and the items of all rows."""
        items = self._ids_on_host(frame, self.columns.item)
        kept = self._kept(self._ordered(frame, RAW), items)
        return kept, self._samples(kept), items

    def _users_and_indices(
        self, mapping: str, kept: Ordered, samples: Positions
    ) -> tuple[Array, Array]:
        """Whose each sample of a mapping is, and where it stands among the rows that are left."""
        positions = self._positions(samples, kept)
        begins, ends = (positions[name] for name in self.layout.positions[mapping])
        counts = ends - begins
        users = np.repeat(np.arange(len(counts)), counts)
        firsts = np.repeat(samples.starts[:-1] + begins - np.cumsum(counts) + counts, counts)
        return users, np.asarray(samples.interactions)[firsts + np.arange(len(users))]

    def count_outdated(
        self, frame: Any, values: ItemValues | None, latest: Mapping[str, Array]
    ) -> int:
        """Count what trains and whose user or item has another value than the ``latest``."""
        columns = self.columns
        kept, samples, items = self._grouped(frame)
        users, indices = self._users_and_indices(TRAIN, kept, samples)
        rows, lasts = kept.order[indices], kept.order[kept.offsets[users + 1] - 1]
        found = np.zeros(len(rows), bool)
        for name in (*columns.changing_keys, *columns.changing_numbers):
            of_key = name in columns.changing_keys
            stored = on_host((self._ids if of_key else self._number)(frame, name))
            found |= stored[rows] != stored[lasts]
        for name, by_item in latest.items():
            assert values is not None
            found |= values.is_outdated(name, items[rows], kept.time_numbers[indices], by_item)
        return int(found.sum())

    # ---- reading columns ----

    def _ids(self, frame: Any, name: str) -> Any:
        codes, xp = values_of(frame[name]), array_module(frame)
        shift = self._shifts.get(name, CODES_BEFORE_KEYS)
        return xp.maximum(codes - shift, 0) if shift else codes

    def _ids_on_host(self, frame: Any, name: str) -> Array:
        ids: Array = on_host(self._ids(frame, name))
        return ids

    def _number(self, frame: Any, name: str) -> Any:
        """A number that operators made; UnfitNumberError where it is none that 32 bits hold."""
        numbers = _numbers(frame, name)
        self._check(frame, name, numbers)
        return numbers

    def _check(self, frame: Any, name: str, numbers: Any, rows: Array | None = None) -> None:
        """Refuse numbers that 32 bits do not hold; they are of ``rows``, of all if None."""
        xp = np if isinstance(numbers, np.ndarray) else array_module(frame)
        with np.errstate(over="ignore"):
            wrong = ~xp.isfinite(numbers.astype("float32"))
        if not wrong.any():
            return
        index = int(on_host(wrong).argmax())
        expected, of = "a finite number of 32 bits", ""
        for number in self.columns.features:
            if number.name == name and isinstance(number, Number) and number.operators:
                expected = expected_of(number)
        if name + RAW in frame:
            row = index if rows is None else int(rows[index])
            of = f"Of {column_to_arrow(frame, name + RAW)[row].as_py():g} "
        raise UnfitNumberError(
            f"{name!r}: expected {expected}. {of}came {float(numbers[index]):g}."
        )

    def _times(self, frame: Any) -> pa.Array:
        name = self.columns.timestamp
        return read_times(column_to_arrow(frame, name), name)

    def _seconds(self, frame: Any) -> npt.NDArray[np.float64]:
        """The times of rows in seconds since 1970; refuse a unit that they cannot have."""
        if SECONDS in frame:
            return _host_numbers(frame, SECONDS, np.float64)
        times, unit = self._times(frame), self.columns.features.timestamp_unit
        kind, ends = kind_of_times(times.type), TimeRange.of(times_of(times, "")[0], LOG)
        if ends is not None:
            known_times(ends, kind, unit, True, self.columns.timestamp)
        return np.asarray(seconds_of(times, unit)[0])

    def _roles(self, frame: Any, is_log: bool = False) -> Array:
        """What part each row plays; the label of a log is left to the graph, which may change it.

        Whatever its label is, each row is a sample then.
        """
        for name in self.columns.roles:
            if name == ROLE:
                return _host_numbers(frame, name)
            if is_log:
                return np.full(len(frame), SHOWN_ROLES, np.int64)
            values = column_to_arrow(frame, name)
            labels = labels_of(values)
            refuse_nulls(labels, values, name, EXPECTED_LABEL)
            return np.asarray(roles_of_labels(np.asarray(labels).astype(np.int64)))
        return np.full(len(frame), TAKEN_ROLES, np.int64)

    # ---- saving ----

    def learn_from(self, other: GroupHistories, grow: bool) -> None:
        """Know what another one learned; ``fit`` goes on from that where it grows."""
        self.items = replace(other.items, columns=self.columns, grows=grow)
        self.sizes = dict(other.sizes)

    def get_config(self) -> dict[str, Any]:
        """Return the columns and the rules, as JSON holds them."""
        columns, split = self.columns, self.split
        features = columns.features
        return {
            "columns": {name: of for name, of in vars(columns).items() if name != "features"},
            "features": features.to_plain() if features or features.timestamp_unit else None,
            "rules": self.rules.to_dict(),
            "times": None if split is None else [split.test_from, split.validation_from],
            "reads_raw": self.reads_raw,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GroupHistories:
        """Make the operator that ``get_config`` describes."""
        where = cls.__name__
        stated = config["features"]
        features = FeatureSet() if stated is None else features_from_plain(stated, where)
        leave_out = ("features",)
        named = checked_arguments(
            config["columns"], BehaviourColumns, f"{where}.columns", leave_out
        )
        columns = BehaviourColumns(**named, features=features)
        rules = SampleRules(**checked_arguments(config["rules"], SampleRules, f"{where}.rules"))
        split = rules.split
        if split is not None and config["times"] is not None:
            test_from, validation_from = config["times"]
            split = replace(split, test_from=test_from, validation_from=validation_from)
        made = cls.of(columns, rules, split)
        made.reads_raw = config["reads_raw"]
        return made

    def get_learned(self, directory: Path) -> dict[str, Any]:
        """Return what ``fit`` learned; the item table goes into ``directory``."""
        return {
            **self.items.save(directory),
            "sizes": self.sizes,
            "shifts": self._shifts,
            "counts_events": self.counts_events,
            "changing_items": [*self.changing_items],
        }

    def vocabularies_in(self, root: Path) -> list[str]:
        """The vocabularies of a dataset directory that the ids of its rows are of."""
        files = [f"{CATEGORIES}/{name}.parquet" for name in self.columns.domains]
        return [file for file in files if (root / file).is_file()]

    def set_learned(self, learned: Mapping[str, Any], directory: Path) -> None:
        """Take what ``get_learned`` gave."""
        self.items = self.items.load(learned, directory)
        self.sizes, self._shifts = dict(learned["sizes"]), dict(learned["shifts"])
        self.counts_events = learned["counts_events"]
        self.changing_items = tuple(learned["changing_items"])


def _domain(column: ColumnSchema) -> tuple[int, int]:
    """How many codes come before the first id of a column, and how many ids it has."""
    properties = column.properties
    if "cat_path" not in properties:
        raise MerlinSimError(
            f"GroupHistories: column {column.name!r}: expected ids of Categorify, found "
            f"{column.dtype.name} of another operator or of the log. Id 0 pads histories, and only "
            "Categorify leaves room for it: put `>> ops.Categorify()` behind, also behind "
            "`HashBucket`."
        )
    most = int(properties.get("domain", {}).get("max") or 0)
    shift = CODES_BEFORE_KEYS - 1 if properties.get("num_buckets") else CODES_BEFORE_KEYS
    return shift, max(0, most - shift)


def _keys(frame: Any, name: str) -> pa.Array:
    """A column of the keys of users or items, of which each row has one, on the host."""
    keys = column_to_arrow(frame, name)
    refuse_nulls(keys, keys, name.removesuffix(RAW), "a value")
    return keys


def _users(frame: Any) -> npt.NDArray[np.uint64]:
    """Hashes of the users of a partition, each once, of a frame of their column alone."""
    return np.unique(hash_keys(distinct(_keys(frame, frame.columns[0]))))


def _host_numbers(frame: Any, name: str, dtype: Any = np.int64) -> Array:
    """A column of numbers on the host; NaN where one is missing."""
    values = column_to_arrow(frame, name)
    if values.null_count:
        values = values.fill_null(np.nan if dtype is np.float64 else 0)
    return np.asarray(values).astype(dtype, copy=False)


def _numbers(frame: Any, name: str) -> Any:
    """A column of numbers where the frame is; NaN where one is missing."""
    column = frame[name]
    if is_on_gpu(frame):
        return column.astype("float64").fillna(float("nan")).values
    return np.asarray(column, np.float64)


def _list_ids(values: pa.Array, shift: int) -> pa.Array:
    """Lists of ids of lists of codes; what has none is left out."""
    offsets = np.asarray(values.offsets).astype(np.int64)
    codes = np.asarray(values.flatten()).astype(np.int64)
    ids = codes - shift
    kept = counted_before(ids > 0)[offsets - offsets[0]]
    return pa.ListArray.from_arrays(pa.array(kept, pa.int32()), pa.array(ids[ids > 0]))
