"""NVTabular's Workflow, put right: tables without rows, whole groups, a fit on a scheduler.

And what a column of its graph is made of: columns of the log, and operators in between.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nvtabular as nvt
from dask.utils import M
from merlin.dag import ColumnSelector, Node, iter_nodes
from merlin.dag.executors import DaskExecutor, LocalExecutor
from merlin.io import Dataset
from merlin.schema import Schema

from ...foundation.exceptions import MerlinSimError
from ...foundation.process_wide import quiet_merlin

Compute = Callable[[Sequence[Any]], Iterable[Any]]


class Workflow(nvt.Workflow):
    """An ``nvtabular.Workflow`` whose operators may give a table without rows.

    Merlin's executor takes an operator's empty table for no table at all, and then looks for its
    columns among the workflow's inputs: a user without a training sample would be a KeyError.
    """

    def __init__(self, output_node: nvt.WorkflowNode, client: Any = None) -> None:
        super().__init__(output_node, client)
        keeping = _KeepEmptyTables()
        keeping.target_format = self.executor._executor.target_format
        self.executor._executor = keeping

    def fit(self, dataset: Dataset) -> Workflow:
        """Learn from a dataset; refuse features that are made of the label of `GroupHistories`."""
        if not self.output_schema:
            self.fit_schema(dataset.schema)
        for node in iter_nodes([self.output_node]):
            if hasattr(node.op, "refuse_features_of_label"):
                node.op.refuse_features_of_label(node)
        super().fit(dataset)
        return self

    def transform(self, data: Any) -> Any:
        """Transform a dataset or a frame, without a warning of Merlin's for each table it makes.

        Refuse a user in several partitions, where operators need all rows of a user together.
        """
        with quiet_merlin():
            if isinstance(data, Dataset):
                for node in iter_nodes([self.output_node]):
                    if hasattr(node.op, "refuse_split_users"):
                        node.op.refuse_split_users(data)
            return super().transform(data)

    def _transform_df(self, df: Any) -> Any:
        if not self.graph.output_schema:
            raise ValueError("The workflow has no output schema: it has to be fitted first.")
        return _KeepEmptyTables().transform(df, self.output_node, self.output_dtypes)


class TemporaryFiles:
    """A directory that lasts until it is removed, or as long as this object.

    A copy in another process leaves it to the first process to remove it. It is made among the
    system's temporary files, unless another ``folder`` is given.
    """

    def __init__(self, prefix: str, folder: Path | None = None) -> None:
        self.path = (folder or Path(tempfile.gettempdir())) / f"{prefix}{uuid.uuid4().hex}"
        self.path.mkdir(parents=True)
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)


class _KeepEmptyTables(LocalExecutor):
    def _run_upstream_transforms(
        self, node: Any, transformable: Any, capture_dtypes: bool = False, strict: bool = False
    ) -> list[Any]:
        outputs = [
            self._execute_node(upstream, transformable, capture_dtypes, strict)
            for upstream in node.parents_with_dependencies
        ]
        return [output for output in outputs if output is not None and len(output.columns)]


LOOKED_AT = 1000
"""Rows of a partition of which the types that come out are read."""


@contextmanager
def fitting_on(workflow: nvt.Workflow, compute: Compute) -> Iterator[None]:
    """Have a workflow's ``fit`` compute where a scheduler does.

    Without a client of Dask NVTabular fits one partition after the other. ``compute`` is given
    delayed values that do not depend on each other, and gives them in any order.
    """
    former = workflow.executor
    workflow.executor = _ScheduledExecutor(former._executor, compute)
    try:
        yield
    finally:
        workflow.executor = former  # which can be sent to other processes


class _ScheduledExecutor(DaskExecutor):
    def __init__(self, executor: LocalExecutor, compute: Compute) -> None:
        super().__init__()
        self._executor = executor
        self._compute = compute

    def transform(self, ddf: Any, graph: Any, *arguments: Any, **options: Any) -> Any:
        """Transform all partitions; for the types that come out of ``fit``, the first rows."""
        if options.get("capture_dtypes") and not isinstance(graph, list):
            ddf = ddf.map_partitions(M.head, LOOKED_AT, meta=ddf)
        return super().transform(ddf, graph, *arguments, **options)

    def fit_phase(self, dataset: Any, nodes: list[Any], strict: bool = False) -> None:
        ddf = dataset.to_ddf()
        for node in nodes:
            upstream = node.parents_with_dependencies
            made = {name for parent in upstream for name in parent.output_columns.names}
            further = [name for name in node.input_columns.names if name not in made]
            frame = self.transform(
                ddf, upstream, additional_columns=further, capture_dtypes=True, strict=strict
            )
            if hasattr(node.op, "fit_in_phases"):
                learned = node.op.fit_in_phases(node.input_columns, frame, self._compute)
            else:
                (learned,) = self._compute([node.op.fit(node.input_columns, frame)])
            node.op.fit_finalize(learned)
            node.op.fitted = True


def makers(node: Any, name: str) -> list[tuple[Any, list[str]]]:
    """The nodes that give a node's input column, each with the columns that it reads for it."""
    upstream = node.parents_with_dependencies
    found = [one for one in upstream if name in one.output_schema.column_names]
    return [(one, list(one.column_mapping.get(name, [name]))) for one in found]


def columns_of_log(node: Any, name: str) -> set[str]:
    """The columns of the log that a node's input column is made of."""
    found = makers(node, name)
    if not found:
        return {name}
    return {of for one, reads in found for read in reads for of in columns_of_log(one, read)}


def refuse_features_of_label(node: Any, label: str) -> None:
    """Refuse a graph in which a node's input columns beside the label are made of it."""
    of_label = columns_of_log(node, label)
    for name in node.input_schema.column_names:
        if name == label or not columns_of_log(node, name) & of_label:
            continue
        raise MerlinSimError(
            f"GroupHistories: column {name!r} ({_made_by(node, name)}): expected a feature that is "
            f"not made of the label {label!r}, of which each row that trains would see its own. "
            "`encodings` count what came before a row: in the file of `--features`, or in the "
            "`features` of `ms.BehaviourColumns`."
        )


def _made_by(node: Any, name: str) -> str:
    """The operator that makes a column of others, or else the first one of it."""
    for one, reads in makers(node, name):
        if reads != [name] or not one.parents:
            return type(one.op).__name__
        return _made_by(one, name)
    return type(node.op).__name__


class ColumnsOfLog(Node):
    """A selection of columns that a log has, before any operator renames them."""

    def compute_schemas(self, root_schema: Schema, preserve_dtypes: bool = False) -> None:
        """Name the columns that are missing."""
        there = root_schema.column_names
        missing = [name for name in (self.selector or ColumnSelector()).names if name not in there]
        if not self.parents and missing:
            raise MerlinSimError(
                "GroupHistories: `user` and `item` are read as the log has them too: expected "
                f"columns of the log, found none of {', '.join(missing)} (it has "
                f"{', '.join(there)}). Rename columns before the workflow reads them, or give the "
                "names that they have in the log."
            )
        super().compute_schemas(root_schema, preserve_dtypes)
