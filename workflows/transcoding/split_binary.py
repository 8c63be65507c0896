"""The published `split_binary`: arrays of numbers in files of their own, without any header.

All features of a chunk have one type and stand in one file, row by row: the label as truth values,
the numerical features as float16, each categorical feature alone, in the smallest of int8, int16
and int32 that holds its ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError, SpecError
from ...foundation.files import write_array
from ...schemas.channels import CATEGORICAL, LABEL, NUMERICAL, PLAIN_ROWS
from ...schemas.dtypes import canonical_dtype
from ...schemas.feature_spec import Chunk, Feature, FeatureSpec

SPLIT_BINARY = "split_binary"
ID_TYPES = ("int8", "int16", "int32")
ROWS_AT_ONCE = 65_536


def read_split_binary(
    path: Path, names: Sequence[str], features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    """Read a file in pieces."""
    dtype, count = _number_type(path, names, features), len(names)
    count_rows(path, names, features)
    is_truth = canonical_dtype(features[names[0]].dtype) == "bool"
    stored = np.dtype("float32") if dtype == np.float16 else dtype
    stored = np.dtype("bool") if is_truth else stored
    first = 1
    with open(path, "rb") as file:
        while len(values := np.fromfile(file, dtype, ROWS_AT_ONCE * count)):
            if is_truth and values.max() > 1:
                row, column = divmod(int(np.argmax(values > 1)), count)
                raise MerlinSimError(
                    f"{path}, row {first + row}: {names[column]}: expected 0 or 1, found "
                    f"{values[row * count + column]}."
                )
            columns = np.ascontiguousarray(values.astype(stored).reshape(-1, count).T)
            yield pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
            first += len(values) // count


def count_rows(path: Path, names: Sequence[str], features: Mapping[str, Feature]) -> int:
    """Return how many rows a file has; refuse a last row that is not whole."""
    width = _number_type(path, names, features).itemsize * len(names)
    rows, rest = divmod(path.stat().st_size, width)
    if rest:
        raise MerlinSimError(
            f"{path}, row {rows + 1}: expected {width} bytes a row ({len(names)} x "
            f"{features[names[0]].dtype}), found {rest} bytes at the end of the file."
        )
    return rows


def check_lengths(
    directory: Path, mapping: str, chunks: Sequence[Chunk], features: Mapping[str, Feature]
) -> None:
    """Refuse files of a mapping that differ in length, before any is read."""
    rows = {
        chunk.files: sum(count_rows(directory / f, chunk.features, features) for f in chunk.files)
        for chunk in chunks
        if chunk.type == SPLIT_BINARY
    }
    for files, found in rows.items():
        first, expected = next(iter(rows.items()))
        if found != expected:
            raise MerlinSimError(
                f"{directory / files[0]}: expected {expected:,} rows, as {first[0]} has ({mapping}"
                f"), found {found:,}."
            )


def _number_type(
    path: Path, names: Sequence[str], features: Mapping[str, Feature]
) -> np.dtype[Any]:
    dtypes = {canonical_dtype(features[name].dtype) for name in names}
    if len(dtypes) > 1:
        spelled = ", ".join(f"{name} {features[name].dtype}" for name in names[:20])
        raise MerlinSimError(f"{path}: expected features of one dtype, found {spelled}.")
    (dtype,) = dtypes
    lists = [name for name in names if features[name].dimensions is not None]
    if lists:
        raise MerlinSimError(
            f"{path}: {SPLIT_BINARY} holds single values, but the chunk has the lists "
            f"{', '.join(lists)}."
        )
    number = np.dtype("uint8" if dtype == "bool" else dtype)
    if not number.itemsize:
        raise MerlinSimError(
            f"{path}: {SPLIT_BINARY} holds numbers and truth values, but {names[0]} is of dtype "
            f"{features[names[0]].dtype}."
        )
    for name in names:
        cardinality = features[name].cardinality
        if isinstance(cardinality, int) and number.kind in "iu":
            most = int(np.iinfo(number).max) + 1
            if cardinality > most:
                raise MerlinSimError(
                    f"{path}: {name}: expected a cardinality of at most {most} in "
                    f"{features[name].dtype}, found {cardinality}."
                )
    return number


def smallest_type(cardinality: int) -> str:
    """Return the type of a categorical feature, by the published rule.

    >>> smallest_type(126), smallest_type(127), smallest_type(40_000)
    ('int8', 'int16', 'int32')
    """
    return next((t for t in ID_TYPES if cardinality < np.iinfo(t).max), "int64")


def split_binary_spec(spec: FeatureSpec) -> FeatureSpec:
    """Return what a dataset of numbers and categories is when it is written so."""
    problems = PLAIN_ROWS.problems(spec)
    for name in spec.channel_spec.get(CATEGORICAL, ()):
        feature = spec.feature_spec.get(name)
        if feature is not None and feature.cardinality == "auto":
            expected = "a number (to parquet, `data transcode` counts the ids)"
            problems.append(spec.problem(("feature_spec", name, "cardinality"), expected, "auto"))
    in_channels = {name for names in spec.channel_spec.values() for name in names}
    for name in spec.feature_spec:
        if name not in in_channels:
            expected = f"a feature of a channel ({SPLIT_BINARY} has no place for others)"
            problems.append(spec.problem(("feature_spec", name), expected, "no channel"))
    if problems:
        raise SpecError(spec.path or "the dataset", problems)
    features = {}
    for channel in (LABEL, NUMERICAL, CATEGORICAL):
        for name in spec.channel_spec.get(channel, ()):
            feature = spec.feature_spec[name]
            if channel == CATEGORICAL:
                size = int(feature.cardinality or 0)
                features[name] = Feature(smallest_type(size), size, extra=feature.extra)
            else:
                dtype = "bool" if channel == LABEL else "float16"
                features[name] = Feature(dtype, extra=feature.extra)
    return replace(spec, feature_spec=features, source_spec={}, path=None, line_of=None)


def write_split_binary(
    tables: Iterable[pa.Table], directory: Path, mapping: str, spec: FeatureSpec
) -> tuple[Chunk, ...]:
    """Write a stream of tables as the files of one mapping, by :func:`split_binary_spec`."""
    channels = spec.channel_spec
    names = {"label": channels[LABEL], "numerical": channels.get(NUMERICAL, ())}
    names |= {f"cat_{number}": (name,) for number, name in enumerate(channels[CATEGORICAL])}
    chunks = tuple(
        Chunk(SPLIT_BINARY, tuple(of_file), (f"{mapping}/{stem}.bin",))
        for stem, of_file in names.items()
        if of_file
    )
    (directory / mapping).mkdir()
    before = 0
    with ExitStack() as stack:
        files = [stack.enter_context(open(directory / chunk.files[0], "wb")) for chunk in chunks]
        for table in tables:
            for chunk, file in zip(chunks, files, strict=True):
                columns = []
                for name in chunk.features:
                    values, dtype = np.asarray(table[name]), spec.feature_spec[name].dtype
                    with np.errstate(over="ignore"):
                        columns.append(values.astype(dtype))
                    _require_same(mapping, before, name, values, columns[-1])
                write_array(file, np.stack(columns, axis=1))
            before += table.num_rows
    return chunks


def _require_same(
    mapping: str, before: int, name: str, values: npt.NDArray[Any], cast: npt.NDArray[Any]
) -> None:
    """Refuse what the type of a file cannot hold; a number may be rounded."""
    good = np.isfinite(cast) if cast.dtype == np.float16 else cast == values
    if not good.all():
        row = int(np.argmin(good))
        expected = "0 or 1" if cast.dtype == bool else "a number that float16 holds"
        raise MerlinSimError(
            f"{mapping}, row {before + row + 1}: {name}: expected {expected}, found {values[row]}."
        )
