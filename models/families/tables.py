"""The embedding tables of a model, as its dataset's schema and its options tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...placement.table import Table


class HasWidths(Protocol):
    """Options that tell how long vectors are."""

    def widths(self, features: list[str]) -> list[int]:
        """Return the length of each feature's vector."""


def tables_of(schema: Any, options: HasWidths, names: Sequence[str]) -> list[Table]:
    """Return one table for each domain of some categorical columns.

    Args:
        schema: the Merlin schema of the dataset.
        options: of the model.
        names: the columns that are looked up.
    """
    columns = [schema[name] for name in names]
    widths = options.widths([column.name for column in columns])
    found: dict[str, Table] = {}
    for column, width in zip(columns, widths, strict=True):
        domain = column.int_domain
        name = str(domain.name or column.name)
        before = found[name].lookups if name in found else 0
        longest = int(column.value_count.max) if column.is_list else 1
        found[name] = Table(name, int(domain.max) + 1, width, before + longest)
    return list(found.values())
