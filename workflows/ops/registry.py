"""Which operators a saved workflow may name, and how NVTabular's own are saved.

An operator is saved as its name and what ``get_config()`` gives, the arguments that make it again.
One that learns in ``fit`` has ``get_learned(directory)`` as well, which may write files there. All
of it is JSON and parquet, and a file that was changed can name no code that was not
registered.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

import pyarrow.parquet as pq
from merlin.dag.ops.concat_columns import ConcatColumns
from merlin.dag.ops.grouping import GroupingOp
from merlin.dag.ops.selection import SelectionOp
from merlin.dag.ops.subset_columns import SubsetColumns
from merlin.dag.ops.subtraction import SubtractionOp
from merlin.io import Dataset
from nvtabular import ops
from nvtabular.ops import Operator, StatOperator

from ...foundation.exceptions import MerlinSimError
from ..frames import frame_to_arrow
from .workflow import TemporaryFiles

OperatorClass = TypeVar("OperatorClass", bound="type[Operator]")
LEARNING = ("get_learned", "set_learned")
IMPORTED = "MERLIN_SIM_IMPORT"
"""The environment variable that names modules which register operators, by commas."""
_registered: dict[str, type[Operator]] = {}


@overload
def register(cls: OperatorClass, name: str | None = None) -> OperatorClass: ...


@overload
def register(
    cls: None = None, name: str | None = None
) -> Callable[[OperatorClass], OperatorClass]: ...


def register(cls: Any = None, name: str | None = None) -> Any:
    """Let saved workflows name an operator; as a decorator or called.

    >>> from merlin_sim.workflows.ops.registry import register
    >>> @register(name="example.Halve")
    ... class Halve(Operator):
    ...     def get_config(self):
    ...         return {}

    Args:
        cls: The operator's class. It has ``get_config() -> dict``, JSON from which
            ``from_config``, or else the constructor, makes it again. One that learns has
            ``get_learned(directory) -> dict``, JSON, and ``set_learned(learned, directory)``.
        name: What files call it; the class's name if None.
    """
    if cls is None:
        return lambda decorated: register(decorated, name)
    name = name or cls.__name__
    check_operator(cls, name)
    known = _registered.get(name)
    if known is not None and _full_name(known) != _full_name(cls):
        raise MerlinSimError(
            f"Operator {name!r}: the name is taken by {_full_name(known)}. Give `name`."
        )
    _registered[name] = cls
    return cls


def check_operator(cls: Any, name: str) -> None:
    """Refuse what cannot be saved."""
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise MerlinSimError(
            f"`register` takes a subclass of nvtabular.ops.Operator. Received: {cls!r}."
        )
    needed = ("get_config", *(LEARNING if issubclass(cls, StatOperator) else ()))
    lacking = [method for method in needed if not callable(getattr(cls, method, None))]
    if lacking:
        raise MerlinSimError(
            f"Operator {name!r}: expected the methods {', '.join(needed)}, found no "
            f"{', '.join(lacking)}: a saved workflow could not make it again."
        )


def import_operators(modules: Sequence[str]) -> None:
    """Import modules that register operators, here and in the processes that this one starts."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MerlinSimError(
                f"{module}: expected a module that registers operators ({error}). `PYTHONPATH` "
                "says where modules are that are not installed."
            ) from error
    if modules:
        os.environ[IMPORTED] = ",".join(modules)


def operators_with(more: Iterable[type[Operator]]) -> dict[str, type[Operator]]:
    """The registered operators by name, and further ones by the names of their classes."""
    import_operators([name for name in os.environ.get(IMPORTED, "").split(",") if name])
    known = dict(_registered)
    names = names_of_classes()
    for cls in more:
        name = names.get(cls, cls.__name__)
        check_operator(cls, name)
        known[name] = cls
    return known


def names_of_classes() -> dict[type[Operator], str]:
    """Return the names of the registered classes in files."""
    return {cls: name for name, cls in _registered.items()}


def copy_files(files: Mapping[str, str], directory: Path, prefix: str = "") -> dict[str, str]:
    """Copy an operator's parquet files, or directories of them; gives their names there.

    With each goes the file whose name has ``prefix`` in place of its first part: ``meta`` for
    ``unique.item.parquet``.
    """
    copied = {}
    for name, path in sorted(files.items()):
        source = Path(path)
        _copy(source, directory / source.name)
        if prefix:
            companion = source.with_name(f"{prefix}.{source.name.partition('.')[2]}")
            _copy(companion, directory / companion.name)
        copied[name] = source.name
    return copied


def find_files(files: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The paths of files that :func:`copy_files` copied, by the operator's names."""
    found = {}
    for name, file in files.items():
        path = directory / file
        if Path(file).name != file or not path.exists():
            raise MerlinSimError(f"{directory}: expected the file {file!r}, found none.")
        found[name] = str(path)
    return found


def _copy(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


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
        """Give the operator the nodes that it depends on."""


def forget_path(op: Any) -> None:
    """Have an operator write what it learns anew into a directory that goes with it."""
    op.temporary_files = TemporaryFiles("merlin-sim-operator-")
    op.out_path = str(op.temporary_files.path)


def copy_keys(op: Any, directory: Path) -> dict[str, str]:
    """Copy the files of Categorify's keys, with those that say how often keys were seen.

    Keys that were given have no such file.
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
    """Keeps the order of aggregations, which columns follow: NVTabular makes sets of them."""

    def get_config(self, op: Operator) -> dict[str, Any]:
        aggs: dict[str, list[str]] = {}
        for name, found in op.conv_aggs.items():
            aggs[name] = []
            for agg in found:  # `list` stands for all that are made of lists
                aggs[name] += op.list_aggs[name] if agg is list else [agg]
        return {**super().get_config(op), "aggs": aggs}

    def make(self, cls: type[Operator], config: Mapping[str, Any], directory: Path) -> Operator:
        op = super().make(cls, config, directory)
        for name, aggs in config["aggs"].items():
            of_lists = op.list_aggs.get(name, [])
            of_lists.sort(key=aggs.index)
            op.conv_aggs[name].sort(key=lambda a: aggs.index(of_lists[0] if a is list else a))
        return op


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
