"""The published `split_binary`: arrays of numbers in files of their own, without any header.

All features of a chunk have one type and stand in one file, row by row: the label as truth values,
the numerical features as float16, each categorical feature alone, in the smallest of int8, int16
and int32 that holds its ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ...foundation.atomic_write import write_array
from ...foundation.exceptions import MerlinSimError, SpecError
from ...foundation.problem import Problem
from ...schemas.channels import CATEGORICAL, LABEL, NUMERICAL
from ...schemas.contracts.plain_rows import PLAIN_ROWS
from ...schemas.dtypes import canonical_dtype
from ...schemas.specs.feature_spec import Chunk, Feature, FeatureSpec

SPLIT_BINARY = "split_binary"
ID_TYPES = ("int8", "int16", "int32")
ROWS_AT_ONCE = 65_536
Array = np.ndarray[Any, Any]


def read_split_binary(
    path: Path, names: Sequence[str], features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    """Read a file in pieces.

    Args:
        path: The file.
        names: Its features.
        features: What is known of them.
    """
    dtype, count = _form(path, names, features), len(names)
    count_rows(path, names, features)
    with open(path, "rb") as file:
        first = 1
        while len(values := np.fromfile(file, dtype, ROWS_AT_ONCE * count)):
            rows = values.reshape(-1, count)
            if canonical_dtype(features[names[0]].dtype) == "bool":
                rows = _truth_values(path, names, rows, first)
            if dtype == np.float16:
                rows = rows.astype(np.float32)
            columns = {name: pa.array(rows[:, place].copy()) for place, name in enumerate(names)}
            yield pa.table(columns)
            first += len(rows)


def count_rows(path: Path, names: Sequence[str], features: Mapping[str, Feature]) -> int:
    """Say how many rows a file has.

    Raises:
        MerlinSimError: Where its last row is not whole.
    """
    width = _form(path, names, features).itemsize * len(names)
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
    """Compare the lengths of a mapping's files before any is read.

    Raises:
        MerlinSimError: Naming the chunk that is longer or shorter than the first.
    """
    rows = {
        chunk.files: sum(
            count_rows(directory / file, chunk.features, features) for file in chunk.files
        )
        for chunk in chunks
        if chunk.type == SPLIT_BINARY
    }
    (first, expected), *others = rows.items() or [((), 0)]
    for files, found in others:
        if found != expected:
            raise MerlinSimError(
                f"{directory / files[0]}: expected {expected:,} rows, as {first[0]} has ({mapping}"
                f"), found {found:,}."
            )


def _form(path: Path, names: Sequence[str], features: Mapping[str, Feature]) -> np.dtype[Any]:
    """Return the type of the numbers in a file."""
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
    form = np.dtype("uint8" if dtype == "bool" else dtype)
    if not form.itemsize:
        raise MerlinSimError(
            f"{path}: {SPLIT_BINARY} holds numbers and truth values, but {names[0]} is of dtype "
            f"{features[names[0]].dtype}."
        )
    for name in names:
        cardinality = features[name].cardinality
        if isinstance(cardinality, int) and form.kind in "iu":
            most = int(np.iinfo(form).max) + 1
            if cardinality > most:
                raise MerlinSimError(
                    f"{path}: {name}: expected a cardinality of at most {most} in "
                    f"{features[name].dtype}, found {cardinality}."
                )
    return form


def _truth_values(path: Path, names: Sequence[str], rows: Array, first: int) -> Array:
    wrong = np.argwhere(rows > 1)
    if len(wrong):
        row, place = wrong[0].tolist()
        raise MerlinSimError(
            f"{path}, row {first + row}: {names[place]}: expected 0 or 1, found {rows[row, place]}."
        )
    return rows.astype(np.bool_)


def smallest_type(cardinality: int) -> str:
    """Return the type of a categorical feature, by the published rule.

    >>> smallest_type(126), smallest_type(127), smallest_type(40_000)
    ('int8', 'int16', 'int32')
    """
    return next((t for t in ID_TYPES if cardinality < np.iinfo(t).max), "int64")


def split_binary_spec(spec: FeatureSpec) -> FeatureSpec:
    """Say what a dataset is when it is written so; its mappings have no chunks yet.

    Raises:
        SpecError: Where it is not a dataset of numbers and categories.
    """
    problems = PLAIN_ROWS.problems(spec)
    problems += [
        Problem(str(spec.path or "the dataset"), ("feature_spec", name, "cardinality"), *reason)
        for name in spec.channel_spec.get(CATEGORICAL, ())
        if (reason := _unknown(spec.feature_spec.get(name))) is not None
    ]
    if problems:
        raise SpecError(spec.path or "the dataset", problems)
    features = {}
    for name in spec.channel_spec[LABEL]:
        features[name] = Feature("bool", extra=spec.feature_spec[name].extra)
    for name in spec.channel_spec.get(NUMERICAL, ()):
        features[name] = Feature("float16", extra=spec.feature_spec[name].extra)
    for name in spec.channel_spec[CATEGORICAL]:
        feature = spec.feature_spec[name]
        assert isinstance(feature.cardinality, int)
        dtype = smallest_type(feature.cardinality)
        features[name] = Feature(dtype, feature.cardinality, extra=feature.extra)
    return FeatureSpec(features, {}, spec.channel_spec, spec.metadata)


def _unknown(feature: Feature | None) -> tuple[str, str] | None:
    if feature is not None and feature.cardinality == "auto":
        return "a number (to parquet, `transcode` counts the ids)", "auto"
    return None


class SplitBinaryWriter:
    """Writes a stream of tables as the files of one mapping.

    Args:
        directory: The dataset directory.
        mapping: `train`, `test`, ...
        spec: As :func:`split_binary_spec` gives it.
    """

    def __init__(self, directory: Path, mapping: str, spec: FeatureSpec) -> None:
        """Make the files."""
        self.rows = 0
        self._mapping = mapping
        self._features = spec.feature_spec
        numbers = tuple(spec.channel_spec.get(NUMERICAL, ()))
        self._names = {"label": tuple(spec.channel_spec[LABEL])}
        if numbers:
            self._names["numerical"] = numbers
        for place, name in enumerate(spec.channel_spec[CATEGORICAL]):
            self._names[f"cat_{place}"] = (name,)
        (directory / mapping).mkdir()
        self._files: dict[str, IO[bytes]] = {
            stem: open(directory / self._file(stem), "wb") for stem in self._names
        }

    def write(self, table: pa.Table) -> None:
        """Take some rows."""
        for stem, names in self._names.items():
            columns = [self._cast(name, np.asarray(table[name])) for name in names]
            write_array(self._files[stem], np.stack(columns, axis=1))
        self.rows += table.num_rows

    def close(self, schema: pa.Schema) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The mapping, as the spec says it."""
        return tuple(
            Chunk(SPLIT_BINARY, names, (self._file(stem),)) for stem, names in self._names.items()
        )

    def _file(self, stem: str) -> str:
        return f"{self._mapping}/{stem}.bin"

    def _cast(self, name: str, values: Array) -> Array:
        dtype = self._features[name].dtype
        with np.errstate(over="ignore"):
            cast = values.astype(dtype)
        good = np.isfinite(cast) if dtype == "float16" else cast == values
        if not good.all():
            row = int(np.argmin(good))
            wanted = "0 or 1" if dtype == "bool" else "a number that float16 holds"
            raise MerlinSimError(
                f"{self._mapping}, row {self.rows + row + 1}: {name}: expected {wanted}, found "
                f"{values[row]}."
            )
        return cast
