"""Keys become ids, by tables that lie on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nvtabular.ops import Operator

from ..criteo.key_table import KeyTable
from ..engine.backend import new_frame


class LookUpKeys(Operator):
    """Look keys of 32 bits up; those that are missing (negative) or unknown get id 0.

    NVTabular's Categorify reads a column's vocabulary into every worker's memory; here the workers
    of a machine share what lies on disk, whatever its size.

    Args:
        tables: Column -> its table.
    """

    def __init__(self, tables: Mapping[str, KeyTable]) -> None:
        """Store the argument."""
        super().__init__()
        self.tables = dict(tables)

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Transform one partition."""
        columns = {name: self.tables[name].look_up(df[name].values) for name in col_selector.names}
        return new_frame(columns, like=df)
