"""All users' histories in ids, by NVTabular's workflow over partitions on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pyarrow as pa
from merlin.io import Dataset

from ...foundation.atomic_write import whole_file
from ...foundation.process_wide import quiet_merlin
from ..engine.backend import frame_from_arrow, frame_to_arrow
from ..engine.schedulers import Scheduler
from ..engine.workflow import Workflow
from ..features.feature import INTERACTION, USER
from ..features.fitted_numbers import FittedNumbers
from ..vocabularies.vocabulary import Vocabularies
from .behaviour_columns import BehaviourColumns
from .behaviour_graph import encode_histories, fitted_workflow
from .rules import SampleRules
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


def _transform(workflow: Workflow, load: Any, partitions: list[Any]) -> list[Any]:
    """Transform partitions that ``load`` reads; gives Dask's delayed frames."""
    names = workflow.input_schema.column_names
    empty = frame_from_arrow(pa.table({name: pa.array([], pa.int64()) for name in names}))
    frames = dd.from_map(load, partitions, meta=empty, enforce_metadata=False)
    with quiet_merlin():
        transformed = workflow.transform(Dataset(frames, cpu=None), is_whole=True).to_ddf()
    delayed: list[Any] = transformed.to_delayed()
    return delayed
