"""Changes to tables before they are written: cells, lengths, types, names, rows."""

import decimal
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from .truth import is_list

ODD_CELLS = st.one_of(
    st.sampled_from([None, -1, 0, 1, 5, 6, 7, 8, 39, 40, 60, 61, 300, -(2**31), 2**31 - 1, 2**31]),
    st.sampled_from([2**31 + 5, 2**32, 2**32 + 3, 2**33 + 7, 2**63 - 1, -(2**63), 2097209]),
    st.sampled_from([2.0, 0.5, 3.7, float("nan"), float("inf"), -0.0, 1e-40, 1e300, 2.0**53]),
)
NAMES = ["{0}.x", "{0}.list.element", ".{0}", "{0}.", "{0}.list", "{0}\0x", "{0} ", "{0}.é", ""]
PLAIN = ["int8", "int16", "int32", "uint8", "uint32", "uint64", "float32", "float64"]
KINDS: dict[str, Callable[[list[int]], pa.Array]] = {
    "float16": lambda ids: pa.array(np.array(ids, np.float16)),
    "bool": lambda ids: pa.array([bool(each % 2) for each in ids]),
    "text": lambda ids: pa.array(list(map(str, ids)), pa.string()),
    "binary": lambda ids: pa.array([str(each).encode() for each in ids], pa.binary()),
    "decimal": lambda ids: pa.array(list(map(decimal.Decimal, ids)), pa.decimal128(5, 0)),
    "timestamp": lambda ids: pa.array(ids, pa.timestamp("us")),
    "dictionary": lambda ids: pa.array(ids, pa.int64()).dictionary_encode(),
    "dictionary of text": lambda ids: pa.array(list(map(str, ids))).dictionary_encode(),
    "struct": lambda ids: pa.StructArray.from_arrays([pa.array(ids, pa.int64())], ["x"]),
    "list": lambda ids: pa.array([[each] for each in ids], pa.list_(pa.int64())),
}


class TableDamage(NamedTuple):
    """A change to a table; column, row and number are counted around those that are there."""

    how: str
    column: int
    row: int
    number: int
    value: Any

    def made(self, table: pa.Table) -> pa.Table:
        if not table.column_names:
            return table
        names = [*(n for n in table.column_names if n)] or table.column_names
        name = names[self.column % len(names)]
        cells, kind = table[name].to_pylist(), table.schema.field(name).type
        row = self.row % max(1, len(cells))
        if self.how == "rows":
            return table.slice(0, self.number % 3)
        if self.how == "drop":
            return table.drop([name])
        if self.how == "rename":
            other = self._other_name(table, name)
            return table.rename_columns([other if n == name else n for n in table.column_names])
        if self.how == "add":
            spare = pa.array(np.arange(len(table)) % 5 + 1)
            return table.append_column(self._other_name(table, name), spare)
        if self.how == "type":
            return _put(table, name, self._retyped(cells, kind))
        if not cells:
            return table
        if self.how == "nothing":
            cells[row] = None
        elif isinstance(cells[row], list) and self.how == "length":
            cells[row] = (cells[row] + [1] * 20)[: self.number % 20]
        else:
            cells[row] = self._changed(cells[row])
        return _stored_again(table, name, cells, kind)

    def _changed(self, cell: Any) -> Any:
        if isinstance(cell, list):
            index = self.number % max(1, len(cell))
            return [*cell[:index], *map(self._changed, cell[index : index + 1]), *cell[index + 1 :]]
        is_nearby = self.how == "nearby" and isinstance(cell, int | float)
        return cell + (-1, 1, 2)[self.number % 3] if is_nearby else self.value

    def _retyped(self, cells: list[Any], kind: pa.DataType) -> pa.Array:
        kinds = [*KINDS, *PLAIN]
        chosen = kinds[self.number % len(kinds)]
        made = KINDS.get(chosen) or (lambda ids: pa.array(ids).cast(getattr(pa, chosen)()))
        if not is_list(kind):
            return made(list(map(_whole, cells)))
        lists = [[_whole(each) for each in cell or []] for cell in cells]
        flat = pa.array([each for ids in lists for each in ids], pa.int64()).to_pylist()
        offsets = np.cumsum([0, *map(len, lists)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), made(flat or [0])[: len(flat)])

    def _other_name(self, table: pa.Table, name: str) -> str:
        names = [*(each.format(name) for each in NAMES), *table.column_names]
        return names[self.number % len(names)]


HOWS = ["cell", "nearby", "nothing", "length", "type"]
_NUMBER = st.integers(0, 999)
TABLE_DAMAGES = st.builds(
    TableDamage,
    st.sampled_from([*HOWS, *HOWS, "drop", "rename", "add", "rows"]),
    *(_NUMBER, _NUMBER, _NUMBER),
    ODD_CELLS,
)


def _whole(cell: Any) -> int:
    try:
        return int(cell) % 128
    except (TypeError, ValueError, OverflowError):
        return 0


def _put(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, pa.field(name, array.type), array)


def _stored_again(table: pa.Table, name: str, cells: list[Any], kind: pa.DataType) -> pa.Table:
    """Cells as their column is stored, or as wider numbers where these do not hold one."""
    element = kind.value_type if is_list(kind) else kind
    for wider in (element, pa.int64(), pa.float64()):
        try:
            return _put(table, name, pa.array(cells, pa.list_(wider) if is_list(kind) else wider))
        except (pa.ArrowException, OverflowError, TypeError):
            continue
    return table
