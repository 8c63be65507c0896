"""The NVTabular graph of ``preprocess``: raw interactions -> one row per user.

It is made of public operators alone; a workflow of one's own may be composed of the same ones.
Samples are made of users' rows by
:class:`~merlin_sim.dataloader.behaviour_samples.BehaviourSamples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nvtabular as nvt

from ..behaviour_columns import EARLIER, PLACE, SECONDS, BehaviourColumns
from ..feature import INTERACTION, ITEM, USER, FeatureSet, Number, Time
from ..known_values import cycles_of
from ..ops.categorify import Categorify
from ..ops.columns import FillAsOf, QuantileBuckets, SplitKeys
from ..ops.group_histories import GroupHistories
from ..raw_values import SEPARATOR
from ..rules import ITEM_ORDER, SampleRules, Split

KEY, HASH = "key", "hash"


def behaviour_graph(
    columns: BehaviourColumns,
    rules: SampleRules,
    split: Split | None = None,
    directory: str = "./",
    more: Sequence[str] = (),
) -> nvt.WorkflowNode:
    """Make the graph of a log; ``more`` columns are handed on as they are.

    ``fit`` keeps vocabularies in a directory that every worker has to see.
    """
    graph = _Graph(columns, rules, directory)
    parts = () if split is None else split.columns
    given = [columns.timestamp, *columns.roles, *parts, *more]
    given += [SECONDS] * columns.features.needs_seconds + [EARLIER] * columns.continued
    nodes = [
        *graph.of_users(), *graph.of_interactions(), *graph.of_items(), nvt.ColumnSelector(given),
    ]  # fmt: skip
    together = nodes[0]
    for node in nodes[1:]:
        together = together + node
    return together >> GroupHistories.of(columns, rules, split)


def place_columns(columns: BehaviourColumns) -> tuple[str, ...]:
    """The column that numbers the rows of a log, where their order counts."""
    return (PLACE,) if columns.continued or columns.items_in_log else ()


class _Graph:
    """The nodes of a log's columns."""

    def __init__(self, columns: BehaviourColumns, rules: SampleRules, directory: str) -> None:
        self.columns = columns
        self.directory = directory
        # A log may be sorted by its keys, and ids of items should not tell that order.
        self.item_order = KEY if rules.equal_times == ITEM_ORDER else HASH

    def ids(self, order: str) -> Categorify:
        """Keys become ids."""
        return Categorify(order=order, out_path=self.directory, cat_cache="host")

    def numbers(self, of: str) -> list[Number]:
        """The numbers of users, items or interactions."""
        features = self.columns.features
        return [f for f in features if isinstance(f, Number) and f.of == of]

    def of_users(self) -> list[Any]:
        """Users, and what is known of each at the time of a row."""
        columns = self.columns
        bucketed = {number.name for number in columns.features.bucketed(USER)}
        keys = [name for name in columns.user_features if name not in bucketed]
        nodes = [[columns.user] >> self.ids(KEY)]
        if keys:
            nodes.append(self.filled(keys) >> self.ids(KEY))
        nodes += [
            self.chain(number, self.filled([number.name]), KEY) for number in self.numbers(USER)
        ]
        times = _stored_times(columns.features, USER)
        return nodes + ([self.filled(times)] if times else [])

    def of_interactions(self) -> list[Any]:
        """What stands in a row alone."""
        columns = self.columns
        bucketed = {number.name for number in columns.features.bucketed(INTERACTION)}
        keys = [name for name in columns.contexts if name not in bucketed]
        nodes = [keys >> self.ids(KEY)] if keys else []
        nodes += [
            self.chain(n, nvt.ColumnSelector([n.name]), KEY) for n in self.numbers(INTERACTION)
        ]
        times = _stored_times(columns.features, INTERACTION)
        return nodes + ([nvt.ColumnSelector(times)] if times else [])

    def of_items(self) -> list[Any]:
        """Items, and what rows say of them."""
        columns, features = self.columns, self.columns.features
        named = columns.item_features if columns.items_in_log else ()
        bucketed = {number.name for number in features.bucketed(ITEM)}
        keys = [columns.item, *(name for name in named if name not in bucketed)]
        nodes: list[Any] = [keys >> self.ids(self.item_order)]
        if not columns.items_in_log:
            return nodes
        for number in self.numbers(ITEM):
            nodes.append(self.chain(number, nvt.ColumnSelector([number.name]), self.item_order))
        for feature in features.lists:
            nodes.append([feature.name] >> SplitKeys(feature.longest, SEPARATOR) >> self.ids(KEY))
        vectors = [feature.name for feature in features.vectors]
        given = [*_stored_times(features, ITEM), *vectors]
        return nodes + ([nvt.ColumnSelector(given)] if given else [])

    def filled(self, names: Sequence[str]) -> Any:
        """Columns of users, with what was known of each at the time of a row."""
        columns, cycles = self.columns, cycles_of(self.columns.features)
        own = {name: cycles[name] for name in names if name in cycles}
        fill = FillAsOf(columns.user, columns.timestamp, own)
        return [*names, columns.user, columns.timestamp] >> fill

    def chain(self, number: Number, node: Any, order: str) -> Any:
        """A number through its operators; in buckets it becomes an id."""
        for operator in number.operators:
            node = node >> getattr(nvt.ops, operator.name)(**operator.arguments)
        if number.buckets is not None:
            node = node >> QuantileBuckets(number.buckets) >> self.ids(order)
        return node


def _stored_times(features: FeatureSet, of: str) -> list[str]:
    times = (f for f in features if isinstance(f, Time) and f.of == of)
    return [name for time in times for name in time.stored]
