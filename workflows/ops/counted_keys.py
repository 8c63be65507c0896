"""Keys of columns, counted by arrow: one pass over partitions, files of counts, one of keys.

Each partition's counts are a file of their own, written whole, so a task that runs again writes the
same file again and no key is counted twice. A file's counts are dealt by a hash of the key into
parts, and a column's keys are added up part by part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.delayed import Delayed

from ...foundation.cores import count_cores
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import whole_file
from ...foundation.hashing import mix_32_arrays
from ...schemas.item_table import COUNT, KEY
from ..frames import arrow_of
from ..schedulers import write_arrow, written_by_task
from ..times import is_text
from .key_index import add_up, hashes_of, one_array, read_column
from .workflow import TemporaryFiles

FREQUENCY, FREQUENCY_HASH, BY_KEY, HASH = "frequency", "frequency_hash", "key", "hash"
ORDERS = (FREQUENCY, FREQUENCY_HASH, BY_KEY, HASH)
ORDER_METADATA = b"merlin_sim.order"
"""Says in a file in which order its keys are."""
PADDING, NULL, UNKNOWN = 0, 1, 2
"""NVTabular's codes that are of no key."""
MOST_PART_BITS = 8
ROWS_OF_A_GROUP = 1 << 20
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class KeyRules:
    """Which keys have codes, and in which order."""

    threshold: int
    """How often a key must have been seen."""
    most_codes: int
    """How many codes there are, those of no key among them; 0 for any number."""
    buckets: int
    """How many codes unknown keys share."""
    order: str

    @property
    def first_code(self) -> int:
        """The first key's code."""
        return UNKNOWN + self.buckets


def size_column(name: str) -> str:
    """The column that says how often each key of a column or group was seen."""
    return f"{name}_size"


def leaves(values: pa.Array) -> pa.Array:
    """Flatten lists, decode categories, and make nulls of NaN, and 0.0 of -0.0.

    >>> leaves(pa.array([[1.0, float("nan")], [2.0]])).to_pylist()
    [1.0, None, 2.0]
    """
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return leaves(values.flatten())
    if pa.types.is_dictionary(kind):
        return values.cast(kind.value_type)
    if pa.types.is_floating(kind):
        return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values), 0.0).cast(kind)
    return values


@dataclass(frozen=True)
class KeyCount:
    """Work of counting the keys of groups of columns and writing them.

    Two phases of tasks: first each partition is counted, then each group's keys are written.
    """

    groups: Mapping[str, tuple[str, ...]]
    """The columns of each group, by its name: theirs, joined by ``_``."""
    directory: str
    """Where ``unique.*.parquet`` and ``meta.*.parquet`` are written."""
    rules: Mapping[str, KeyRules]
    """What holds for a group, by its name."""
    work: TemporaryFiles

    @classmethod
    def plan(
        cls, groups: Mapping[str, tuple[str, ...]], directory: str, rules: Callable[[str], KeyRules]
    ) -> KeyCount:
        """Look at the rules, then make the directories."""
        of_group = {name: rules(name) for name in groups}
        Path(directory).mkdir(parents=True, exist_ok=True)
        return cls(groups, directory, of_group, TemporaryFiles(".counts-", Path(directory)))

    def file(self, group: str, partition: int) -> Path:
        """Where the counts of a group's keys in a partition are."""
        return self.work.path / f"{group}.{partition}.arrow"

    def count(self, ddf: Any) -> list[Any]:
        """Delayed: count each pandas partition of a Dask frame."""
        parts = ddf.to_delayed()
        bits = min(len(parts).bit_length() + 2, MOST_PART_BITS) if len(parts) > 1 else 0
        return [
            dask.delayed(partial(_count_partition, plan=self, number=number, bits=bits))(part)
            for number, part in enumerate(parts)
        ]

    def write(self, counted: list[Any]) -> list[Any]:
        """Delayed: write each group's keys; gives its name and their file.

        Takes what :meth:`count` gives, delayed; or what came of it, in any order.
        """
        writes = [partial(_write_keys, name=name, plan=self) for name in self.groups]
        if any(isinstance(one, Delayed) for one in counted):
            return [dask.delayed(write)(counted) for write in writes]
        # within the task: a value that many tasks share may be waited for when its worker is lost
        counted = sorted(counted, key=lambda one: one[0])
        return [dask.delayed(partial(write, counted))() for write in writes]


@dataclass(frozen=True)
class _Counted:
    """What a partition has of a group's keys, beside its file."""

    kind: pa.DataType
    nulls: int
    rows: int


Counted = tuple[int, Mapping[str, _Counted]]
"""A partition's number, and what it has of each group."""


def _count_partition(frame: pd.DataFrame, plan: KeyCount, number: int, bits: int) -> Counted:
    def count(name: str) -> _Counted:
        columns = [leaves(arrow_of(frame[column])) for column in plan.groups[name]]
        return _count_group(name, columns, plan.file(name, number), bits)

    with ThreadPoolExecutor(min(count_cores(), len(plan.groups))) as threads:
        return number, dict(zip(plan.groups, threads.map(count, plan.groups), strict=True))


def _count_group(name: str, columns: list[pa.Array], path: Path, bits: int) -> _Counted:
    kind = _common_type(name, [values.type for values in columns])
    values = one_array(pa.chunked_array([column.cast(kind) for column in columns], kind))
    seen = values.drop_null() if values.null_count else values
    keys, counts = add_up(seen, np.ones(len(seen), np.int64))
    dealt = _part_of(keys, bits)
    table = pa.table({KEY: keys, COUNT: counts})
    if bits:
        table = table.take(pa.array(np.argsort(dealt, kind="stable")))
    ends = np.cumsum(np.bincount(dealt, minlength=1 << bits)).tolist()
    parts = (table.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False))
    schema = table.schema
    batches = (
        pa.RecordBatch.from_arrays([*map(one_array, p.columns)], schema=schema) for p in parts
    )
    write_arrow(path, schema, batches)
    return _Counted(kind, values.null_count, len(values))


def _part_of(keys: pa.Array, bits: int) -> Array:
    """Deal keys to parts, the same for equal numbers of any type."""
    numbers = pa.types.is_integer(keys.type) or pa.types.is_floating(keys.type)
    hashes = hashes_of(keys.cast(pa.float64(), safe=False) if numbers else keys)
    if not bits or hashes is None:
        return np.zeros(len(keys), np.uint8)
    return (hashes >> np.uint64(64 - bits)).astype(np.uint8)


def _common_type(name: str, kinds: list[pa.DataType]) -> pa.DataType:
    distinct = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)]
    if len(distinct) < 2:
        return distinct[0] if distinct else pa.null()
    if all(is_text(kind) for kind in distinct):
        return pa.large_string()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in distinct):
        return pa.from_numpy_dtype(np.result_type(*(kind.to_pandas_dtype() for kind in distinct)))
    raise MerlinSimError(
        f"Column {name!r}: expected keys of one type, found {' and '.join(map(str, distinct))}."
    )


def _write_keys(counted: list[Counted], name: str, plan: KeyCount) -> tuple[str, str]:
    rules, directory = plan.rules[name], plan.directory
    found = [of_groups[name] for _, of_groups in counted]
    kind = _common_type(name, [one.kind for one in found])
    files = [plan.file(name, number) for number in range(len(found))]
    is_early = not rules.most_codes and rules.order != FREQUENCY  # others order rare keys too
    least = rules.threshold if is_early else 0
    with ThreadPoolExecutor(count_cores()) as threads:
        with pa.OSFile(str(written_by_task(files[0]))) as opened:
            parts = range(pa.ipc.open_file(opened).num_record_batches)
        added = [*threads.map(lambda part: _add_up_part(files, part, kind, least), parts)]
    left_out = sum(rare for _, _, rare in added)
    counts = np.concatenate([numbers for _, numbers, _ in added])
    keys = one_array(pa.chunked_array([of_part for of_part, _, _ in added]))
    del added
    pa.default_memory_pool().release_unused()
    if not is_early:
        by_count = _order(keys, counts, FREQUENCY, name)
        kept = by_count[counts[by_count] >= rules.threshold]
        if rules.most_codes:
            kept = kept[: rules.most_codes - rules.first_code]
        left_out += int(counts.sum() - counts[kept].sum())
    if is_early or rules.order != FREQUENCY:
        if not is_early:
            keys, counts = keys.take(pa.array(kept)), counts[kept]
        kept = _order(keys, counts, rules.order, name)
    observed = [0, sum(one.nulls for one in found), left_out, int(counts[kept].sum())]
    columns: dict[str, Any] = {name: keys, size_column(name): counts}
    if not any(one.rows for one in found):  # as NVTabular does of a column without rows
        columns, kept, observed = {name: pa.nulls(1, kind)}, np.zeros(1, np.int64), []
    path = f"{directory}/unique.{name}.parquet"
    _write_file(Path(path), pa.table(columns), kept, rules)
    meta = {
        "kind": ["pad", "null", "oov", "unique"],
        "offset": [PADDING, NULL, UNKNOWN, rules.first_code],
        "num_indices": [1, 1, rules.buckets, len(kept)],
        **({"num_observed": observed} if observed else {}),
    }
    with whole_file(Path(f"{directory}/meta.{name}.parquet")) as whole:
        pd.DataFrame(meta).to_parquet(whole)
    return name, path


def _add_up_part(
    files: list[Path], part: int, kind: pa.DataType, least: int
) -> tuple[pa.Array, Array, int]:
    """Add up a part's counts: frequent keys, their counts, and how often the others were seen."""
    batches = []
    for file in files:
        with pa.OSFile(str(written_by_task(file))) as opened:
            batches.append(pa.ipc.open_file(opened).get_batch(part))
    keys = one_array(pa.chunked_array([batch[KEY].cast(kind, safe=False) for batch in batches]))
    counts = np.concatenate([batch[COUNT].to_numpy() for batch in batches])
    if len(batches) > 1:
        keys, counts = add_up(keys, counts)
    is_kept = counts >= least
    if is_kept.all():
        return keys, counts, 0
    return keys.filter(pa.array(is_kept)), counts[is_kept], int(counts[~is_kept].sum())


def _order(keys: pa.Array, counts: Array, order: str, name: str) -> Array:
    if order in (BY_KEY, FREQUENCY):
        by_key = np.asarray(pc.sort_indices(keys))
        if order == BY_KEY:
            return by_key
        # pandas sorts backwards, not stably, which among equal counts gives NVTabular's order
        backwards = by_key[::-1]
        by_count: Array = backwards[np.argsort(counts[backwards], kind="quicksort")][::-1]
        return by_count
    hashes: Array | None
    if order == FREQUENCY_HASH and keys.type == pa.uint32():
        hashes = mix_32_arrays(keys.to_numpy())
    else:
        hashes = hashes_of(keys)
    if hashes is None:
        raise MerlinSimError(
            f"`order` = {order!r} needs keys that are strings or numbers. Received: column {name!r}"
            f" of {keys.type}."
        )
    by_hash: Array = np.argsort(hashes, kind="stable")
    if (np.diff(hashes[by_hash]) == 0).any():  # two keys of one hash follow each other by key
        by_key = np.asarray(pc.sort_indices(keys))
        by_hash = by_key[np.argsort(hashes[by_key], kind="stable")]
    if order == HASH:
        return by_hash
    by_count_and_hash: Array = by_hash[np.argsort(-counts[by_hash], kind="stable")]
    return by_count_and_hash


def _write_file(path: Path, table: pa.Table, order: Array, rules: KeyRules) -> None:
    """Write rows in their order; pandas reads the codes as the frame's index."""
    first = table.slice(0, min(1, len(order))).to_pandas()
    first.index = pd.RangeIndex(rules.first_code, rules.first_code + len(first))
    stated = json.loads(pa.Schema.from_pandas(first).metadata[b"pandas"])
    stated["index_columns"][0]["stop"] = rules.first_code + len(order)
    metadata = {b"pandas": json.dumps(stated).encode(), ORDER_METADATA: rules.order.encode()}
    table = table.replace_schema_metadata(metadata)
    with (
        whole_file(path) as whole,
        pq.ParquetWriter(whole, table.schema, compression="none") as writer,
    ):
        for begin in range(0, len(order), ROWS_OF_A_GROUP):
            writer.write_table(table.take(pa.array(order[begin : begin + ROWS_OF_A_GROUP])))
    pa.default_memory_pool().release_unused()


def reorder_file(path: Path, name: str, order: str) -> None:
    """Bring the keys of a file that NVTabular wrote into another order, if they are not in it."""
    found = pq.read_schema(path).metadata or {}
    if found.get(ORDER_METADATA) == order.encode():
        return
    table = pq.read_table(path)
    keys, counts = table[name].combine_chunks(), table[size_column(name)].to_numpy()
    table = table.take(pa.array(_order(keys, counts, order, name)))
    table = table.replace_schema_metadata({**found, ORDER_METADATA: order.encode()})
    with whole_file(path) as whole:
        pq.write_table(table, whole, compression="none")


def grow_file(path: Path, name: str, known: Path) -> None:
    """Put the keys of a file behind those that have codes already, in the file ``known``."""
    found, keys = pq.read_table(path), read_column(known, name)
    counted = one_array(found[name]).cast(keys.type)
    new = counted.filter(pc.index_in(counted, keys).is_null())
    both = pa.concat_arrays([keys, new])
    counts = np.zeros(len(both), np.int64)
    if len(counted):
        counts[pc.index_in(counted, both).to_numpy()] = found[size_column(name)].to_numpy()
    write_keys(path, name, both, counts)


def write_keys(path: Path, name: str, keys: pa.Array, counts: Array | None = None) -> None:
    """Write a file of keys as NVTabular reads it; never seen where there are no ``counts``."""
    counts = np.zeros(len(keys), np.int64) if counts is None else counts
    table = pa.table({name: keys, size_column(name): counts})
    _write_file(path, table, np.arange(len(keys)), KeyRules(0, 0, 1, FREQUENCY))
