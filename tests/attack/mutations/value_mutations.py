"""Changes to a table before it is written: values, types, names, rows."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ..datasets.draft import LONGEST, Draft, Form
from ..kinds import MutationKind, pick

ODD_IDS = [
    *(-1, 0, 61, 62, 1000, -(2**31), 2**31 - 1, 2**31, 2**31 + 5, 2**32, 2**32 + 3, 2**33 + 7),
    *(2**63 - 1, -(2**63), -(2**32) + 4, 2097209, 100000, -7),
]
ODD_LABELS = [2.0, -1.0, 0.5, float("nan"), float("inf"), -0.0, 1e-40, 0.99999994]
ODD_FLOATS = [3.7, float("nan"), float("inf"), float("-inf"), -0.5, 1e300, 2.0**53, 5.0]
NAMES = ["{0}.x", "{0}.list.element", ".{0}", "{0}.", "{0}.list", "{0}\0x", "{0} ", "{0}.é", ""]
SCALAR_TYPES = [
    *("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
    *("float64", "string", "large_string", "binary", "bool", "decimal", "date32", "timestamp"),
    *("time64", "duration", "dictionary", "null", "list", "struct", "dictionary of text"),
]
LIST_TYPES = [
    *("list int32", "list int16", "list uint64", "list float64", "list float32", "list string"),
    *("large_list", "fixed_size_list", "list of lists", "list of structs", "map", "scalar"),
    *("list dictionary", "list decimal", "list bool", "list timestamp", "string", "list uint8"),
]


def set_cell(draft: Draft, file: str, column: str, row: int, place: int, value: Any) -> None:
    """Set one value, or one element of a history."""
    cells, kind = _cells(draft, file, column)
    if not cells:
        return
    row %= len(cells)
    if isinstance(cells[row], list):
        if cells[row]:
            cells[row] = list(cells[row])
            cells[row][place % len(cells[row])] = value
    else:
        cells[row] = value
    element = kind.value_type if pa.types.is_list(kind) else kind
    if isinstance(value, float) and not pa.types.is_floating(element):
        element = pa.float64()
        cells = [_as_floats(cell) for cell in cells]
    elif isinstance(value, int) and pa.types.is_integer(element):
        element = pa.int64()
    _replace(draft, file, column, pa.array(cells, _like(kind, element)))


def add_to_cell(draft: Draft, file: str, column: str, row: int, place: int, value: int) -> None:
    """Set one value, or one element, to one nearby."""
    cells, _ = _cells(draft, file, column)
    held = cells[row % len(cells)] if cells else None
    if isinstance(held, list):
        held = held[place % len(held)] if held else None
    if isinstance(held, int | float):
        set_cell(draft, file, column, row, place, held + value)


def _like(kind: pa.DataType, element: pa.DataType) -> pa.DataType:
    return pa.list_(element) if pa.types.is_list(kind) else element


def set_missing_row(draft: Draft, file: str, column: str, row: int) -> None:
    """Make a whole cell null: a scalar's value, or a history as a whole."""
    cells, kind = _cells(draft, file, column)
    if cells:
        cells[row % len(cells)] = None
        _replace(draft, file, column, pa.array(cells, kind))


def set_missing_rows_of_lists(draft: Draft, file: str, row: int) -> None:
    """Make all histories of a row null."""
    for column in _lists_of(draft, file):
        set_missing_row(draft, file, column, row)


def set_length(draft: Draft, file: str, column: str, row: int, length: int) -> None:
    """Give one history of a row another length than the others of that row."""
    cells, kind = _cells(draft, file, column)
    if cells:
        row %= len(cells)
        cells[row] = (list(cells[row] or []) + [1] * length)[:length]
        _replace(draft, file, column, pa.array(cells, kind))


def set_lengths(draft: Draft, file: str, row: int, length: int) -> None:
    """Give all histories of a row one other length."""
    for column in _lists_of(draft, file):
        set_length(draft, file, column, row, length)


def _lists_of(draft: Draft, file: str) -> list[str]:
    fields = draft.tables[file].schema
    return [field.name for field in fields if pa.types.is_list(field.type)]


def set_scalar_type(draft: Draft, file: str, column: str, kind: str) -> None:
    """Store a scalar column as another type."""
    cells, _ = _cells(draft, file, column)
    _replace(draft, file, column, _scalars_as(cells, kind))


def set_list_type(draft: Draft, file: str, column: str, kind: str) -> None:
    """Store a history as another type."""
    cells, _ = _cells(draft, file, column)
    _replace(draft, file, column, _lists_as(cells, kind))


def drop_column(draft: Draft, file: str, column: str) -> None:
    if column in draft.tables[file].column_names:
        draft.tables[file] = draft.tables[file].drop([column])


def rename_column(draft: Draft, file: str, column: str, name: str) -> None:
    names = [name if each == column else each for each in draft.tables[file].column_names]
    draft.tables[file] = draft.tables[file].rename_columns(names)


def add_column(draft: Draft, file: str, name: str, like: str, largest: int, at: int) -> None:
    """Add a column that nobody asked for, of another's form."""
    table = draft.tables[file]
    random = np.random.default_rng(largest)
    if like == "lists":
        cells = [random.integers(1, largest, 3).tolist() for _ in range(len(table))]
        array = pa.array(cells, pa.list_(pa.int64()))
    elif like == "struct":
        fields = [pa.array(random.integers(1, largest, len(table))) for _ in range(2)]
        array = pa.StructArray.from_arrays(fields, ["x", "who"])
    else:
        array = pa.array(random.integers(1, largest, len(table)))
    place = at % (len(table.column_names) + 1)
    draft.tables[file] = table.add_column(place, pa.field(name, array.type), array)


def shuffle_columns(draft: Draft, file: str, seed: int) -> None:
    names = draft.tables[file].column_names
    order = np.random.default_rng(seed).permutation(len(names))
    draft.tables[file] = draft.tables[file].select([int(place) for place in order])


def forbid_nulls(draft: Draft, file: str, column: str) -> None:
    """Mark a column as one that cannot be missing: its levels are stored otherwise."""
    table = draft.tables[file]
    place = table.column_names.index(column) if column in table.column_names else -1
    if place < 0 or table.column(place).null_count:
        return
    kind = table.schema.field(place).type
    if pa.types.is_list(kind):
        inner = pa.field("element", kind.value_type, nullable=False)
        kind = pa.list_(inner)
    field = pa.field(column, kind, nullable=False)
    draft.tables[file] = table.set_column(place, field, table.column(place).cast(kind))


def take_rows_away(draft: Draft, file: str, keep: int) -> None:
    draft.tables[file] = draft.tables[file].slice(0, keep)


def _cells(draft: Draft, file: str, column: str) -> tuple[list[Any], pa.DataType]:
    table = draft.tables[file]
    if column not in table.column_names:
        return [], pa.int64()
    values = table.column(table.column_names.index(column))
    return values.to_pylist(), values.type


def _replace(draft: Draft, file: str, column: str, array: pa.Array) -> None:
    table = draft.tables[file]
    if column in table.column_names:
        place = table.column_names.index(column)
        draft.tables[file] = table.set_column(place, pa.field(column, array.type), array)


def _as_floats(cell: Any) -> Any:
    if isinstance(cell, list):
        return [None if each is None else float(each) for each in cell]
    return None if cell is None else float(cell)


def _whole(cell: Any) -> int:
    """A small number of a cell; 0 where an earlier change left none."""
    try:
        return int(cell) % 128
    except (TypeError, ValueError, OverflowError):
        return 0


def _scalars_as(cells: list[Any], kind: str) -> pa.Array:
    whole = [_whole(cell) for cell in cells]
    special: dict[str, Callable[[], pa.Array]] = {
        "float16": lambda: pa.array(np.array(whole, np.float16)),
        "string": lambda: pa.array([str(cell) for cell in whole]),
        "large_string": lambda: pa.array([str(cell) for cell in whole], pa.large_string()),
        "binary": lambda: pa.array([str(cell).encode() for cell in whole]),
        "bool": lambda: pa.array([bool(cell % 2) for cell in whole]),
        "decimal": lambda: pa.array([decimal.Decimal(cell) for cell in whole], pa.decimal128(5, 0)),
        "date32": lambda: pa.array([datetime.date(2020, 1, 1 + c % 28) for c in whole]),
        "timestamp": lambda: pa.array(whole, pa.timestamp("us")),
        "time64": lambda: pa.array(whole, pa.time64("us")),
        "duration": lambda: pa.array(whole, pa.duration("us")),
        "dictionary": lambda: pa.array(whole).dictionary_encode(),
        "dictionary of text": lambda: pa.array([str(cell) for cell in whole]).dictionary_encode(),
        "null": lambda: pa.nulls(len(whole)),
        "list": lambda: pa.array([[cell] for cell in whole], pa.list_(pa.int64())),
        "struct": lambda: pa.StructArray.from_arrays([pa.array(whole)], ["x"]),
    }
    if kind in special:
        return special[kind]()
    return pa.array(whole, getattr(pa, kind)())


def _ids_of(cell: Any) -> list[int]:
    """The ids of a history; none where an earlier change left something else of it."""
    entries = cell if isinstance(cell, list | tuple) else []
    return [int(each or 0) for each in entries if isinstance(each, int | float | None)]


def _lists_as(cells: list[Any], kind: str) -> pa.Array:
    lists = [_ids_of(cell) for cell in cells]
    words = kind.split(" ")
    if kind == "large_list":
        return pa.array(lists, pa.large_list(pa.int64()))
    if kind == "fixed_size_list":
        padded = [([0] * LONGEST + cell)[-LONGEST:] for cell in lists]
        return pa.array(padded, pa.list_(pa.int64(), LONGEST))
    if kind == "list of lists":
        return pa.array([[cell] for cell in lists], pa.list_(pa.list_(pa.int64())))
    if kind == "list of structs":
        of = pa.list_(pa.struct([("id", pa.int64())]))
        return pa.array([[{"id": each} for each in cell] for cell in lists], of)
    if kind == "map":
        entries = [[(str(place), each) for place, each in enumerate(cell)] for cell in lists]
        return pa.array(entries, pa.map_(pa.string(), pa.int64()))
    if kind == "scalar":
        return pa.array([len(cell) for cell in lists], pa.int64())
    if kind == "string":
        return pa.array(["|".join(map(str, cell)) for cell in lists])
    flat = _scalars_as([each for cell in lists for each in cell], words[1])
    offsets = np.concatenate([[0], np.cumsum([len(cell) for cell in lists])]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


Random = np.random.Generator


class Draws:
    """Draws the arguments of changes that fit datasets of one form."""

    def __init__(self, form: Form) -> None:
        """Sort the columns by what can be done to them."""
        self.form = form
        self.ids = [n for n in form.scalars if n not in form.labels] + form.lists
        self.all = [*form.scalars, *form.lists]

    def row(self, random: Random) -> dict[str, Any]:
        return {"file": pick(random, self.form.files), "row": int(random.integers(1 << 20))}

    def column(self, random: Random, columns: list[str]) -> dict[str, Any]:
        """Draw a column, and a file that has it."""
        column = pick(random, columns)
        files = [name for name, held in self.form.columns.items() if column in held]
        return {"file": pick(random, files), "column": column}

    def cell(self, random: Random, columns: list[str], values: list[Any]) -> dict[str, Any]:
        return {
            **self.column(random, columns),
            "row": int(random.integers(1 << 20)),
            "place": int(random.integers(1 << 20)),
            "value": pick(random, values),
        }

    def name(self, random: Random, names: list[str]) -> str:
        return pick(random, names).format(pick(random, self.all))


def value_kinds(form: Form) -> list[MutationKind]:
    """The changes to tables of one form."""
    d = Draws(form)
    labels = form.labels or d.ids
    lists = form.lists or d.ids
    return [
        MutationKind("set an id", set_cell, lambda r: d.cell(r, d.ids, ODD_IDS), 6),
        MutationKind("add to a value", add_to_cell, lambda r: d.cell(r, d.ids, [-2, -1, 1, 2]), 3),
        MutationKind("set a label", set_cell, lambda r: d.cell(r, labels, ODD_LABELS), 1),
        MutationKind("set a fraction", set_cell, lambda r: d.cell(r, d.ids, ODD_FLOATS), 2),
        MutationKind("set a value to null", set_cell, lambda r: d.cell(r, lists, [None]), 1),
        MutationKind(
            "set a cell to null",
            set_missing_row,
            lambda r: {**d.column(r, d.all), "row": int(r.integers(1 << 20))},
            2,
        ),
        MutationKind("set all histories to null", set_missing_rows_of_lists, d.row, 1),
        MutationKind(
            "set a history's length",
            set_length,
            lambda r: {
                **d.column(r, lists),
                "row": int(r.integers(1 << 20)),
                "length": int(r.integers(0, 20)),
            },
            2 if form.lists else 0,
        ),
        MutationKind(
            "set a row's lengths",
            set_lengths,
            lambda r: {**d.row(r), "length": pick(r, [0, 1, 8, 9, 10, 11, 40])},
            1,
        ),
        MutationKind(
            "store a column as",
            set_scalar_type,
            lambda r: {**d.column(r, form.scalars), "kind": pick(r, SCALAR_TYPES)},
            4,
        ),
        MutationKind(
            "store a history as",
            set_list_type,
            lambda r: {**d.column(r, lists), "kind": pick(r, LIST_TYPES)},
            4 if form.lists else 0,
        ),
        *_column_kinds(d),
        MutationKind(
            "keep rows",
            take_rows_away,
            lambda r: {"file": pick(r, form.files), "keep": pick(r, [0, 0, 1, 2])},
            1,
        ),
    ]


def _column_kinds(d: Draws) -> list[MutationKind]:
    return [
        MutationKind("drop a column", drop_column, lambda r: d.column(r, d.all), 1),
        MutationKind(
            "rename a column",
            rename_column,
            lambda r: {**d.column(r, d.all), "name": d.name(r, NAMES + d.all)},
            1,
        ),
        MutationKind(
            "add a column",
            add_column,
            lambda r: {
                "file": pick(r, d.form.files),
                "name": d.name(r, [*NAMES, "{0}"]),
                "like": pick(r, ["lists", "struct", "scalars"]),
                "largest": pick(r, [5, 100000]),
                "at": int(r.integers(20)),
            },
            5,
        ),
        MutationKind(
            "shuffle columns",
            shuffle_columns,
            lambda r: {"file": pick(r, d.form.files), "seed": int(r.integers(1 << 20))},
            1,
        ),
        MutationKind("forbid nulls", forbid_nulls, lambda r: d.column(r, d.all), 2),
    ]
