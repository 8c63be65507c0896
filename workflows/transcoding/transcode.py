"""Any dataset with a feature spec becomes a dataset directory: same rows, in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...dataloader.arrow_columns import decode
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import check_apart, staged_directory
from ...foundation.progress import Reporter, Silence
from ...schemas.channels import LABEL, contract_of
from ...schemas.dataset import write_documents
from ...schemas.feature_spec import Chunk, Feature, FeatureSpec
from ...schemas.merlin_schema import to_merlin_schema
from ...schemas.natural_translation import ids_start_at_one, shared_domains
from ...schemas.parquet import read_footer
from ..parquet_files import PartWriter, columns_with_few_ids
from .chunk_files import ChunkRows, arrow_type, line_up, read_chunk
from .split_binary import SPLIT_BINARY, check_lengths, split_binary_spec, write_split_binary

AUTO = "auto"
PARQUET = "parquet"
TFRECORD = "tfrecord"
LARGEST_IN_TFRECORD = float(np.finfo(np.float32).max)
PUBLISHED_PARTS = {"train": 8, "test": 4}


@dataclass(frozen=True)
class TfrecordForm:
    """Parts of a mapping, and samples of a record; by default as published."""

    part_counts: Mapping[str, int] = field(default_factory=dict)
    """Mapping -> in how many files its records are; fewer where it has fewer records."""

    prebatch_sizes: Mapping[str, int] = field(default_factory=dict)
    """Mapping -> samples of a record; 0, or none: one, not prebatched."""

    history_length: int | None = None
    """To which length histories are padded; None: to the spec's."""

    def __post_init__(self) -> None:
        for mapping, count in self.part_counts.items():
            if count < 1:
                raise MerlinSimError(
                    f"the parts of {mapping} should be a positive integer. Received: {count}"
                )
        for mapping, size in self.prebatch_sizes.items():
            if size < 0:
                raise MerlinSimError(
                    f"the prebatch size of {mapping} should be 0 or more. Received: {size}"
                )


@dataclass
class Transcoder:
    """Reads what a spec describes, checks it, writes parquet, split_binary or tfrecord."""

    spec: FeatureSpec
    directory: Path
    """Where the spec's paths start."""
    reporter: Reporter = field(default_factory=Silence)
    to: str = PARQUET
    """The type of the chunks to write: `parquet`, `split_binary` or `tfrecord`."""
    tfrecord: TfrecordForm = field(default_factory=TfrecordForm)
    """How tfrecord is laid out."""
    rows: dict[str, int] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)

    def transcode(self, output: Path, *, overwrite: bool = False) -> FeatureSpec:
        """Make the dataset directory ``output``, whole or not at all; returns its spec."""
        check_apart(output, [self.directory])
        target = self._target()
        for mapping, chunks in self.spec.source_spec.items():
            check_lengths(self.directory, mapping, chunks, self.spec.feature_spec)
        schema = self._schema()
        with staged_directory(output, overwrite=overwrite, say=self.reporter.say) as staged:
            sources: dict[str, tuple[Chunk, ...]] = {}
            for mapping, chunks in self.spec.source_spec.items():
                size = sum((self.directory / f).stat().st_size for c in chunks for f in c.files)
                with self.reporter.phase(f"transcoding {mapping}", size) as report:
                    sources[mapping] = self._write(staged, mapping, target, schema)
                    report(size, self.rows[mapping])
            features = {
                name: self._counted(name, feature) for name, feature in target.feature_spec.items()
            }
            spec = replace(target, feature_spec=features, source_spec=sources)
            write_documents(staged, spec)
        return spec

    def _target(self) -> FeatureSpec:
        if self.to == SPLIT_BINARY:
            return split_binary_spec(self.spec)
        if self.to == TFRECORD:
            from .tfrecord import tfrecord_spec  # imports TensorFlow

            return tfrecord_spec(self.spec, self.tfrecord.history_length)
        return self.spec

    def _schema(self) -> pa.Schema:
        """The columns: channels in the published order, then what is in none."""
        names = to_merlin_schema(self.spec).column_names
        try:
            return pa.schema([(n, arrow_type(n, self.spec.feature_spec[n])) for n in names])
        except MerlinSimError as error:
            raise MerlinSimError(f"{self.directory}: {error}") from error

    def _write(
        self, staged: Path, mapping: str, target: FeatureSpec, schema: pa.Schema
    ) -> tuple[Chunk, ...]:
        tables = self._checked(mapping, schema)
        if self.to == SPLIT_BINARY:
            return write_split_binary(tables, staged, mapping, target)
        if self.to == TFRECORD:
            from .tfrecord import write_tfrecord

            parts = self.tfrecord.part_counts.get(mapping, PUBLISHED_PARTS.get(mapping, 4))
            samples = max(1, self.tfrecord.prebatch_sizes.get(mapping, 0))
            rows = self._count_rows(self.spec.source_spec[mapping][0])
            return (write_tfrecord(tables, staged, mapping, target, rows, parts, samples),)
        writer = PartWriter(staged, mapping, columns_with_few_ids(to_merlin_schema(self.spec)))
        for table in tables:
            writer.write(table)
        writer.close(schema)
        return (Chunk(PARQUET, tuple(schema.names), tuple(writer.files)),)

    def _count_rows(self, chunk: Chunk) -> int:
        """Count a chunk's rows; only parquet has them without being read."""
        if chunk.type == PARQUET:
            return sum(read_footer(self.directory / f)[0].num_rows for f in chunk.files)
        pieces = read_chunk(self.directory, chunk, self.spec.feature_spec)
        return sum(rows.table.num_rows for rows in pieces)

    def _checked(self, mapping: str, schema: pa.Schema) -> Iterator[pa.Table]:
        self.rows[mapping] = 0
        chunks = self.spec.source_spec[mapping]
        streams = [read_chunk(self.directory, chunk, self.spec.feature_spec) for chunk in chunks]
        for pieces in line_up(streams):
            for piece in pieces:
                self._check_values(piece)
            self._check_histories(pieces)
            columns = {
                name: piece.table[name] for piece in pieces for name in piece.table.column_names
            }
            # Counted before they are handed on: a writer that has its rows asks for no more.
            self.rows[mapping] += pieces[0].table.num_rows
            yield pa.table([columns[name] for name in schema.names], schema)

    def _check_values(self, rows: ChunkRows) -> None:
        for name in rows.table.column_names:
            feature = self.spec.feature_spec[name]
            column = decode(rows.table[name])
            values = column.values
            if feature.dimensions is not None and column.offsets is not None:
                lengths, longest = np.diff(column.offsets), feature.dimensions[0]
                expected = f"at most {longest} values (dimensions)"
                rows.require(name, lengths <= longest, expected, lengths)
            if self.to == TFRECORD and name in self.spec.channel_spec.get(LABEL, ()):
                expected = "0 or 1, which a label in tfrecord is"
                rows.require(name, (values == 0) | (values == 1), expected)
            if values.dtype.kind == "f":
                self._check_finite(rows, name, values)
            if feature.cardinality is not None and len(values):
                self._check_ids(rows, name, values)

    def _check_finite(self, rows: ChunkRows, name: str, values: np.ndarray[Any, Any]) -> None:
        """Refuse what training would, and what tfrecord cannot hold: it has 32 bits for a number.

        What is too large for its dtype is infinite here.
        """
        finite = np.isfinite(values)
        trains = any(name in names for names in self.spec.channel_spec.values())
        good = finite if trains else np.ones_like(finite)
        bits = values.dtype.itemsize * 8
        if self.to == TFRECORD:
            good = good & (~finite | (np.abs(values) <= LARGEST_IN_TFRECORD))
            bits = 32
        rows.require(name, good, f"a finite number of {bits} bits")

    def _check_ids(self, rows: ChunkRows, name: str, values: np.ndarray[Any, Any]) -> None:
        cardinality = self.spec.feature_spec[name].cardinality
        limit = most = int(values.max())
        self._largest[name] = max(self._largest.get(name, 0), most)
        if isinstance(cardinality, int):
            limit = cardinality - (0 if ids_start_at_one(self.spec.channel_spec) else 1)
        if values.min() < 0 or most > limit:
            expected = f"an id in 0..{limit} (cardinality {cardinality})"
            rows.require(name, (values >= 0) & (values <= limit), expected)

    def _check_histories(self, pieces: list[ChunkRows]) -> None:
        where = {name: piece for piece in pieces for name in piece.table.column_names}
        for channel in contract_of(self.spec.channel_spec).histories:
            first, *others = self.spec.channel_spec.get(channel, ()) or ("",)
            for name in others:
                lengths, found = (
                    np.asarray(pc.list_value_length(where[n].table[n])) for n in (first, name)
                )
                wrong = np.flatnonzero(found != lengths)
                if len(wrong):
                    row = int(wrong[0])
                    raise MerlinSimError(
                        f"{where[name].where(row)}: {channel}: {name} has {found[row]} values, "
                        f"but {first} has {lengths[row]} ({where[first].where(row)})."
                    )

    def _counted(self, name: str, feature: Feature) -> Feature:
        """Put the number of ids in place of ``auto``; features of one table have one number."""
        if feature.cardinality != AUTO:
            return feature
        domains = shared_domains(self.spec)
        sharing = [other for other, domain in domains.items() if domain == domains[name]]
        largest = max(self._largest.get(other, 0) for other in sharing)
        starts_at_one = ids_start_at_one(self.spec.channel_spec)
        return replace(feature, cardinality=max(1, largest if starts_at_one else largest + 1))
