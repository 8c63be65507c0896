"""With what vectors the rows of keys begin that a table did not have before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...checkpoints.array_files import StoredArrays
from ...foundation.exceptions import MerlinSimError
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import CATEGORIES, domain_of

Array = npt.NDArray[Any]

SECOND_MOMENTS = ("v", "sum")
"""The slots that are 0 in the rows of tables that never had a gradient."""


class MeanRows:
    """The means of a checkpoint's trained rows: of an item's category where it is known.

    Args:
        arrays: of the checkpoint.
        dataset: at hand; the vocabulary of its items may tell the category of each.
    """

    def __init__(self, arrays: StoredArrays, dataset: DatasetDirectory) -> None:
        """Read the items' categories."""
        self._arrays = arrays
        self._item, self._category_of = _categories(dataset)

    def of(self, variable: str, table: str, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
        """Return the first vectors of new rows, [rows, columns].

        Args:
            variable: The table's name among the arrays.
            table: The table, which is called as its domain.
            rows: The first, and the one behind the last; all of them new.
            columns: The same of the columns.
        """
        groups = self._category_of if table == self._item else None
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
        cuts = sorted({place for part in parts for place in part.rows})
        return list(zip(cuts, cuts[1:], strict=False))

    def _trained(self, variable: str, begin: int, end: int) -> Array:
        """Tell which rows ever had a gradient; the first row is no key's."""
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
