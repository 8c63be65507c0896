"""The families by name: those that are files here, and those of one's own."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, replace
from functools import cache

from ...foundation.exceptions import MerlinSimError
from ...schemas.contracts.known_contracts import register_contract
from .family import Family, Preset

DEFAULT = "sim"
"""The family of a run that names none."""


@cache
def families() -> dict[str, Family]:
    """Return the families that are files of this folder, the plainest first: name -> family.

    Their channels are made known.
    """
    package = importlib.import_module(__package__)
    modules = [
        importlib.import_module(f"{__package__}.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
    ]
    found = [module.FAMILY for module in modules if hasattr(module, "FAMILY")]
    found.sort(key=lambda family: (len(fields(family.options)), family.name))
    for family in found:
        register_contract(family.name, family.contract)
    return {family.name: family for family in found}


def presets() -> dict[str, Preset]:
    """Return the presets of all families; each one's values name its family too."""
    return {
        name: replace(preset, values={"model_type": family.name, **preset.values})
        for family in families().values()
        for name, preset in family.presets.items()
    }


def find_family(name: str) -> Family:
    """Return the family of this name.

    Args:
        name: of a registered family, or ``package.module:NAME`` of one's own: whatever stands
            there must be a :class:`~.family.Family`. Its channels are made known.

    Raises:
        MerlinSimError: where there is none.
    """
    if ":" in name:
        return _own_family(name)
    if name not in families():
        known = ", ".join(families())
        raise MerlinSimError(
            f"`model_type` should be one of {known}, or package.module:FAMILY. Received: {name!r}"
        )
    return families()[name]


def _own_family(name: str) -> Family:
    module, _, attribute = name.partition(":")
    try:
        family = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise MerlinSimError(f"`model_type` = {name}: cannot be imported: {error}") from error
    if not isinstance(family, Family):
        raise MerlinSimError(
            f"`model_type` = {name}: should be a merlin_sim.models.families.family.Family. "
            f"Received: {type(family).__name__}"
        )
    register_contract(family.name, family.contract)
    return family
