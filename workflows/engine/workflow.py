"""NVTabular's Workflow, put right: a table may have no rows, and groups have to be whole."""

from __future__ import annotations

import tempfile
from typing import Any

import dask
import nvtabular as nvt
import pyarrow as pa
import pyarrow.compute as pc
from merlin.dag import iter_nodes
from merlin.dag.executors import LocalExecutor
from merlin.io import Dataset

from ...foundation.exceptions import MerlinSimError
from ...foundation.process_wide import quiet_merlin
from .backend import frame_to_arrow, new_frame


class Workflow(nvt.Workflow):
    """An ``nvtabular.Workflow`` whose operators may give a table without rows.

    Merlin's executor takes an operator's empty table for no table at all, and then looks for its
    columns among the workflow's inputs: a user without a training sample would be a KeyError.
    """

    def __init__(self, output_node: nvt.WorkflowNode, client: Any = None) -> None:
        """Build the graph; see ``nvtabular.Workflow``."""
        super().__init__(output_node, client)
        keeping = _KeepEmptyTables()
        keeping.target_format = self.executor._executor.target_format
        self.executor._executor = keeping

    def transform(self, data: Any, is_whole: bool = False) -> Any:
        """Transform a dataset or a frame, without a warning of Merlin's for each table it makes.

        Args:
            data: What is transformed.
            is_whole: Whether each user is known to stand in one partition: nobody looks then.

        Raises:
            MerlinSimError: Where a user stands in several partitions, and operators need all rows
                of a user together.
        """
        with quiet_merlin():
            if isinstance(data, Dataset) and not is_whole:
                self._refuse_split_groups(data)
            return super().transform(data)

    def _refuse_split_groups(self, data: Dataset) -> None:
        ops = [node.op for node in iter_nodes([self.output_node])]
        keys = {key for op in ops if (key := getattr(op, "whole_by", None)) is not None}
        for key in keys & set(data.schema.column_names):
            parts = data.to_ddf(columns=[key]).to_delayed()
            if len(parts) < 2:
                continue
            found = dask.compute(*[dask.delayed(_distinct)(part, key) for part in parts])
            counts = pc.value_counts(pa.concat_arrays(found)).field("counts")
            split = pc.sum(pc.greater(counts, 1)).as_py()
            if split:
                raise MerlinSimError(
                    f"A history needs all rows of its user in one partition. Received: {split:,} "
                    f"users (column {key!r}) with rows in several of {len(parts)} partitions. "
                    f"`dataset.shuffle_by_keys([{key!r}])` brings them together."
                )

    def _transform_df(self, df: Any) -> Any:
        if not self.graph.output_schema:
            raise ValueError("The workflow has no output schema: it has to be fitted first.")
        return _KeepEmptyTables().transform(df, self.output_node, self.output_dtypes)


def _distinct(frame: Any, key: str) -> pa.Array:
    return pc.unique(frame_to_arrow(new_frame({key: frame[key]}, like=frame))[key])


class TemporaryFiles:
    """A directory that lasts as long as the operators that read its files.

    A copy in another process reads the files, and leaves it to the first process to remove them.

    >>> from pathlib import Path
    >>> files = TemporaryFiles("example-")
    >>> Path(str(files)).is_dir()
    True

    Args:
        prefix: What its name begins with.
    """

    def __init__(self, prefix: str) -> None:
        """Make the directory."""
        self._directory: Any = tempfile.TemporaryDirectory(prefix=prefix)
        self._path: str = self._directory.name

    def __str__(self) -> str:
        """Return the path."""
        return self._path

    def __getstate__(self) -> dict[str, Any]:
        """Leave the directory out, which only one process removes."""
        return {"_path": self._path}


class _KeepEmptyTables(LocalExecutor):
    def _run_upstream_transforms(
        self, node: Any, transformable: Any, capture_dtypes: bool = False, strict: bool = False
    ) -> list[Any]:
        outputs = [
            self._execute_node(upstream, transformable, capture_dtypes, strict)
            for upstream in node.parents_with_dependencies
        ]
        return [output for output in outputs if output is not None and len(output.columns)]
