"""What the keys of a domain are, told without reading its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...schemas.item_table import KEY
from ..limits import RequestError
from ..servables.servable import Servable
from ..servables.served_columns import Column


@dataclass(frozen=True)
class KeyKind:
    """Which keys an event may have."""

    is_text: bool
    is_any: bool = False
    """Whether a number does as well as its text."""

    def check(self, key: Any, where: str) -> None:
        """Refuse a key for which every event that has it would be refused.

        Raises:
            RequestError: With what was expected.
        """
        if not self.is_any and isinstance(key, str) != self.is_text:
            expected = "a string" if self.is_text else "a whole number"
            raise RequestError(
                f"{where}: expected {expected}, as the model's keys are, received {key!r:.60}"
            )


def key_kind(servable: Servable, column: Column) -> KeyKind:
    """Tell what the keys of a column are."""
    path = servable.vocabulary(column.domain)
    if path is None:
        return KeyKind(is_text=False)
    from .log_lookup import is_of_numbers, read_workflow  # imports NVTabular

    workflow = read_workflow(servable)
    is_any = workflow is not None and is_of_numbers(workflow[0], column.domain)
    kind = pq.read_schema(path).field(KEY).type
    return KeyKind(pa.types.is_string(kind) or pa.types.is_large_string(kind), is_any)
