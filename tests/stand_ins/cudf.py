"""Stands in for cudf 24.12 where there is no GPU: arrow tables, behind a wall.

It has the methods that are called and no others, with cudf's names and arguments, hands its
columns over as arrays of the stand-in for cupy, and refuses what cudf refuses: numpy's arrays
without a copy, pandas's columns, nulls in an array, going through a column in Python.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import stand_in

cupy = stand_in.load("cupy")
__version__ = "24.12.00"


def _array(column: pa.Array) -> Any:
    if column.null_count:
        raise ValueError("cupy does not support null values.")
    return cupy.array(np.asarray(column))


class ColumnBase:
    """A bare column, of which no series is made by its constructor."""

    def __init__(self, arrow: pa.Array) -> None:
        self.arrow = arrow
        self.dtype = arrow.type.to_pandas_dtype()

    @property
    def size(self) -> int:
        return len(self.arrow)


class Series:
    """A column on the device."""

    def __init__(
        self, data: Any = None, index: Any = None, dtype: Any = None, name: Any = None
    ) -> None:
        """Take arrow's or cupy's memory, or a list of numbers of the host."""
        if isinstance(data, ColumnBase):
            raise TypeError(
                "Use cudf.Series._from_column for constructing a Series from a ColumnBase"
            )
        if isinstance(data, cupy.ndarray):
            data = pa.array(data.get())
        elif isinstance(data, list):
            data = pa.array(data) if data else pa.array(data, pa.float64())
        if isinstance(data, pa.ChunkedArray):
            data = data.combine_chunks() if data.num_chunks != 1 else data.chunk(0)
        if not isinstance(data, pa.Array):
            raise TypeError(f"cudf.Series of {type(data)}")
        self._arrow = data
        self.name = name

    @classmethod
    def _from_column(cls, column: ColumnBase, *, name: Any = None, index: Any = None) -> Series:
        return cls(column.arrow, name=name)

    def __len__(self) -> int:
        return len(self._arrow)

    def __iter__(self) -> Any:
        """Refuse, as cudf does."""
        raise TypeError(
            "Series object is not iterable. Consider using `.to_arrow()`, `.to_pandas()` or"
            " `.values_host` if you wish to iterate over the values."
        )

    def __array__(self, dtype: Any = None) -> Any:
        """Refuse, as cudf does."""
        raise TypeError(
            "Implicit conversion to a host NumPy array via __array__ is not allowed, To explicitly"
            " construct a GPU matrix, consider using .to_cupy()."
        )

    @property
    def values(self) -> Any:
        return _array(self._arrow)

    @property
    def dtype(self) -> Any:
        """Of numpy's dtypes; lists and strings are objects here."""
        try:
            return np.dtype(self._arrow.type.to_pandas_dtype())
        except NotImplementedError:
            return np.dtype(object)

    @property
    def size(self) -> int:
        return len(self._arrow)

    @property
    def has_nulls(self) -> bool:
        return self._arrow.null_count > 0

    @property
    def list(self) -> ListMethods:
        if not pa.types.is_list(self._arrow.type):
            raise AttributeError("Can only use .list accessor with a 'list' dtype")
        return ListMethods(self)

    def sum(self, axis: Any = 0) -> Any:
        """Add the rows up; the result is on the host."""
        import pyarrow.compute as pc

        return pc.sum(self._arrow).as_py()

    def fillna(
        self, value: Any = None, method: Any = None, axis: Any = None, inplace: bool = False,
        limit: Any = None,
    ) -> Series:  # fmt: skip
        """Put a value where one is missing."""
        return Series(self._arrow.fill_null(value))

    def isnull(self) -> Series:
        return Series(self._arrow.is_null())

    def copy(self, deep: bool = True) -> Series:
        return Series(pa.concat_arrays([self._arrow]) if not deep else _whole(self._arrow))

    def astype(self, dtype: Any, copy: bool = False, errors: str = "raise") -> Series:
        return Series(self._arrow.cast(pa.from_numpy_dtype(dtype)))

    def to_arrow(self) -> pa.Array:
        """Copy to the host."""
        return self._arrow


def _whole(column: pa.Array) -> pa.Array:
    return column.take(pa.array(np.arange(len(column))))


class ListMethods:
    """What a column of lists has."""

    def __init__(self, parent: Series) -> None:
        self._column = parent._arrow

    @property
    def leaves(self) -> Series:
        return Series(self._column.values)

    def len(self) -> Series:
        return Series(self._column.value_lengths())


class DataFrame:
    """Columns on the device."""

    def __init__(self, data: Any = None) -> None:
        self._columns: dict[str, Series] = {}
        for name, column in (data or {}).items():
            self[name] = column

    @classmethod
    def from_arrow(cls, table: pa.Table) -> DataFrame:
        if not isinstance(table, pa.Table):
            raise TypeError("pa.Table is expected")
        return cls({name: Series(table[name]) for name in table.column_names})

    def to_arrow(self, preserve_index: bool | None = None) -> pa.Table:
        """Copy to the host."""
        return pa.table({name: column._arrow for name, column in self._columns.items()})

    @property
    def columns(self) -> pd.Index:
        return pd.Index(list(self._columns))

    @property
    def dtypes(self) -> pd.Series:
        """The columns' dtypes, on the host."""
        return pd.Series({name: column.dtype for name, column in self._columns.items()})

    @property
    def iloc(self) -> _Rows:
        return _Rows(self)

    def head(self, n: int = 5) -> DataFrame:
        return self.iloc[:n]

    def keys(self) -> pd.Index:
        return self.columns

    def assign(self, **kwargs: Any) -> DataFrame:
        assigned = self.copy(deep=False)
        for name, value in kwargs.items():
            whole = isinstance(value, (Series, cupy.ndarray))
            assigned[name] = value if whole else Series([value] * len(self))
        return assigned

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __getitem__(self, arg: str | list[str]) -> Any:
        if isinstance(arg, list):
            return DataFrame({name: self._columns[name] for name in arg})
        return self._columns[arg]

    def __contains__(self, name: str) -> bool:
        """Tell whether there is a column of that name."""
        return name in self._columns

    def __setitem__(self, arg: str, value: Any) -> None:
        if isinstance(value, (np.ndarray, pd.Series)):
            raise TypeError(f"{type(value)} would be copied from the host")
        column = value if isinstance(value, Series) else Series(value)
        if self._columns and len(column) != len(self):
            raise ValueError("All columns must be of equal length")
        self._columns[arg] = column

    def copy(self, deep: bool = True) -> DataFrame:
        """Copy the columns, or only their names."""
        return DataFrame(self._columns)

    def take(self, indices: Any, axis: int = 0) -> DataFrame:
        """Gather rows by numbers of the device or the host."""
        rows = indices.get() if isinstance(indices, cupy.ndarray) else np.asarray(indices)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError("Gather map index is out of bounds.")
        return self._each(lambda column: column.take(pa.array(rows)))

    def reset_index(self, level: Any = None, drop: bool = False) -> DataFrame:
        return self

    def sort_values(
        self, by: Any, axis: int = 0, ascending: bool = True, inplace: bool = False,
        kind: str = "quicksort", na_position: str = "last", ignore_index: bool = False,
    ) -> DataFrame:  # fmt: skip
        import pyarrow.compute as pc

        table = self.to_arrow()
        keys = [(name, "ascending") for name in by]
        order = pc.sort_indices(table, sort_keys=keys)
        return DataFrame.from_arrow(table.take(order))

    def groupby(
        self, by: Any = None, axis: int = 0, level: Any = None, as_index: bool = True,
        sort: bool = False,
    ) -> DataFrameGroupBy:  # fmt: skip
        return DataFrameGroupBy(self, by)

    def _each(self, change: Any) -> DataFrame:
        return DataFrame(
            {name: Series(change(column._arrow)) for name, column in self._columns.items()}
        )


class _Rows:
    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def __getitem__(self, arg: slice) -> DataFrame:
        first, last, _ = arg.indices(len(self._frame))
        return self._frame._each(lambda column: column.slice(first, max(0, last - first)))


class DataFrameGroupBy:
    """Rows by group."""

    def __init__(self, obj: DataFrame, by: str) -> None:
        self._frame, self._by = obj, by

    def agg(self, func: Any = None) -> DataFrame:
        frame = self._frame.to_arrow().to_pandas()
        groups = list(frame.groupby(self._by, sort=True).indices.items())
        columns = {self._by: pa.array([key for key, _ in groups])}
        for name, what in func.items():
            values = self._frame[name]._arrow
            if what is list:
                taken = values.take(pa.array(np.concatenate([rows for _, rows in groups])))
                ends = np.cumsum([len(rows) for _, rows in groups], dtype=np.int32)
                columns[name] = pa.ListArray.from_arrays(pa.array(np.r_[np.int32(0), ends]), taken)
            elif what == "last":
                columns[name] = values.take(pa.array([rows[-1] for _, rows in groups]))
            else:
                raise ValueError(f"{what} is not a supported aggregation")
        return DataFrame.from_arrow(pa.table(columns))


def concat(objs: Any, axis: int = 0, join: str = "outer", ignore_index: bool = False) -> DataFrame:
    """Join the rows of frames, or with ``axis=1`` their columns; of one alone, the frame itself."""
    if not objs:
        raise ValueError("No objects to concatenate")
    if axis == 1:
        names = [name for frame in objs for name in frame.columns]
        if len({*names}) < len(names) or len({len(frame) for frame in objs}) > 1:
            raise NotImplementedError("A Column with duplicate names found, or other rows.")
        return DataFrame({name: frame[name] for frame in objs for name in frame.columns})
    if len(objs) == 1:
        return objs[0].copy(deep=False)
    return DataFrame.from_arrow(pa.concat_tables([frame.to_arrow() for frame in objs]))


options: dict[str, Any] = {}
"""What was set, for the tests."""


def set_option(name: str, val: Any) -> None:
    options[name] = val


reads: list[Any] = []
"""What was read, for the tests."""


def read_parquet(
    filepath_or_buffer: Any, engine: str = "cudf", columns: Any = None, *, row_groups: Any = None
) -> DataFrame:
    reads.append(row_groups)
    tables = [
        pq.ParquetFile(path).read_row_groups(groups, columns=columns)
        for path, groups in zip(filepath_or_buffer, row_groups, strict=True)
    ]
    if any(table.schema.types != tables[0].schema.types for table in tables):
        raise RuntimeError("All inputs must have the same schema.")
    return DataFrame.from_arrow(pa.concat_tables(tables).combine_chunks())


class ListDtype:
    """The type of a column of lists."""

    def __init__(self, element_type: Any) -> None:
        self.element_type = element_type


def as_column(arbitrary: Any, dtype: Any = None) -> ColumnBase:
    if isinstance(arbitrary, ColumnBase):
        arbitrary = Series._from_column(arbitrary)
    column = arbitrary if isinstance(arbitrary, Series) else Series(arbitrary)
    return ColumnBase((column if dtype is None else column.astype(np.dtype(dtype))).to_arrow())


def build_column(
    data: Any, dtype: Any, *, size: int | None = None, children: tuple[ColumnBase, ...] = ()
) -> ColumnBase:
    offsets, elements = (child.arrow for child in children)
    if data is not None or not isinstance(dtype, ListDtype):
        raise ValueError("data must be None")
    if offsets.type != pa.int32() or len(offsets) != size + 1:
        raise ValueError("offsets should be int32, one more than rows")
    return ColumnBase(pa.ListArray.from_arrays(offsets, elements))


core = types.SimpleNamespace(dtypes=types.SimpleNamespace(ListDtype=ListDtype))
