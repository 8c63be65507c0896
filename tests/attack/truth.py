"""What a dataset directory holds, read by arrow and PyYAML alone.

It is slow and plain on purpose: what training is fed is compared with this.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from .good_datasets import HISTORIES, NUMBERS, SPEC, Column

LARGEST = float(np.finfo(np.float32).max)


def read_columns(directory: Path) -> tuple[dict[str, Column], dict[str, list[str]]]:
    spec = yaml.safe_load((directory / SPEC).read_bytes())
    columns = {}
    for channel, names in spec["channel_spec"].items():
        for name in names:
            stated = spec["feature_spec"][name]
            largest, dimensions = stated.get("cardinality"), stated.get("dimensions")
            if largest is not None:
                largest -= channel == "categorical"
            assert name not in columns, f"{name} in two channels"
            columns[name] = Column(channel, largest, dimensions[0] if dimensions else None)
    sources = spec["source_spec"].items()
    return columns, {
        m: [name for chunk in chunks for name in chunk["files"]] for m, chunks in sources
    }


class Truth:
    """The rows of a mapping, what is wrong with them, and what may be refused or not."""

    def __init__(self, directory: Path, mapping: str) -> None:
        self.said, files = read_columns(directory)
        self.columns: dict[str, list[Any]] = {name: [] for name in self.said}
        self.faults: list[str] = []
        self.rows: list[tuple[str, int]] = []
        """File and row (from 1) of those faults that are of a row."""
        self.unclear: list[str] = []
        for name in files[mapping]:
            try:
                self._read(directory / name, name)
            except (pa.ArrowException, OSError, ValueError) as error:
                self.faults.append(f"{name}: {type(error).__name__}: {error!s:.200}")
        if not self.faults and not any(map(len, self.columns.values())):
            self.faults.append(f"{mapping}: no rows")

    def _read(self, path: Path, name: str) -> None:
        file = pq.ParquetFile(path)
        arrays = {column: self._one_column(file, column) for column in self.said}
        if len({len(array) for array in arrays.values()}) > 1:
            raise ValueError("columns of unequal lengths")
        for column, array in arrays.items():
            self._judge_type(f"{name}: {column} is stored as {array.type}", column, array.type)
            cells = array.to_pylist()
            self.columns[column] += cells
            for row, cell in enumerate(cells, start=1):
                self._wrong(name, row, self._fault_of(cell, self.said[column]))
        for channels in (HISTORIES - {"negative_history"}, {"negative_history"}):
            lists = [arrays[c].to_pylist() for c in arrays if self.said[c].channel in channels]
            for row, cells in enumerate(zip(*lists, strict=True), start=1):
                lengths = {len(cell) for cell in cells if isinstance(cell, list)}
                self._wrong(name, row, "unequal lengths" if len(lengths) > 1 else "")

    def _wrong(self, name: str, row: int, fault: str) -> None:
        self.rows += [(name, row)] * bool(fault)
        self.faults += [f"{name}, row {row}: {fault}"] * bool(fault)

    def _one_column(self, file: pq.ParquetFile, column: str) -> pa.Array:
        """Read one column, row group by row group: of a damaged page arrow then takes no more."""
        names = file.schema_arrow.names
        if names.count(column) != 1:
            raise ValueError(f"{names.count(column)} columns {column!r}")
        if [each.partition("\0")[0] for each in names].count(column) != 1:
            self.unclear.append(f"another name is {column!r} up to a zero byte")
        groups = range(file.num_row_groups)
        read = [file.read_row_group(group, columns=[column], use_threads=False) for group in groups]
        read = read or [file.read(columns=[column])]
        if column not in read[0].column_names:  # a dot in it: arrow takes it for a path
            read = [file.read_row_group(group, use_threads=False) for group in groups]
        table = pa.concat_tables(read)
        array = table.column(table.column_names.index(column))
        array.validate(full=True)
        if pa.types.is_dictionary(array.type):
            self.unclear.append(f"{column} is a dictionary")
            array = array.cast(array.type.value_type)
        return array

    def _judge_type(self, fault: str, column: str, kind: pa.DataType) -> None:
        said, element = self.said[column], kind.value_type if is_list(kind) else kind
        if pa.types.is_dictionary(element):
            self.unclear.append(fault)
            element = element.value_type
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
        if is_list(kind) != bool(said.length) or not any(test(element) for test in tests):
            self.faults.append(fault)
        plain = {pa.float32()} if said.channel in NUMBERS else {pa.int32(), pa.int64()}
        if element not in (plain if said.channel != "label" else {pa.float32(), pa.int8()}):
            self.unclear.append(fault)

    def _fault_of(self, cell: Any, said: Column) -> str:
        if cell is None:
            return "nothing"
        values = cell if isinstance(cell, list) else [cell]
        if said.channel == "target_item_numerical" and said.length not in (None, len(values)):
            return f"{len(values)} numbers"
        if said.length and len(values) > said.length:
            self.unclear.append("a longer list")
        for value in values:
            if not isinstance(value, int | float) or not math.isfinite(value):
                return f"{value!r:.40}"
            if said.channel in NUMBERS:
                if abs(value) > LARGEST:
                    return f"{value}"
            elif value not in (0, 1) if said.channel == "label" else value != int(value):
                return f"{said.channel}: {value}"
            elif said.largest is not None and not 0 <= value <= said.largest:
                return f"the id {value} beyond {said.largest}"
        return ""

    def assert_fed(self, found: dict[str, np.ndarray]) -> None:
        assert set(found) == set(self.columns)
        for name, cells in self.columns.items():
            wanted = as_fed(cells, self.said[name])
            np.testing.assert_array_equal(found[name].astype(wanted.dtype), wanted, name)


def is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def as_fed(cells: list[Any], said: Column) -> np.ndarray:
    kind = np.float32 if said.channel in NUMBERS | {"label"} else np.int64
    if said.length is None:
        return np.array(cells, np.float64 if kind is np.float32 else kind).astype(kind)
    made = np.zeros((len(cells), said.length), kind)
    for row, cell in enumerate(cells):
        newest = cell[-said.length :]
        made[row, said.length - len(newest) :] = newest
    return made
