"""NVTabular's Categorify, which on a CPU counts and looks up keys by arrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
from nvtabular import ColumnSelector

from ...foundation.exceptions import MerlinSimError
from ...schemas.layout_names import CATEGORIES
from ..frames import ArrowLists, arrow_lists, arrow_of, is_on_gpu, new_frame
from ..times import is_text
from .counted_keys import (
    FREQUENCY,
    NULL,
    ORDERS,
    UNKNOWN,
    KeyCount,
    KeyRules,
    grow_file,
    leaves,
    reorder_file,
    size_column,
    write_keys,
)
from .key_index import ABSENT, is_vocabulary, keys_of_file, read_column
from .registry import CATEGORIFY, KEYS, META, copy_keys, find_files, register
from .workflow import Compute, TemporaryFiles

PerColumn = int | Mapping[str, int]


@register
class Categorify(nvt.ops.Categorify):
    """``nvtabular.ops.Categorify``: the same arguments, files and codes, in less time on a CPU.

    Of frames of pandas arrow counts and looks up the keys, of frames of cudf NVTabular does. What
    arrow has no part in is left to NVTabular as well: combinations of columns, buckets of a hash,
    one table for all columns, and several files for the keys of one.

    Two things are right here that NVTabular has wrong on a CPU: a partition whose index does not
    begin at 0 (its lists and nulls end up in other rows there), and a column that has nulls in
    ``transform`` alone (an error there).

    >>> import tempfile
    >>> from merlin.io import Dataset
    >>> log = pd.DataFrame({"item": ["b", "a", "b", None]})
    >>> item = Categorify(order="key", out_path=tempfile.mkdtemp())
    >>> workflow = nvt.Workflow(["item"] >> item)
    >>> workflow.fit_transform(Dataset(log)).to_ddf().compute()["item"].tolist()
    [4, 3, 4, 1]
    >>> item.keys("item").to_pylist(), item.counts("item").tolist()
    (['a', 'b'], [1, 2])

    Args:
        order: The keys' order: ``frequency``, NVTabular's, by falling count; ``frequency_hash``,
            by falling count and among equal counts by a hash (of uint32 murmur3's finalizer), for
            which rare keys need not be kept in memory; ``key``; or ``hash``, by a hash of the key.
    """

    categories: dict[str, str]
    storage_name: dict[str, str]
    vocabs: dict[str, str]
    out_path: str

    def __init__(
        self,
        freq_threshold: PerColumn = 0,
        out_path: str | Path | None = None,
        cat_cache: str | Mapping[str, str] | None = "host",
        dtype: Any = None,
        on_host: bool = True,
        encode_type: str = "joint",
        name_sep: str = "_",
        search_sorted: bool = False,
        num_buckets: PerColumn | None = None,
        vocabs: Mapping[Any, Any] | None = None,
        max_size: PerColumn = 0,
        single_table: bool = False,
        cardinality_memory_limit: int | str | None = None,
        tree_width: Any = None,
        split_out: PerColumn = 1,
        split_every: PerColumn = 8,
        order: str = FREQUENCY,
    ) -> None:
        if order not in ORDERS:
            raise MerlinSimError(
                f"`order` should be one of {', '.join(ORDERS)}. Received: `order` = {order!r}."
            )
        self.order = order
        self.cat_cache: Any = cat_cache
        self._work: TemporaryFiles | None = None
        self.known: dict[str, str] = {}
        self._unpacked: TemporaryFiles | None = None
        super().__init__(
            freq_threshold=freq_threshold,
            out_path=None if out_path is None else str(out_path),
            cat_cache=cat_cache,
            dtype=dtype,
            on_host=on_host,
            encode_type=encode_type,
            name_sep=name_sep,
            search_sorted=search_sorted,
            num_buckets=num_buckets,
            vocabs=vocabs,
            max_size=max_size,
            single_table=single_table,
            cardinality_memory_limit=cardinality_memory_limit,
            tree_width=tree_width,
            split_out=split_out,
            split_every=split_every,
        )
        if order != FREQUENCY and self._has_files_of_its_own:
            raise MerlinSimError(
                f"`order` = {order!r} needs one file of keys for each column: no `single_table`, "
                "no `split_out`, no `encode_type` of combinations, and the usual `name_sep`."
            )

    @property
    def _has_files_of_its_own(self) -> bool:
        """Whether only NVTabular can write and read the files of keys."""
        splits = self.split_out.values() if isinstance(self.split_out, dict) else [self.split_out]
        return (
            self.encode_type == "combo"
            or self.single_table
            or self.name_sep != "_"  # it does not find its own counts then
            or any(split not in (None, 1) for split in splits)
        )

    def fit(self, col_selector: ColumnSelector, ddf: Any) -> Any:
        """Count the keys of each column or group; see NVTabular's."""
        plan = self._plan(col_selector, ddf)
        if plan is None:
            return super().fit(col_selector, ddf)
        return dask.delayed(dict)(plan.write(plan.count(ddf)))

    def fit_in_phases(
        self, col_selector: ColumnSelector, ddf: Any, compute: Compute
    ) -> Mapping[str, str]:
        """Count keys as :meth:`fit` does; ``compute`` runs the tasks of a phase in any order."""
        plan = self._plan(col_selector, ddf)
        if plan is None:
            (found,) = compute([super().fit(col_selector, ddf)])
            return dict(found)
        written = dict(compute(plan.write([*compute(plan.count(ddf))])))
        return {name: written[name] for name in plan.groups}

    def _plan(self, col_selector: ColumnSelector, ddf: Any) -> KeyCount | None:
        """Say what is to be counted; None where NVTabular counts."""
        names = [(n,) if isinstance(n, str) else tuple(n) for n in col_selector.grouped_names]
        groups = {"_".join(columns): columns for columns in names}
        asked = {name: of for name, of in groups.items() if name not in self.categories}
        is_ours = isinstance(ddf._meta, pd.DataFrame) and not self._has_files_of_its_own
        if not asked or not is_ours or self.search_sorted:
            return None
        columns = [column for of_group in names for column in of_group]
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise MerlinSimError(
                f"Each column should be in one group. Received: {', '.join(twice)} in several."
            )
        for name, of_group in groups.items():
            if len(of_group) > 1:
                self.storage_name.update(dict.fromkeys(of_group, name))
        self.on_host = False
        if self.cat_cache == "device":
            self.cat_cache = "host"
        plan = KeyCount.plan(asked, f"{self.out_path}/{CATEGORIES}", self._rules)
        self._work = plan.work
        return plan

    def _rules(self, name: str) -> KeyRules:
        buckets = _of(self.num_buckets, name) or 1
        most = _of(self.max_size, name)
        if most and most < UNKNOWN + buckets:
            raise ValueError(
                f"`max_size` should be at least {UNKNOWN + buckets}: padding, nulls and unknown "
                f"keys have codes. Received: `max_size` = {most} for {name}."
            )
        return KeyRules(_of(self.freq_threshold, name), most, buckets, self.order)

    def take_keys(self, other: Categorify, column: str, grow: bool = False) -> None:
        """Give a column's keys the codes of a fitted operator; new ones come next, if they grow."""
        path = other.categories[column]
        if grow:
            self.known[column] = path
        else:
            self.vocabs[column] = self.categories[column] = path

    def fit_finalize(self, categories: Mapping[str, str]) -> None:
        """Take over the files of keys."""
        super().fit_finalize(categories)
        if self._work is not None:
            self._work.remove()
            self._work = None
        if self.order != FREQUENCY:
            for name, path in categories.items():
                reorder_file(Path(path), name, self.order)
        for name in set(self.known) & set(categories):
            grow_file(Path(categories[name]), name, Path(self.known[name]))

    def transform(self, col_selector: ColumnSelector, df: Any) -> Any:
        """Give codes for keys; see NVTabular's."""
        if is_on_gpu(df) or self._has_files_of_its_own:
            self._unpack()
            return super().transform(col_selector, df)
        if isinstance(self.freq_threshold, dict):
            lacking = sorted(set(col_selector.names) - set(self.freq_threshold))
            if lacking:
                raise MerlinSimError(
                    "`freq_threshold` should have a limit of each column. "
                    f"Received: none of {', '.join(lacking)}."
                )
        encoded = {name: df[name] for name in df.columns}
        for name in col_selector.names:
            codes = self._codes(name, df[name])
            codes = self._codes_of_nvtabular(name, df[name]) if codes is None else codes
            encoded[name] = pd.Series(codes, df.index, copy=False)
        return new_frame(encoded, like=df)

    def _codes(self, name: str, series: pd.Series) -> Any:
        """Look a column's keys up; None where NVTabular alone knows how."""
        storage, buckets = self._storage(name), self.num_buckets
        are_hashed = storage in buckets if isinstance(buckets, dict) else buckets is not None
        if are_hashed:  # those that are unknown
            return None
        keys = keys_of_file(self.categories[storage], storage)
        values = arrow_of(series)
        is_coded = pa.types.is_dictionary(values.type)  # each different key is looked up once
        different = leaves(values.dictionary if is_coded else values)
        asked = None if keys is None else _as_keys(different, keys.index.keys.type)
        if keys is None or asked is None:
            return None
        first = keys.first + (UNKNOWN + 1 if keys.first <= UNKNOWN else 0)  # given without codes
        positions = keys.index.positions(asked)
        codes = (positions + first).astype(self.output_dtype, copy=False)
        codes[positions == ABSENT] = UNKNOWN
        if not isinstance(values, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
            codes[np.asarray(asked.is_null())] = NULL  # in lists NVTabular takes nulls for unknown
            if not is_coded:
                return codes
            indices = values.indices.cast(pa.int64()).fill_null(len(codes))
            return np.append(codes, codes.dtype.type(NULL))[np.asarray(indices)]
        lengths = values.value_lengths().fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        if isinstance(series.array, pd.arrays.ArrowExtensionArray):
            return ArrowLists(arrow_lists(codes, offsets))
        lists = np.empty(len(series), object)
        lists[:] = np.split(codes, offsets[1:-1]) if len(series) else []
        return lists

    def _codes_of_nvtabular(self, name: str, series: pd.Series) -> Any:
        """Have NVTabular encode a column, of objects and with the index that it expects."""
        plain = pd.DataFrame({name: arrow_of(series).to_pandas()})
        return super().transform(ColumnSelector([name]), plain)[name].to_numpy()

    def _storage(self, name: str) -> str:
        """The name under which a column's keys are kept: its own or its group's."""
        storage: str = self.storage_name.get(name, name)
        return storage

    def keys(self, column: str) -> pa.Array:
        """The keys of a column or of its group, by code, from the first key's code on."""
        return self._read(column, self._storage(column))

    def counts(self, column: str) -> Any:
        """How often each of :meth:`keys` was seen: [keys] int64."""
        return self._read(column, size_column(self._storage(column))).to_numpy()

    def count_left_out(self, column: str) -> int:
        """How often keys of a column or of its group were seen in ``fit`` that have no code."""
        storage = self._storage(column)
        path = Path(self.categories[storage]).with_name(f"{META}.{storage}.parquet")
        return int(read_column(path, "num_observed")[UNKNOWN].as_py())

    def set_storage_path(self, new_path: str, copy: bool = False) -> None:
        """Keep the files of keys in another directory; see NVTabular's."""
        directory = Path(new_path) / CATEGORIES
        if copy:
            directory.mkdir(parents=True, exist_ok=True)
            copy_keys(self, directory)
        self.categories = {
            name: f"{new_path}/{CATEGORIES}/{Path(path).name}"
            for name, path in self.categories.items()
        }
        self.out_path = str(new_path)

    def get_config(self) -> dict[str, Any]:
        """Give the arguments that make the operator again; keys that were given are learned."""
        return {name: getattr(self, name) for name in (*CATEGORIFY, "order")}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Categorify:
        """Make the operator of its arguments."""
        return cls(**config)

    def get_learned(self, directory: Path) -> dict[str, Any]:
        """Give what ``fit`` learned; the files of keys go into the directory.

        Vocabularies of the dataset that is being saved stay where they are.
        """
        root, own = directory.parent.parent, self.categories
        stored = {n: Path(p) for n, p in own.items() if Path(p).parent == root / CATEGORIES}
        self.categories = {name: path for name, path in own.items() if name not in stored}
        try:
            learned = KEYS.get_learned(self, directory)
        finally:
            self.categories = own
        files = {name: file.name for name, file in stored.items()}
        given = [name for name in learned["given"] if name not in stored]
        return {**learned, "given": given, "vocabularies": files}

    def set_learned(self, learned: Mapping[str, Any], directory: Path) -> None:
        """Take over what ``fit`` learned."""
        KEYS.set_learned(self, learned, directory)
        root = directory.parent.parent
        self.categories |= find_files(learned["vocabularies"], root / CATEGORIES)

    def vocabularies_in(self, root: Path) -> list[str]:
        """The vocabularies of a dataset directory that keys are looked up in."""
        paths = [Path(path) for path in self.categories.values()]
        return [f"{CATEGORIES}/{p.name}" for p in paths if p.parent == root / CATEGORIES]

    def _unpack(self) -> None:
        """Make files of NVTabular's of vocabularies, which its own code cannot read."""
        for name, path in self.categories.items():
            if is_vocabulary(path):
                self._unpacked = self._unpacked or TemporaryFiles("merlin-sim-keys-")
                file = self._unpacked.path / f"unique.{name}.parquet"
                write_keys(file, name, read_column(Path(path), name))
                self.categories[name] = str(file)

    def _read(self, column: str, stored: str) -> pa.Array:
        path = self.categories.get(self._storage(column))
        if path is None:
            known = ", ".join(self.categories) or "none; `fit` gives them"
            raise MerlinSimError(
                f"Column {column!r} has no keys here. Columns and groups that have: {known}."
            )
        return read_column(Path(path), stored)


def _of(value: PerColumn | None, name: str) -> int:
    return (value[name] if isinstance(value, Mapping) else value) or 0


def _as_keys(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Make values of a vocabulary's type as pandas' ``astype`` does; None where they have none."""
    numbers = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if pa.types.is_null(kind) or values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return values.cast(kind)
    if is_text(values.type) and is_text(kind):
        return values.cast(kind)
    if numbers and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return values.cast(kind, safe=False)
    return None
