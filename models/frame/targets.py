"""Which target of a schema is the label, where it has several."""

from __future__ import annotations

from merlin.schema import Schema, Tags

from ..blocks.checks import check_choice


def with_one_target(schema: Schema, label: str | None = None) -> Schema:
    """Leave out the other targets of a schema, which are for the outputs beside.

    >>> from merlin.schema import ColumnSchema
    >>> bought = ColumnSchema("bought", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION])
    >>> rating = ColumnSchema("rating", tags=[Tags.TARGET, Tags.REGRESSION])
    >>> with_one_target(Schema([rating, bought])).column_names
    ['bought']

    Args:
        schema: The schema of a dataset's columns.
        label: The target to keep; None for the only one, or the first that is binary.

    Raises:
        OptionError: Where the schema has no such target.
    """
    targets = schema.select_by_tag(Tags.TARGET)
    binary = targets.select_by_tag([Tags.BINARY_CLASSIFICATION, Tags.BINARY])
    if label is not None:
        check_choice("label", label, targets.column_names)
    chosen = label or next(iter([*binary.column_names, *targets.column_names]), None)
    return schema.excluding_by_name([name for name in targets.column_names if name != chosen])
