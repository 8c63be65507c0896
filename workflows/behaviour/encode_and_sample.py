"""The two workflows of a large run, each NVTabular's, over partitions on disk.

First: buckets of raw interactions -> histories of ids. Second: parts of the rows to make ->
files of samples. Between them the rows of all users are dealt out over all parts by a hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
from merlin.io import Dataset
from merlin.schema import Schema

from ...foundation.atomic_write import whole_file
from ...foundation.process_wide import quiet_merlin
from ..engine.backend import arrow_lists, frame_from_arrow, frame_to_arrow
from ..engine.parquet_files import LARGEST_DICTIONARY, ROWS_PER_FILE, write_samples_file
from ..engine.schedulers import Scheduler
from ..engine.workflow import Workflow
from ..features.feature import INTERACTION, USER
from ..features.fitted_numbers import FittedNumbers
from ..features.item_values import ItemValues
from ..operators import sample_kernels
from ..operators.prefix_numbers import PrefixNumbers
from ..vocabularies.vocabulary import Vocabularies
from .behaviour_columns import EARLIER, LABEL, POSITION, SECONDS, BehaviourColumns
from .behaviour_graph import encode_histories, fitted_workflow, make_samples
from .histories import Histories
from .rules import LATEST, SampleRules
from .split import Split


@dataclass(frozen=True)
class LoadEvents:
    """Reads one bucket of kept interactions."""

    directory: Path

    def __call__(self, name: str) -> Any:
        """Read the bucket's file as a frame."""
        with pa.memory_map(str(self.directory / name)) as source:
            return frame_from_arrow(pa.ipc.open_file(source).read_all())


def encode_all(
    columns: BehaviourColumns,
    vocabularies: Vocabularies,
    events: Path,
    output: Path,
    rules: SampleRules,
    split: Split | None,
    scheduler: Scheduler,
    fitted: FittedNumbers | None = None,
) -> Iterator[int]:
    """Encode every bucket's histories; yields the number of histories of each partition."""
    output.mkdir()
    names = sorted(path.name for path in events.glob("*.arrow"))
    load = LoadEvents(events)
    encodings = output / "encodings"
    node = encode_histories(columns, vocabularies, encodings, rules, split, fitted)
    # A row of known keys: NVTabular cannot tell what is in lists that stay empty.
    bucketed = {n.name for of in (USER, INTERACTION) for n in columns.features.bucketed(of)}
    keys = [name for name in (*columns.users, columns.item) if name not in bucketed]
    known = {name: vocabularies.first_key(name) for name in keys}
    workflow = fitted_workflow(node, load(names[0]).iloc[:1].assign(**known))
    partitions = _transform(workflow, load, names)
    write = dask.delayed(_write_arrow, pure=False)
    yield from scheduler.compute(
        [write(part, output / name) for part, name in zip(partitions, names, strict=True)]
    )


def _write_arrow(frame: Any, path: Path) -> int:
    table = frame_to_arrow(frame)
    with whole_file(path) as whole, pa.ipc.new_file(str(whole), table.schema) as writer:
        writer.write_table(table)
    return int(table.num_rows)


@dataclass(frozen=True)
class Part:
    """One file of samples to make."""

    mapping: str
    number: int
    of: int

    @property
    def file(self) -> str:
        """The file, relative to the dataset directory."""
        return f"{self.mapping}/part.{self.number}.parquet"


@dataclass(frozen=True)
class LoadPrefixes:
    """Cuts, out of all histories, the rows that a hash deals to one part."""

    histories: Histories
    rules: SampleRules
    moments: bool = False
    """Whether rows bring their time along."""

    def __call__(self, part: Part) -> Any:
        """Give the part's rows as ``ExplodeHistories`` gives all rows."""
        columns = self.histories.columns
        users = self.histories.column(columns.user)
        begins, ends = self.histories.positions(part.mapping)
        rows, positions = sample_kernels.select_prefixes(
            users, begins, ends, self.rules.seed, part.number, part.of
        )
        histories = self.histories
        targets, *labels, values, stops = self._cut(
            histories.items, histories.taken, rows, positions
        )
        of_users = [name for name in columns.users if name not in columns.beside_items]
        table = {name: pa.array(self.histories.column(name)[rows]) for name in of_users}
        table[POSITION] = pa.array(positions)
        if columns.roles:
            table[LABEL] = pa.array(labels[0])
        table[columns.targets[0]] = pa.array(targets)
        table[columns.positives[0]] = arrow_lists(values, stops)

        def cut_seconds(seconds: Any) -> tuple[Any, Any, Any]:
            now, *_, then, new_stops = self._cut(seconds, histories.taken_seconds, rows, positions)
            return now, then, new_stops

        places = histories.offsets[rows] + positions
        if columns.indexes_samples:
            samples = histories.samples
            places = samples.places[samples.offsets[rows] + positions]
        latest = self.rules.feature_values == LATEST
        valued = histories.offsets[rows + 1] - 1 if latest else places
        for name in (*columns.beside_items, *columns.times):
            chosen = valued if name in columns.changing_keys else places
            table[name] = pa.array(histories.beside(name)[chosen])
        behind = histories.firsts[places] if columns.moments else places
        cut_numbers = PrefixNumbers(columns, histories.numbers, histories.numbers, np)
        numbers, of_lists = cut_numbers(
            histories.offsets, rows, places, valued, behind, cut_seconds
        )
        if columns.continued:  # no draw of an earlier day is made again
            table[POSITION] = pa.array(positions + numbers.pop(EARLIER).astype(np.int64))
        if self.moments:
            numbers[SECONDS] = histories.numbers(SECONDS)[places]
        table |= {name: pa.array(found) for name, found in numbers.items()}
        table |= {name: arrow_lists(*found) for name, found in of_lists.items()}
        return frame_from_arrow(pa.table(table))

    def _cut(self, values: Any, taken: Any, rows: Any, positions: Any) -> tuple[Any, ...]:
        """What the samples are, their labels if the log has any, and what was before them.

        Args:
            values: Of all interactions.
            taken: Of those that join the history, where not all do.
            rows: Whose samples.
            positions: Which of them.
        """
        histories, longest = self.histories, self.rules.max_sequence_length
        if not histories.columns.indexes_samples:
            where = (histories.offsets, rows, positions, longest)
            return (*sample_kernels.cut_prefixes(values, *where),)
        found = histories.samples
        lists = (values, found.places, taken, found.before, found.positives, found.begins)
        return (*sample_kernels.cut_taken(*lists, found.offsets, rows, positions, longest),)


def count_parts(rows: int) -> int:
    """How many files hold so many rows.

    >>> count_parts(0), count_parts(131_073)
    (1, 2)
    """
    return max(1, -(-rows // ROWS_PER_FILE))


def sample_all(
    histories: Histories,
    parts: list[Part],
    rules: SampleRules,
    vocabularies: Vocabularies,
    schema: Schema,
    output: Path,
    scheduler: Scheduler,
    events: tuple[Path, FittedNumbers] | None = None,
    values: ItemValues | None = None,
) -> Iterator[tuple[str, int]]:
    """Make every part's samples; yields each part's mapping and number of rows."""
    columns = histories.columns
    labels = [LABEL] if columns.roles else []
    prefixes = [*columns.users, POSITION, *labels, columns.targets[0], columns.positives[0]]
    prefixes += [*columns.times, *columns.features.beside_user, *columns.intervals]
    prefixes += [SECONDS] if events else []
    load = LoadPrefixes(histories, rules, moments=events is not None)
    node = make_samples(
        prefixes, columns, rules, vocabularies, schema, events, values, follows_log=True
    )
    workflow = Workflow(node).fit_schema(Schema(prefixes))
    partitions = _transform(workflow, load, parts)
    few_ids = columns_with_few_ids(schema)
    write = dask.delayed(_write_part, pure=False)
    yield from scheduler.compute(
        [write(frame, output, part, few_ids) for frame, part in zip(partitions, parts, strict=True)]
    )


def columns_with_few_ids(schema: Schema) -> list[str]:
    """Name the columns whose ids parquet should store as places in a dictionary."""
    return [
        column.name
        for column in schema
        if column.int_domain is not None and column.int_domain.max < LARGEST_DICTIONARY
    ]


def _write_part(frame: Any, output: Path, part: Part, few_ids: list[str]) -> tuple[str, int]:
    table = frame_to_arrow(frame)
    write_samples_file(table, output / part.file, few_ids)
    return part.mapping, int(table.num_rows)


def _transform(workflow: Workflow, load: Any, partitions: list[Any]) -> list[Any]:
    """Transform partitions that ``load`` reads; gives Dask's delayed frames."""
    names = workflow.input_schema.column_names
    empty = frame_from_arrow(pa.table({name: pa.array([], pa.int64()) for name in names}))
    frames = dd.from_map(load, partitions, meta=empty, enforce_metadata=False)
    with quiet_merlin():
        transformed = workflow.transform(Dataset(frames, cpu=None), is_whole=True).to_ddf()
    delayed: list[Any] = transformed.to_delayed()
    return delayed
