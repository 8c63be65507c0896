"""A run on grown data that begins with what a run on the data before has learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...models.family import ATTENTION
from ...models.saving import check_arrays, counted_names, table_names
from ...parallel.checkpoints.array_files import StoredArrays
from ...parallel.checkpoints.checkpoint_files import CheckpointError, SavedCheckpoint
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of, other_meanings
from ...schemas.layout_names import CATEGORIES
from . import MEAN
from .run_state import RATE, Position, RunState, arrays_of_variables, ids_of

Array = npt.NDArray[Any]

SECOND_MOMENTS = ("v", "sum")
"""The slots that are 0 in the rows of tables that never had a gradient."""


class MeanRows:
    """The means of a checkpoint's trained rows: of an item's category where it is known.

    The vocabulary of the items of the dataset at hand may give the category of each.
    """

    def __init__(self, arrays: StoredArrays, dataset: DatasetDirectory) -> None:
        self._arrays = arrays
        self._item, self._category_of = _categories(dataset)

    def of(self, variable: str, table: str, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
        """Return the first vectors of new rows, [rows, columns].

        Args:
            variable: The table's name among the arrays.
            table: The table, which is called as its domain, or as that of attention.
            rows: The first, and the one behind the last; all of them new.
            columns: The same of the columns.
        """
        groups = self._category_of if table.removesuffix(ATTENTION) == self._item else None
        count = 1 if groups is None else int(groups.max(initial=0)) + 1
        sums = np.zeros((count, columns[1] - columns[0]), np.float64)
        counts = np.zeros(count, np.int64)
        for begin, end in self._stored_rows(variable):
            values = self._arrays.read(variable, (begin, end), columns)
            trained = self._trained(variable, begin, end)
            group = np.zeros(end - begin, np.int64) if groups is None else groups[begin:end]
            group = group[trained]
            for column, of_column in enumerate(values[trained].T):
                sums[:, column] += np.bincount(group, of_column, count)
            counts += np.bincount(group, minlength=count)
        if not counts.any():  # nothing was trained, and one row is as good as another
            return np.zeros((rows[1] - rows[0], sums.shape[1]), np.float32)
        overall = sums.sum(axis=0) / counts.sum()
        means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], overall)
        if groups is None:
            means, groups = overall[None], np.zeros(rows[1], np.int64)
        else:
            means[0] = overall  # of items whose category is not known
        return means[groups[rows[0] : rows[1]]].astype(np.float32)

    def _stored_rows(self, variable: str) -> list[tuple[int, int]]:
        """Return the rows of a table as its files have them: memory is that of one part."""
        parts = self._arrays.index[variable].parts
        cuts = sorted({bound for part in parts for bound in part.rows})
        return list(zip(cuts, cuts[1:], strict=False))

    def _trained(self, variable: str, begin: int, end: int) -> Array:
        """Return which rows ever had a gradient; the first row is no key's."""
        trained = np.ones(end - begin, bool)
        for slot in SECOND_MOMENTS:
            if f"{variable}/{slot}" in self._arrays.index:
                moments = self._arrays.read(f"{variable}/{slot}", (begin, end))
                trained &= (moments != 0).any(axis=1)
        if begin == 0:
            trained[:1] = False
        return trained


def _categories(dataset: DatasetDirectory) -> tuple[str | None, Array | None]:
    """Return the items' domain, and the category of each item by its id; 0 for none."""
    features = dataset.channels.get(TARGET_ITEM_FEATURES, [])
    domains = [domain_of(dataset.schema[name]) for name in features[:2]]
    if len(domains) < 2 or None in domains:
        return None, None
    (item, largest), (category, _) = (domain for domain in domains if domain is not None)
    path = dataset.path / CATEGORIES / f"{item}.parquet"
    if not path.is_file():
        return None, None
    try:
        if category not in pq.read_schema(path).names:
            return None, None
        table = pq.read_table(path, columns=["id", category])
        ids, found = (table[name].fill_null(0).to_numpy() for name in ("id", category))
    except (OSError, pa.ArrowException) as error:
        raise MerlinSimError(f"{path}: expected ids and their {category}: {error}") from error
    category_of = np.zeros(largest + 1, np.int64)
    known = (ids >= 0) & (ids <= largest)
    category_of[ids[known]] = found[known]
    return item, category_of


@dataclass
class WarmStart:
    """Takes weights and optimizer over into tables that may have more rows.

    Rows of keys that were known keep their vectors and slots; rows of new keys begin with slots of
    0 and the mean of trained rows, or with what they were drawn as. Steps go on to be counted,
    epochs begin anew.
    """

    state: RunState
    dataset: DatasetDirectory
    new_rows: str
    """One of :data:`~merlin_sim.training.checkpoints.NEW_ROWS`."""
    added: dict[str, int] = field(default_factory=dict)
    """Table -> how many rows it did not have before."""

    def check(self, checkpoint: SavedCheckpoint) -> None:
        """Refuse a checkpoint that this run cannot begin with, saying all reasons."""
        problems = [
            *self.state.metadata.other_model(checkpoint.metadata),
            *self._other_ids(checkpoint),
        ]
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise CheckpointError(
                f"{checkpoint.path} cannot be trained on with {self.dataset.path}:\n{lines}"
            )

    def _other_ids(self, checkpoint: SavedCheckpoint) -> list[str]:
        if checkpoint.metadata["dataset"] == self.state.metadata.dataset:
            return []
        problems = other_meanings(ids_of(checkpoint), self.dataset.schema, self.dataset.path)
        if problems:
            problems.append(
                "the dataset did not grow from that of the checkpoint, and ids would mean other "
                "things: preprocess it with the vocabularies of that one (--fitted)"
            )
        return problems

    def restore(self, checkpoint: SavedCheckpoint) -> None:
        """Take everything over, on the first rank."""
        self.check(checkpoint)
        # What is counted in the data is counted in those of this run.
        counted = counted_names(self.state.model)
        variables = {n: v for n, v in self.state.variables.items() if n not in counted}
        variables.pop(RATE, None)  # the run has its own
        self._assign(checkpoint, variables, arrays_of_variables(checkpoint) - counted - {RATE})
        self.state.position = Position(steps=checkpoint.metadata["steps"])

    def restore_own(self, checkpoint: SavedCheckpoint) -> None:
        """Take this rank's parts of tables over, on another rank than the first."""
        parts = self.state.parts
        own = {name: v for name, v in self.state.variables.items() if name in parts}
        self._assign(checkpoint, own, set())

    def _assign(
        self, checkpoint: SavedCheckpoint, variables: dict[str, tf.Variable], expected: set[str]
    ) -> None:
        tables = self.state.tables
        check_arrays(variables, checkpoint, expected, self.state.parts, tables)
        means = MeanRows(checkpoint.arrays, self.dataset) if self.new_rows == MEAN else None
        for name, variable in variables.items():
            with tf.device(variable.device):
                if name in tables:
                    self._assign_rows(checkpoint, name, variable, tables[name], means)
                else:
                    variable.assign(checkpoint.arrays[name])

    def _assign_rows(
        self,
        checkpoint: SavedCheckpoint,
        name: str,
        variable: tf.Variable,
        table: str,
        means: MeanRows | None,
    ) -> None:
        """Give a table, a slot of one, or this rank's part of it, its rows."""
        part = self.state.parts.get(name)
        whole = variable.shape if part is None else part.whole_shape(variable.shape)
        rows, columns = (
            ((0, int(whole[0])), (0, int(whole[1])))
            if part is None
            else part.ranges(variable.shape)
        )
        stored = checkpoint.arrays.index[name].shape[0]
        is_table = name in table_names(self.state.model)
        if is_table:
            self.added[table] = int(whole[0]) - stored
        known = min(rows[1], max(rows[0], stored))
        values = variable.numpy()  # as they were drawn; slots are 0
        if known > rows[0]:
            read = checkpoint.arrays.read(name, (rows[0], known), columns)
            values[: known - rows[0]] = read
        if is_table and means is not None and known < rows[1]:
            values[known - rows[0] :] = means.of(name, table, (known, rows[1]), columns)
        variable.assign(values)
