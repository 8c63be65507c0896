"""Any dataset with a feature spec becomes a dataset directory: same rows, in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import check_apart, staged_directory
from ...schemas.channels import LABEL
from ...schemas.contracts.known_contracts import contract_of
from ...schemas.dataset import write_documents
from ...schemas.specs.feature_spec import Chunk, Feature, FeatureSpec
from ...schemas.translation.natural_translation import ids_start_at_one
from ..engine.parquet_files import LARGEST_DICTIONARY, PartWriter
from .chunk_files import arrow_type, count_chunk_rows, read_chunk
from .chunk_rows import ChunkRows, line_up
from .split_binary import SPLIT_BINARY, SplitBinaryWriter, check_lengths, split_binary_spec
from .tfrecord_form import TFRECORD, TfrecordForm

if TYPE_CHECKING:
    from .tfrecord_writer import TfrecordWriter

    Writer = PartWriter | SplitBinaryWriter | TfrecordWriter

AUTO = "auto"
PARQUET = "parquet"
LARGEST_IN_TFRECORD = float(np.finfo(np.float32).max)


@dataclass
class Transcoder:
    """Reads what a spec describes, checks it, writes parquet, split_binary or tfrecord."""

    spec: FeatureSpec
    directory: Path
    """Where the spec's paths start."""
    narrator: Narrator = field(default_factory=Silence)
    to: str = PARQUET
    """The type of the chunks to write: `parquet`, `split_binary` or `tfrecord`."""
    tfrecord: TfrecordForm = field(default_factory=TfrecordForm)
    """How tfrecord is laid out."""
    rows: dict[str, int] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)

    def transcode(self, output: Path, *, overwrite: bool = False) -> FeatureSpec:
        """Make the dataset directory ``output``; it appears whole or not at all.

        Returns:
            The new spec: other chunks, cardinalities counted where they were ``auto``.
        """
        check_apart(output, [self.directory])
        target = self._target()
        for mapping, chunks in self.spec.source_spec.items():
            check_lengths(self.directory, mapping, chunks, self.spec.feature_spec)
        order = self._column_order()
        schema = self._schema(order)
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as staged:
            sources: dict[str, tuple[Chunk, ...]] = {}
            for mapping, chunks in self.spec.source_spec.items():
                writer = self._writer(staged, mapping, target, chunks)
                with self.narrator.phase(f"transcoding {mapping}", self._bytes(chunks)) as report:
                    done = self._transcode_mapping(chunks, schema, writer)
                    report(self._bytes(chunks), done)
                self.rows[mapping] = writer.rows
                if isinstance(writer, PartWriter):
                    sources[mapping] = (Chunk(PARQUET, tuple(order), tuple(writer.files)),)
                else:
                    sources[mapping] = writer.chunks
            features = {
                name: self._counted(name, feature) for name, feature in target.feature_spec.items()
            }
            spec = replace(target, feature_spec=features, source_spec=sources)
            write_documents(staged, spec)
        return spec

    def _schema(self, order: list[str]) -> pa.Schema:
        try:
            return pa.schema([(n, arrow_type(n, self.spec.feature_spec[n])) for n in order])
        except MerlinSimError as error:
            raise MerlinSimError(f"{self.directory}: {error}") from error

    def _target(self) -> FeatureSpec:
        """What the dataset is when it is written."""
        if self.to == SPLIT_BINARY:
            return split_binary_spec(self.spec)
        if self.to == TFRECORD:
            from .tfrecord_writer import tfrecord_spec  # imports TensorFlow

            return tfrecord_spec(self.spec, self.tfrecord.history_length)
        return self.spec

    def _writer(
        self, staged: Path, mapping: str, target: FeatureSpec, chunks: tuple[Chunk, ...]
    ) -> Writer:
        if self.to == SPLIT_BINARY:
            return SplitBinaryWriter(staged, mapping, target)
        if self.to == TFRECORD:
            from .tfrecord_writer import TfrecordWriter

            rows = count_chunk_rows(self.directory, chunks[0], self.spec.feature_spec)
            return TfrecordWriter(staged, mapping, target, self.tfrecord, rows)
        return PartWriter(staged, mapping, self._few_ids())

    def _transcode_mapping(
        self, chunks: tuple[Chunk, ...], schema: pa.Schema, writer: Writer
    ) -> int:
        streams = [read_chunk(self.directory, chunk, self.spec.feature_spec) for chunk in chunks]
        for pieces in line_up(streams):
            for piece in pieces:
                self._check_values(piece)
            self._check_lengths(pieces)
            columns = {
                name: piece.table[name] for piece in pieces for name in piece.table.schema.names
            }
            writer.write(pa.table([columns[name] for name in schema.names], schema))
        writer.close(schema)
        return writer.rows

    def _column_order(self) -> list[str]:
        """Channels in the published order, then what is in none."""
        from ...schemas.translation.merlin_schema import to_merlin_schema

        names: list[str] = to_merlin_schema(self.spec).column_names
        return names

    def _few_ids(self) -> list[str]:
        return [
            name
            for name, feature in self.spec.feature_spec.items()
            if isinstance(feature.cardinality, int) and feature.cardinality < LARGEST_DICTIONARY
        ]

    def _bytes(self, chunks: tuple[Chunk, ...]) -> int:
        return sum((self.directory / f).stat().st_size for chunk in chunks for f in chunk.files)

    def _check_values(self, piece: ChunkRows) -> None:
        """Look at ids and at the lengths of lists."""
        starts_at_one = ids_start_at_one(self.spec.channel_spec)
        in_channels = {name for names in self.spec.channel_spec.values() for name in names}
        for name in piece.table.schema.names:
            feature = self.spec.feature_spec[name]
            column = piece.table[name].combine_chunks()
            if feature.dimensions is not None and len(column):
                self._check_longest(piece, name, column, feature.dimensions[0])
            if self.to == TFRECORD and name in self.spec.channel_spec.get(LABEL, ()):
                self._check_truth(piece, name, column)
            self._check_finite(piece, name, column, name in in_channels)
            if feature.cardinality is None:
                continue
            values = column.flatten() if feature.dimensions is not None else column
            if not len(values):
                continue
            least, most = pc.min_max(values).as_py().values()
            self._largest[name] = max(self._largest.get(name, 0), most)
            if feature.cardinality == AUTO:
                limit = most
            else:
                limit = int(feature.cardinality) - (0 if starts_at_one else 1)
            if least < 0 or most > limit:
                self._refuse_id(piece, name, column, limit)

    def _refuse_id(self, piece: ChunkRows, name: str, column: pa.Array, limit: int) -> None:
        values = _leaves(column)
        place = int(np.flatnonzero((values < 0) | (values > limit))[0])
        raise MerlinSimError(
            f"{piece.where(_row_of(place, column))}: {name}: expected an id in 0..{limit} "
            f"(cardinality {self.spec.feature_spec[name].cardinality}), found {values[place]}."
        )

    def _check_finite(
        self, piece: ChunkRows, name: str, column: pa.Array, in_channel: bool
    ) -> None:
        """Refuse what training would, and what tfrecord cannot hold: it has 32 bits for a number.

        What is too large for its dtype is infinite here.
        """
        values = _leaves(column)
        if values.dtype.kind != "f":
            return
        finite = np.isfinite(values)
        wrong = ~finite if in_channel else np.zeros_like(finite)
        bits = values.dtype.itemsize * 8
        if self.to == TFRECORD:
            wrong |= finite & (np.abs(values) > LARGEST_IN_TFRECORD)
            bits = 32
        if wrong.any():
            place = int(np.argmax(wrong))
            raise MerlinSimError(
                f"{piece.where(_row_of(place, column))}: {name}: expected a finite number of "
                f"{bits} bits, found {values[place]}."
            )

    def _check_truth(self, piece: ChunkRows, name: str, column: pa.Array) -> None:
        values = np.asarray(column)
        wrong = np.flatnonzero((values != 0) & (values != 1))
        if len(wrong):
            raise MerlinSimError(
                f"{piece.where(int(wrong[0]))}: {name}: expected 0 or 1, which a label in tfrecord "
                f"is, found {values[wrong[0]]}."
            )

    def _check_longest(self, piece: ChunkRows, name: str, column: pa.Array, longest: int) -> None:
        lengths = np.asarray(pc.list_value_length(column))
        row = int(lengths.argmax())
        if lengths[row] > longest:
            row = int(np.flatnonzero(lengths > longest)[0])
            raise MerlinSimError(
                f"{piece.where(row)}: {name}: expected at most {longest} values (dimensions), "
                f"found {lengths[row]}."
            )

    def _check_lengths(self, pieces: list[ChunkRows]) -> None:
        """Features of one history have the same length in every row."""
        where = {name: piece for piece in pieces for name in piece.table.schema.names}
        for channel in contract_of(self.spec.channel_spec).histories:
            names = [n for n in self.spec.channel_spec.get(channel, ()) if n in where]
            lengths = [np.asarray(pc.list_value_length(where[n].table[n])) for n in names]
            for name, found in zip(names[1:], lengths[1:], strict=True):
                wrong = np.flatnonzero(found != lengths[0])
                if len(wrong):
                    row = int(wrong[0])
                    raise MerlinSimError(
                        f"{where[name].where(row)}: {channel}: {name} has {found[row]} values, "
                        f"but {names[0]} has {lengths[0][row]} "
                        f"({where[names[0]].where(row)})."
                    )

    def _counted(self, name: str, feature: Feature) -> Feature:
        if feature.cardinality != AUTO:
            return feature
        largest = max(self._largest.get(other, 0) for other in self._sharing(name))
        starts_at_one = ids_start_at_one(self.spec.channel_spec)
        return replace(feature, cardinality=max(1, largest if starts_at_one else largest + 1))

    def _sharing(self, name: str) -> list[str]:
        """The features whose ids are in the same table, this one among them."""
        from ...schemas.translation.natural_translation import shared_domains

        domains: Mapping[str, str] = shared_domains(self.spec)
        return [other for other, domain in domains.items() if domain == domains[name]]


def _leaves(column: pa.Array) -> np.ndarray[Any, Any]:
    return np.asarray(column.flatten() if pa.types.is_list(column.type) else column)


def _row_of(place: int, column: pa.Array) -> int:
    """The row of a value, or of an entry of a list."""
    if not pa.types.is_list(column.type):
        return place
    offsets = np.asarray(column.offsets) - column.offsets[0].as_py()
    return int(np.searchsorted(offsets, place, "right")) - 1
