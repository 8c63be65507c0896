"""Categorify's codes become the ids of the dataset contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merlin.core.dispatch import is_list_dtype
from nvtabular.ops import Operator

from ..engine.backend import array_module, list_column, lists_of, values_of

CODE_OF_FIRST_KEY = 3  # Categorify: 0 pads, 1 is null, 2 is out of vocabulary


class ContractIds(Operator):
    """Shift Categorify's codes so that ids run 1..n and 0 pads.

    A null and a key that was not there when the workflow was fitted have no id. In a column of
    single values they become 0, whose embedding is never trained; out of a list they are left,
    and so is what stands at their places in the lists beside it. Keys beside it that are unknown
    become 0.

    >>> import pandas as pd
    >>> from nvtabular import ColumnSelector
    >>> codes = pd.DataFrame({"user": [3, 2, 4], "items": [[3, 5], [2, 1], [4, 2]]})
    >>> ids = ContractIds().transform(ColumnSelector(["user", "items"]), codes)
    >>> ids["user"].tolist(), [list(items) for items in ids["items"]]
    ([1, 0, 2], [[1, 3], [], [2]])

    Args:
        beside: A column of lists -> columns whose lists say more of its elements.
        numbers: Columns of numbers: what is not whole stays so, in lists too.
        keys: Those of the columns beside that are keys.
    """

    def __init__(
        self,
        beside: Mapping[str, tuple[str, ...]] | None = None,
        numbers: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.beside = dict(beside or {})
        self.numbers = numbers
        self.keys = keys

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Shift one partition."""
        xp = array_module(df)
        shifted = df.copy(deep=False)
        said_beside = {name for names in self.beside.values() for name in names}
        for name in col_selector.names:
            if name in said_beside or name in self.numbers:
                continue
            if not is_list_dtype(df[name]):
                codes = values_of(df[name])
                shifted[name] = xp.maximum(codes - (CODE_OF_FIRST_KEY - 1), 0)
                continue
            codes, offsets = lists_of(df[name])
            known = codes >= CODE_OF_FIRST_KEY
            kept = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(known, dtype=xp.int64)])
            ids = codes[known] - (CODE_OF_FIRST_KEY - 1)
            shifted[name] = list_column(ids, kept[offsets], like=df)
            for other in self.beside.get(name, ()):
                dtype = "float64" if other in self.numbers else "int64"
                values = lists_of(df[other], dtype)[0][known]
                if other in self.keys:
                    values = xp.maximum(values - (CODE_OF_FIRST_KEY - 1), 0)
                shifted[other] = list_column(values, kept[offsets], like=df)
        return shifted
