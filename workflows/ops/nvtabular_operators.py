"""What NVTabular's operators are made of: the arguments that make each, and what it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from merlin.dag.ops.concat_columns import ConcatColumns
from merlin.dag.ops.grouping import GroupingOp
from merlin.dag.ops.selection import SelectionOp
from merlin.dag.ops.subset_columns import SubsetColumns
from merlin.dag.ops.subtraction import SubtractionOp
from merlin.io import Dataset
from nvtabular import ops
from nvtabular.ops import Operator

from ...foundation.exceptions import MerlinSimError
from ..engine.backend import frame_to_arrow
from ..engine.workflow import TemporaryFiles
from .registry import copy_files, find_files

PREFIX = "nvtabular."
META = "meta"
"""Begins the names of the files that say how often Categorify saw keys that have no code."""
TABLE = "table.parquet"
"""The table that JoinExternal joins."""
FUNCTION = "it holds a Python function, which no JSON file can hold"
COUNTING = ("cat_cache", "on_host", "name_sep", "split_out", "split_every")
CATEGORIFY = (
    "freq_threshold",
    "dtype",
    "encode_type",
    "search_sorted",
    "num_buckets",
    "max_size",
    "single_table",
    "cardinality_memory_limit",
    *COUNTING,
)
"""The arguments of Categorify that a file keeps: no paths, and no vocabularies, which are files."""


@dataclass(frozen=True)
class OperatorForm:
    """How an operator of NVTabular's is saved and made again."""

    arguments: tuple[str, ...] = ()
    """Its constructor's arguments."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Where an argument is kept under another name."""
    learned: tuple[str, ...] = ()
    """The attributes that ``fit`` sets, of names and numbers."""
    files: str | None = None
    """The attribute that has paths of parquet files, by name."""

    def get_config(self, op: Operator) -> dict[str, Any]:
        """Give the arguments that make the operator again."""
        return {name: getattr(op, self.attributes.get(name, name)) for name in self.arguments}

    def make(self, cls: type[Operator], config: Mapping[str, Any], directory: Path) -> Operator:
        """Make the operator."""
        return cls(**config)

    def get_learned(self, op: Operator, directory: Path) -> dict[str, Any]:
        """Give what the operator learned; files go into the directory."""
        learned = {name: getattr(op, name) for name in self.learned}
        if self.files is not None:
            learned[self.files] = copy_files(getattr(op, self.files), directory)
        return learned

    def set_learned(self, op: Operator, learned: Mapping[str, Any], directory: Path) -> None:
        """Give the operator what it learned."""
        for name in self.learned:
            setattr(op, name, learned[name])
        if self.files is not None:
            setattr(op, self.files, find_files(learned[self.files], directory))
            forget_path(op)

    def join(self, op: Operator, dependencies: list[Any]) -> None:
        """Tell the operator of the nodes that it depends on."""


def forget_path(op: Any) -> None:
    """Have an operator write what it learns anew into a directory that goes with it."""
    op.temporary_files = TemporaryFiles("merlin-sim-operator-")
    op.out_path = str(op.temporary_files)


def copy_keys(op: Any, directory: Path) -> dict[str, str]:
    """Copy the files of Categorify's keys, with those that say how often keys were seen.

    Returns:
        The files' names, by the names of columns and groups. Keys that were given have one alone.
    """
    fitted = {name: path for name, path in op.categories.items() if name not in op.vocabs}
    given = {name: path for name, path in op.categories.items() if name in op.vocabs}
    return {**copy_files(given, directory), **copy_files(fitted, directory, META)}


class _CategorifyForm(OperatorForm):
    def get_learned(self, op: Operator, directory: Path) -> dict[str, Any]:
        given = sorted(op.vocabs)
        files = copy_keys(op, directory)
        return {"categories": files, "given": given, "storage_name": op.storage_name}

    def set_learned(self, op: Operator, learned: Mapping[str, Any], directory: Path) -> None:
        op.categories = find_files(learned["categories"], directory)
        op.vocabs = {name: op.categories[name] for name in learned["given"]}
        op.storage_name = dict(learned["storage_name"])
        forget_path(op)


class _BucketizeForm(OperatorForm):
    def get_config(self, op: Operator) -> dict[str, Any]:
        cells = op.boundaries.__closure__ or ()
        found = [cell.cell_contents for cell in cells]
        if len(found) != 1 or op.boundaries.__module__ != ops.Bucketize.__module__:
            raise MerlinSimError(FUNCTION)
        return {"boundaries": found[0]}


class _RenameForm(OperatorForm):
    def get_config(self, op: Operator) -> dict[str, Any]:
        if op.f is not None:
            raise MerlinSimError(FUNCTION)
        return super().get_config(op)


class _GroupbyForm(OperatorForm):
    def get_config(self, op: Operator) -> dict[str, Any]:
        aggs = {
            name: [agg for agg in found if agg is not list] + op.list_aggs.get(name, [])
            for name, found in op.conv_aggs.items()
        }
        return {**super().get_config(op), "aggs": aggs}


class _TargetEncodingForm(OperatorForm):
    def make(self, cls: type[Operator], config: Mapping[str, Any], directory: Path) -> Operator:
        return cls(target=[], **config)

    def join(self, op: Operator, dependencies: list[Any]) -> None:
        op.target = op.dependency = dependencies[0]


class _JoinGroupbyForm(OperatorForm):
    def get_config(self, op: Operator) -> dict[str, Any]:
        return {**super().get_config(op), "cont_cols": op.cont_names.names}


class _JoinExternalForm(OperatorForm):
    def get_config(self, op: Operator) -> dict[str, Any]:
        return {**super().get_config(op), **op.kwargs}

    def make(self, cls: type[Operator], config: Mapping[str, Any], directory: Path) -> Operator:
        path = find_files({TABLE: TABLE}, directory)[TABLE]
        return cls(df_ext=Dataset(path, engine="parquet"), **config)

    def get_learned(self, op: Operator, directory: Path) -> dict[str, Any]:
        frame = op.df_ext.to_ddf().compute(scheduler="synchronous")
        pq.write_table(frame_to_arrow(frame), directory / TABLE)
        return {}


KEYS = _CategorifyForm(CATEGORIFY)
"""How Categorify is saved, and subclasses of it."""
REFUSED = {
    ops.LambdaOp: FUNCTION,
    ops.Filter: FUNCTION,
    ops.ColumnSimilarity: "it holds matrices",
    ops.DataStats: "its statistics are no part of what it gives",
    ops.ReduceDtypeSize: "what it learned is not in a form that could be read again",
}
"""Operators that cannot be saved, and why."""
FORMS: dict[type[Operator], OperatorForm] = {
    ConcatColumns: OperatorForm(("label",), {"label": "_label"}),
    SubsetColumns: OperatorForm(("label",), {"label": "_label"}),
    SelectionOp: OperatorForm(("selector",)),
    SubtractionOp: OperatorForm(("selector",)),
    GroupingOp: OperatorForm(),
    ops.AddMetadata: OperatorForm(("tags", "properties")),
    ops.AddProperties: OperatorForm(("properties",)),
    ops.AddTags: OperatorForm(("tags",)),
    ops.TagAsItemFeatures: OperatorForm(),
    ops.TagAsItemID: OperatorForm(),
    ops.TagAsUserFeatures: OperatorForm(),
    ops.TagAsUserID: OperatorForm(),
    ops.Bucketize: _BucketizeForm(),
    ops.Categorify: KEYS,
    ops.Clip: OperatorForm(("min_value", "max_value")),
    ops.DifferenceLag: OperatorForm(("partition_cols", "shift"), {"shift": "shifts"}),
    ops.DropLowCardinality: OperatorForm(("min_cardinality",)),
    ops.Dropna: OperatorForm(),
    ops.FillMedian: OperatorForm(("add_binary_cols",), learned=("medians",)),
    ops.FillMissing: OperatorForm(("fill_val", "add_binary_cols")),
    ops.Groupby: _GroupbyForm(("groupby_cols", "sort_cols", "name_sep", "ascending")),
    ops.HashBucket: OperatorForm(("num_buckets",)),
    ops.HashedCross: OperatorForm(("num_buckets",)),
    ops.JoinExternal: _JoinExternalForm(
        ("on", "how", "on_ext", "columns_ext", "drop_duplicates_ext", "cache")
    ),
    ops.JoinGroupby: _JoinGroupbyForm(
        ("stats", *COUNTING), learned=("storage_name",), files="categories"
    ),
    ops.ListSlice: OperatorForm(("start", "end", "pad", "pad_value")),
    ops.LogOp: OperatorForm(),
    ops.Normalize: OperatorForm(("out_dtype",), learned=("means", "stds")),
    ops.NormalizeMinMax: OperatorForm(("out_dtype",), learned=("mins", "maxs")),
    ops.Rename: _RenameForm(("postfix", "name")),
    ops.TargetEncoding: _TargetEncodingForm(
        (
            "target_mean",
            "kfold",
            "fold_seed",
            "p_smooth",
            "out_col",
            "out_dtype",
            "drop_folds",
            *COUNTING,
        ),
        learned=("means",),
        files="stats",
    ),
    ops.ValueCount: OperatorForm(learned=("stats",)),
}
BY_NAME = {f"{PREFIX}{cls.__name__}": cls for cls in FORMS}
