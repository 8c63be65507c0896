"""``Workflow.fit`` whose tasks run where all others of a run do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from merlin.dag.executors import DaskExecutor

from .workflow import Workflow


class ScheduledExecutor(DaskExecutor):
    """NVTabular's executor, which without a cluster fits on one core: here ``compute`` runs tasks.

    Args:
        workflow: Whose executor it becomes.
        compute: Computes delayed values that do not depend on each other, in any order.
    """

    def __init__(self, workflow: Workflow, compute: Callable[[list[Any]], list[Any]]) -> None:
        """Store the arguments."""
        super().__init__()
        self._executor = workflow.executor._executor
        self.compute = compute

    def fit_phase(self, dataset: Any, nodes: list[Any], strict: bool = False) -> None:
        """Fit operators that do not depend on each other."""
        ddf = dataset.to_ddf()
        for node in nodes:
            upstream = node.parents_with_dependencies
            made = {name for parent in upstream for name in parent.output_columns.names}
            further = [name for name in node.input_columns.names if name not in made]
            frame = self.transform(
                ddf, upstream, additional_columns=further, capture_dtypes=True, strict=strict
            )
            if hasattr(node.op, "fit_in_phases"):
                learned = node.op.fit_in_phases(node.input_columns, frame, self.compute)
            else:
                (learned,) = self.compute([node.op.fit(node.input_columns, frame)])
            node.op.fit_finalize(learned)
            node.op.fitted = True
