"""A log's columns and rules as JSON holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ..features.feature import FeatureSet
from .behaviour_columns import BehaviourColumns

FOUND_IN_LOG = ("continued", "own_time_excluded", "steady", "item_values")
"""Of the columns what is found in each log anew."""
FOUND = ("features", *FOUND_IN_LOG)


def columns_to_plain(columns: BehaviourColumns) -> dict[str, Any]:
    """Return a log's columns as JSON holds them, but for the features beside ids."""
    plain = {}
    for entry in fields(columns):
        if entry.name not in FOUND:
            value = getattr(columns, entry.name)
            plain[entry.name] = list(value) if isinstance(value, tuple) else value
    return plain


def columns_from_plain(plain: Any, features: FeatureSet, where: str) -> BehaviourColumns:
    """Read what ``columns_to_plain`` gave."""
    try:
        return BehaviourColumns(
            **checked_arguments(plain, BehaviourColumns, where, FOUND), features=features
        )
    except MerlinSimError as error:
        raise MerlinSimError(f"{where}: {error}") from error


def checked_arguments(
    plain: Mapping[str, Any], kind: Any, where: str, leave_out: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The arguments of a dataclass of str, int, bool, tuples of str and None."""
    entries = [entry for entry in fields(kind) if entry.name not in leave_out]
    names = [entry.name for entry in entries]
    if sorted(plain) != sorted(names):
        raise MerlinSimError(
            f"{where}: expected the keys {', '.join(names)}, found {', '.join(plain)}."
        )
    arguments: dict[str, Any] = {}
    for entry in entries:
        value = plain[entry.name]
        of, _, optional = str(entry.type).partition(" | ")
        wanted: Any = {"str": str, "int": int, "bool": bool, "float": float}.get(of, list)
        if optional and value is None:
            arguments[entry.name] = None
            continue
        fits = type(value) is wanted and (
            wanted is not list or all(isinstance(one, str) for one in value)
        )
        if not fits:
            raise MerlinSimError(
                f"{where}.{entry.name}: expected {wanted.__name__}, found {value!r:.60}."
            )
        arguments[entry.name] = tuple(value) if wanted is list else value
    return arguments
