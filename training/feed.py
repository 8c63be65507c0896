"""From an opened dataset directory to batches of exactly the columns that a model reads."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import merlin.io
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.schema import Schema, Tags

from ..schemas.dataset import Dataset
from .distributed import Ranks, rank_batch_size
from .loader import Loader
from .row_source import DataError


def open_feed(
    dataset: Dataset,
    mapping: str,
    columns: list[str],
    global_batch_size: int,
    ranks: Ranks,
    *,
    shuffle: bool = False,
    seed: int = 0,
    window_rows: int = 65536,
    drop_last: bool = False,
    prefetch: int | None = None,
) -> Loader:
    """Open this rank's feed of ``train`` or ``test``; histories come padded on the left.

    Args:
        dataset: the opened directory.
        mapping: a name in its source_spec.
        columns: what is read of each row.
        global_batch_size: rows per step over all ranks.
        ranks: the run.
        shuffle: a new order in each epoch.
        seed: of the orders.
        window_rows: rows shuffled together.
        drop_last: leave out the rows that do not fill a global batch.
        prefetch: batches made ahead.

    Raises:
        DataError: naming a file that cannot be read as parquet.
    """
    batch_size = rank_batch_size(global_batch_size, ranks)
    files = dataset.files(mapping)
    for file in files:
        _require_parquet(file)
    schema = Schema([dataset.schema[name] for name in columns])
    source = merlin.io.Dataset(
        [str(file) for file in files], engine="parquet", schema=schema, row_groups_per_part=1
    )
    loader = Loader(
        source,
        batch_size,
        shuffle=shuffle,
        global_size=ranks.size,
        global_rank=ranks.rank,
        drop_last=drop_last,
        seed=seed,
        pad_lists=True,
        compact_ids=True,
        window_rows=window_rows,
        prefetch=prefetch,
    )
    if loader.plan(0).steps == 0:
        rows = loader.plan(0).rows
        missing = f"{rows} rows are fewer than one global batch" if rows else "there are no rows"
        raise DataError(f"{dataset.path}: {mapping} has nothing to feed: {missing}.")
    return loader


def _require_parquet(file: Any) -> None:
    try:
        pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read as parquet: {error}") from error


def user_column(schema: Schema) -> str | None:
    """Name the column whose ids tell users apart: tagged user_id, else the first of a user."""
    for tag in (Tags.USER_ID, Tags.USER):
        for column in schema.select_by_tag(tag):
            if not column.is_list:
                return str(column.name)
    return None


def fingerprint(dataset: Dataset) -> str:
    """Return a short name for what a dataset holds, not for where it lies.

    It covers the spec and, of each file, its length and its last 64 KiB, where parquet keeps its
    schema, row groups and statistics.
    """
    digest = hashlib.sha256(json.dumps(_contents(dataset), sort_keys=True).encode())
    for mapping in ("train", "test"):
        for file in dataset.files(mapping):
            try:
                with open(file, "rb") as stream:
                    size = stream.seek(0, 2)
                    stream.seek(max(0, size - 65536))
                    digest.update(str(size).encode() + stream.read())
            except OSError as error:
                raise DataError(f"{file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _contents(dataset: Dataset) -> dict[str, Any]:
    spec = dataset.spec
    features = {
        name: [str(feature.dtype), feature.cardinality, feature.dimensions]
        for name, feature in spec.feature_spec.items()
    }
    channels = {name: list(names) for name, names in spec.channel_spec.items()}
    return {"features": features, "channels": channels}
