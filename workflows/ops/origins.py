"""What a column of a graph is made of: columns of the log, and operators in between."""

from __future__ import annotations

from typing import Any

from merlin.dag import ColumnSelector, Node
from merlin.schema import Schema

from ...foundation.exceptions import MerlinSimError


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
