"""The published parquet layout, adopted where it stands: described, checked, not copied.

The layout has train/, test/ and metadata.json, and no spec: what a column is follows from its
place. Label first, then the user features, then the target item's features, the positive history
of each, and the negative history of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .channels import (
    CONTRACTS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from .dataset import METADATA_FILE, natural_order, read_cardinalities, write_documents
from .exceptions import MerlinSimError
from .feature_spec import SPEC_FILE, Chunk, Feature, FeatureSpec

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Layout:
    """Which column is what, and how many ids each may hold."""

    columns: tuple[str, ...]
    channels: dict[str, tuple[str, ...]]
    cardinality: dict[str, int]
    dtypes: dict[str, str]

    @property
    def histories(self) -> tuple[str, ...]:
        """The list columns."""
        return (*self.channels[POSITIVE_HISTORY], *self.channels[NEGATIVE_HISTORY])


def adopt(
    directory: Path | str,
    number_of_user_features: int,
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> FeatureSpec:
    """Describe a dataset in the published layout, after checking every row of it.

    Args:
        directory: Holds train/*.parquet, test/*.parquet and metadata.json.
        number_of_user_features: How many columns after the label are the user's.
        on_rows: Called with the number of rows checked since the last call.

    Returns:
        The spec, which now stands in the directory beside schema.pbtxt.

    Raises:
        MerlinSimError: With the first file, row group and column that is not as it should be.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise MerlinSimError(f"{directory}: expected a dataset directory; there is none")
    if (directory / SPEC_FILE).exists():
        raise MerlinSimError(f"{directory / SPEC_FILE} exists: the dataset has a spec already")
    files = {mapping: find_files(directory, mapping) for mapping in ("train", "test")}
    layout = _layout(directory, files["train"][0], number_of_user_features)
    longest = 0
    for file in (*files["train"], *files["test"]):
        longest = max(longest, _check_file(file, layout, on_rows))
    spec = _spec(directory, layout, files, max(longest, 1))
    CONTRACTS["sim"].check(spec)
    write_documents(directory, spec)
    return spec


def find_files(directory: Path, mapping: str) -> list[Path]:
    """Return a mapping's parquet files in the order of their numbers."""
    files = sorted((directory / mapping).glob("*.parquet"), key=natural_order)
    if not files:
        raise MerlinSimError(f"{directory / mapping}: expected parquet files, found none")
    return files


def count_rows(directory: Path | str) -> int:
    """Return how many rows :func:`adopt` will check; 0 where the files cannot say."""
    files = [file for mapping in ("train", "test") for file in Path(directory, mapping).glob("*")]
    try:
        return sum(pq.read_metadata(file).num_rows for file in files if file.suffix == ".parquet")
    except (pa.ArrowException, OSError):
        return 0


def _layout(directory: Path, file: Path, user_count: int) -> Layout:
    schema = _read_schema(file)
    columns = tuple(schema.names)
    items, remainder = divmod(len(columns) - 1 - user_count, 3)
    if user_count < 0 or items < 1 or remainder:
        raise MerlinSimError(
            f"{file}: expected 1 label, {user_count} user features, and target, positive history "
            f"and negative history of as many item features each; got {len(columns)} columns. "
            "Is --number_of_user_features right?"
        )
    starts = np.cumsum([0, 1, user_count, items, items, items])
    names = (LABEL, USER_FEATURES, TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)
    channels = {
        name: columns[start:stop]
        for name, start, stop in zip(names, starts[:-1], starts[1:], strict=True)
    }
    metadata = directory / METADATA_FILE
    stated = read_cardinalities(metadata)
    if len(stated) != user_count + items:
        raise MerlinSimError(
            f"{metadata}: expected {user_count} + {items} cardinalities (user and item features), "
            f"got {len(stated)}"
        )
    values = [value for _, value in stated]
    cardinality = dict(zip(channels[USER_FEATURES], values[:user_count], strict=True))
    for channel in (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY):
        cardinality |= dict(zip(channels[channel], values[user_count:], strict=True))
    layout = Layout(columns, channels, cardinality, {})
    _check_types(file, schema, layout)
    layout.dtypes.update({name: _dtype(schema.field(name).type) for name in columns})
    return layout


def _check_types(file: Path, schema: pa.Schema, layout: Layout) -> None:
    for name in layout.columns:
        kind = schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        is_list = is_list or pa.types.is_fixed_size_list(kind)
        value = kind.value_type if is_list else kind
        if name in layout.histories and not (is_list and pa.types.is_integer(value)):
            raise MerlinSimError(f"{file}: column {name!r}: expected lists of ids, got {kind}")
        if name in layout.cardinality and name not in layout.histories:
            if not pa.types.is_integer(kind):
                raise MerlinSimError(f"{file}: column {name!r}: expected ids, got {kind}")
    (label,) = layout.channels[LABEL]
    kind = schema.field(label).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise MerlinSimError(f"{file}: column {label!r}: expected labels of 0 and 1, got {kind}")


def _check_file(file: Path, layout: Layout, on_rows: Callable[[int], None]) -> int:
    schema = _read_schema(file)
    if tuple(schema.names) != layout.columns:
        expected = ", ".join(layout.columns)
        raise MerlinSimError(f"{file}: expected the columns {expected}; got {schema.names}")
    _check_types(file, schema, layout)
    longest, row = 0, 0
    try:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE):
                longest = max(longest, _check_batch(file, row, batch, layout))
                row += batch.num_rows
                on_rows(batch.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise MerlinSimError(f"{file}: damaged after row {row}: {error}") from error
    return longest


def _check_batch(file: Path, row: int, batch: pa.RecordBatch, layout: Layout) -> int:
    def refuse(name: str, bad: np.ndarray[Any, Any], expected: str, values: Any) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise MerlinSimError(
                f"{file}: row {row + first}, column {name!r}: expected {expected}, "
                f"got {values[first]}"
            )

    columns = {name: batch.column(name) for name in layout.columns}
    for name, column in columns.items():
        if column.null_count:
            refuse(name, column.is_null().to_numpy(False), "a value", ["null"] * batch.num_rows)
    (label,) = layout.channels[LABEL]
    labels = pc.cast(columns[label], pa.float64()).to_numpy(False)
    refuse(label, (labels != 0) & (labels != 1), "0 or 1", labels)
    lengths: np.ndarray[Any, Any] | None = None
    for name, cardinality in layout.cardinality.items():
        column = columns[name]
        if name not in layout.histories:
            ids = column.to_numpy(False)
            refuse(name, (ids < 1) | (ids > cardinality), f"an id from 1 to {cardinality}", ids)
            continue
        ours = pc.list_value_length(column).to_numpy(False)
        lengths = ours if lengths is None else lengths
        refuse(name, ours != lengths, "a list as long as the row's other histories", ours)
        ids = pc.list_flatten(column).to_numpy(False)
        outside = (ids < 0) | (ids > cardinality)
        if outside.any():
            parents = pc.list_parent_indices(column).to_numpy(False)
            by_row = np.bincount(parents[outside], minlength=len(ours)) > 0
            worst = {int(r): int(i) for r, i in zip(parents[outside], ids[outside], strict=True)}
            refuse(name, by_row, f"ids from 0 to {cardinality}", worst)
    return 0 if lengths is None or not len(lengths) else int(lengths.max())


def _spec(
    directory: Path, layout: Layout, files: dict[str, list[Path]], longest: int
) -> FeatureSpec:
    features = {
        name: Feature(
            layout.dtypes[name],
            layout.cardinality.get(name),
            (longest,) if name in layout.histories else None,
        )
        for name in layout.columns
    }
    sources = {
        mapping: (
            Chunk(
                "parquet", layout.columns, tuple(str(file.relative_to(directory)) for file in found)
            ),
        )
        for mapping, found in files.items()
    }
    return FeatureSpec(features, sources, layout.channels)


def _read_schema(file: Path) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise MerlinSimError(f"{file}: expected a parquet file: {error}") from error


def _dtype(kind: pa.DataType) -> str:
    value = getattr(kind, "value_type", kind)
    return {"float": "float32", "double": "float64", "halffloat": "float16"}.get(
        str(value), str(value)
    )
