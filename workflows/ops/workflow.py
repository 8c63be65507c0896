"""NVTabular's Workflow, put right: tables without rows, whole groups, a fit on a scheduler."""

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
from merlin.dag import iter_nodes
from merlin.dag.executors import DaskExecutor, LocalExecutor
from merlin.io import Dataset

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
    system's temporary files, unless it is to be ``beside`` others.
    """

    def __init__(self, prefix: str, beside: Path | None = None) -> None:
        self.path = (beside or Path(tempfile.gettempdir())) / f"{prefix}{uuid.uuid4().hex}"
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
            ddf = ddf.map_partitions(_first_rows, meta=ddf._meta)
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


def _first_rows(frame: Any) -> Any:
    return frame.iloc[:LOOKED_AT]
