"""NVTabular's Workflow, with two things put right: a table may have no rows, and it is quiet."""

from __future__ import annotations

from typing import Any

import nvtabular as nvt
from merlin.dag.executors import LocalExecutor

from ...foundation.process_wide import quiet_merlin


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

    def transform(self, data: Any) -> Any:
        """Transform a table or a frame, without a warning of Merlin's for each table it makes."""
        with quiet_merlin():
            return super().transform(data)

    def _transform_df(self, df: Any) -> Any:
        if not self.graph.output_schema:
            raise ValueError("The workflow has no output schema: it has to be fitted first.")
        return _KeepEmptyTables().transform(df, self.output_node, self.output_dtypes)


class _KeepEmptyTables(LocalExecutor):
    def _run_upstream_transforms(
        self, node: Any, transformable: Any, capture_dtypes: bool = False, strict: bool = False
    ) -> list[Any]:
        outputs = [
            self._execute_node(upstream, transformable, capture_dtypes, strict)
            for upstream in node.parents_with_dependencies
        ]
        return [output for output in outputs if output is not None and len(output.columns)]
