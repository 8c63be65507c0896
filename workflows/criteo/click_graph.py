"""The graph that makes rows of a dataset of lines of a click log, and what its ids are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nvtabular as nvt
from merlin.dag import Graph
from merlin.schema import ColumnSchema, Schema
from nvtabular.ops import FillMissing, Operator

from ...foundation.exceptions import MerlinSimError
from ...foundation.files import read_json
from ...schemas.channels import CATEGORICAL, LABEL, NUMERICAL, PLAIN_ROWS
from ...schemas.fitted_record import require_shape
from ...schemas.item_table import COUNT
from ...schemas.layout_names import CATEGORIES, WORKFLOW_FILE
from ..frames import array_module, new_frame
from ..ops import Categorify, LogNumbers, register
from ..ops.counted_keys import FREQUENCY_HASH, UNKNOWN
from ..ops.saving import load_workflow, read_workflow_document, save_workflow
from ..ops.workflow import Workflow
from ..vocabularies import Vocabularies
from .criteo_columns import (
    ADDED,
    KEY_COLUMNS,
    LABEL_COLUMN,
    LEAST_NUMBER,
    NUMBER_COLUMNS,
    key_texts,
)

LOG = "criteo"
"""What ``workflow.json`` calls the log."""


@dataclass(frozen=True)
class CriteoRules:
    """Rules by which keys have ids of their own."""

    thresholds: tuple[int, ...]
    """For each column of keys, how often a key must have been seen."""
    fit_on: str
    """The rows whose keys are counted: those that train, or all."""


@register
class IdsFromOne(Operator):
    """Shift Categorify's codes: keys have the ids 1..n; nulls and unknown keys share id 0.

    NVTabular's Categorify has codes of their own for padding, nulls and unknown keys.
    """

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Shift one partition."""
        xp = array_module(df)
        ids = {name: xp.maximum(df[name].values - UNKNOWN, 0) for name in col_selector.names}
        return new_frame(ids, like=df)

    def get_config(self) -> dict[str, Any]:
        """There are no arguments."""
        return {}

    def _compute_properties(self, col_schema: Any, input_schema: Any) -> Any:
        domain = input_schema[col_schema.name].properties.get("domain", {"max": UNKNOWN})
        highest = max(domain["max"] - UNKNOWN, 0)
        domain = {"min": 0, "max": highest, "name": col_schema.name}
        return col_schema.with_properties({"domain": domain})


def click_workflow(rules: CriteoRules, directory: Path) -> Workflow:
    """Build the workflow; keys are counted in ``directory``.

    Ids follow the falling count of keys, and among equal counts a hash: so keys that are too rare
    need not be ordered, nor kept in memory.
    """
    codes = Categorify(
        freq_threshold=dict(zip(KEY_COLUMNS, rules.thresholds, strict=True)),
        dtype="int32",
        out_path=directory,
        order=FREQUENCY_HASH,
    )
    ids = [*KEY_COLUMNS] >> codes >> IdsFromOne()
    logarithms = [*NUMBER_COLUMNS] >> FillMissing(LEAST_NUMBER) >> LogNumbers(ADDED)
    return Workflow([LABEL_COLUMN] + ids + logarithms)


def raw_schema() -> Schema:
    """Describe the rows of a log as they are read; a column's tags name its channel."""
    read = {
        LABEL: ((LABEL_COLUMN,), "int8"),
        CATEGORICAL: (KEY_COLUMNS, "uint32"),
        NUMERICAL: (NUMBER_COLUMNS, "float32"),
    }
    return Schema(
        [
            ColumnSchema(name, tags=[*PLAIN_ROWS.channels[channel].tags, channel], dtype=dtype)
            for channel, (names, dtype) in read.items()
            for name in names
        ]
    )


def keys_operator(workflow: nvt.Workflow) -> Categorify:
    """Find the operator that knows the keys."""
    (node,) = Graph.get_nodes_by_op_type([workflow.output_node], Categorify)
    op: Categorify = node.op
    return op


def save_clicks(workflow: nvt.Workflow, directory: Path, rules: CriteoRules) -> None:
    """Write the workflow to a dataset directory, and the vocabularies, keys as the log has them."""
    op = keys_operator(workflow)
    vocabularies = Vocabularies(directory / CATEGORIES)
    for column in KEY_COLUMNS:
        counts = {COUNT: op.counts(column)}
        vocabularies.write(column, key_texts(op.keys(column).to_numpy()), **counts)
    save_workflow(workflow, directory, log=LOG, rules=asdict(rules))


def load_clicks(directory: Path | str) -> tuple[nvt.Workflow, CriteoRules]:
    """Load the workflow of a dataset directory, and its rules; refuse another kind of log's."""
    path, document = Path(directory) / WORKFLOW_FILE, read_workflow_document(directory)
    if document.get("log") != LOG:
        raise MerlinSimError(
            f"{path}: expected a workflow that `preprocess criteo` fitted, found another."
        )
    rules: Any = document.get("rules")
    require_shape(path, rules, {"thresholds": [int], "fit_on": str}, "rules")
    workflow = load_workflow(directory)
    return workflow, CriteoRules(tuple(rules["thresholds"]), rules["fit_on"])


def is_of_clicks(path: Path) -> bool:
    """Return whether a workflow.json is of `preprocess criteo`; one that is not there is not."""
    if not path.exists():
        return False
    document = read_json(path, "JSON, a fitted workflow")
    return isinstance(document, dict) and document.get("log") == LOG
