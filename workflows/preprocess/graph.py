"""The NVTabular graph of ``preprocess``: raw interactions -> one row per user.

It is made of public operators alone; a workflow of one's own may be composed of the same ones.
Samples are made of users' rows by
:class:`~merlin_sim.dataloader.behaviour_samples.BehaviourSamples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nvtabular as nvt

from ..behaviour_columns import EARLIER, SECONDS, BehaviourColumns
from ..feature import INTERACTION, ITEM, USER, Number, Time
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
) -> nvt.WorkflowNode:
    """Make the graph of a log; ``fit`` keeps vocabularies where every worker has to see them."""
    graph = _Graph(columns, rules, directory)
    parts = () if split is None else split.part_columns
    given = [columns.timestamp, *columns.roles, *parts, *columns.log_rows]
    given += [SECONDS] * columns.features.needs_seconds + [EARLIER] * columns.continued
    nodes = [
        *graph.of_users(), *graph.of_interactions(), *graph.of_items(), nvt.ColumnSelector(given),
    ]  # fmt: skip
    together = nodes[0]
    for node in nodes[1:]:
        together = together + node
    return together >> GroupHistories.of(columns, rules, split)


class _Graph:
    def __init__(self, columns: BehaviourColumns, rules: SampleRules, directory: str) -> None:
        self.columns = columns
        self.directory = directory
        # A log may be sorted by its keys, and ids of items should not show that order.
        self.item_order = KEY if rules.equal_times == ITEM_ORDER else HASH

    def ids(self, order: str) -> Categorify:
        return Categorify(order=order, out_path=self.directory, cat_cache="host")

    def of_level(self, of: str, names: Sequence[str], read: Any, order: str) -> list[Any]:
        """Keys, numbers and times; ``read`` gives columns as they are at the time of a row."""
        features = self.columns.features
        bucketed = {number.name for number in features.bucketed(of)}
        keys = [name for name in names if name not in bucketed]
        nodes = [read(keys) >> self.ids(order)] if keys else []
        numbers = [f for f in features if isinstance(f, Number) and f.of == of]
        nodes += [self.chain(number, read([number.name]), order) for number in numbers]
        stored = (f.stored for f in features if isinstance(f, Time) and f.of == of)
        times = [name for names in stored for name in names]
        return nodes + ([read(times)] if times else [])

    def of_users(self) -> list[Any]:
        columns = self.columns
        nodes: list[Any] = [[columns.user] >> self.ids(KEY)]
        return nodes + self.of_level(USER, columns.user_features, self.filled, KEY)

    def of_interactions(self) -> list[Any]:
        return self.of_level(INTERACTION, self.columns.contexts, nvt.ColumnSelector, KEY)

    def of_items(self) -> list[Any]:
        columns, features = self.columns, self.columns.features
        if not columns.items_in_log:
            return [[columns.item] >> self.ids(self.item_order)]
        nodes = self.of_level(ITEM, columns.items, nvt.ColumnSelector, self.item_order)
        for feature in features.lists:
            nodes.append([feature.name] >> SplitKeys(feature.longest, SEPARATOR) >> self.ids(KEY))
        vectors = [feature.name for feature in features.vectors]
        return nodes + ([nvt.ColumnSelector(vectors)] if vectors else [])

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
