"""Merlin's schema classes, imported without TensorFlow.

``import merlin.schema`` imports every framework that Merlin can map dtypes to: TensorFlow, and
through cudf's mapping Dask, Numba and distributed, seconds of work for a schema of nine columns.
Here those two mappings are put off until a dtype of theirs turns up. What is registered then is
Merlin's own module, so nothing differs for code that uses Merlin afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any

# Merlin's module with the mapping -> (the framework it is for, its names in the registry)
_PUT_OFF = {
    "merlin.dtypes.mappings.tf": ("tensorflow", ("tf", "tensorflow")),
    "merlin.dtypes.mappings.cudf": ("cudf", ("cudf",)),
}


class DeferredMapping:
    """Stands in Merlin's dtype registry for a mapping whose framework is not imported yet."""

    def __init__(self, module: str, framework: str, name: str) -> None:
        """Remember which module to import when the mapping is needed."""
        self.module, self.framework, self.name = module, framework, name

    def matches_external(self, external_dtype: Any) -> bool:
        """Answer as the real mapping does; no dtype is of a framework that nobody imported."""
        return self.framework in sys.modules and self._real().matches_external(external_dtype)

    def matches_merlin(self, merlin_dtype: Any) -> bool:
        """Answer as the real mapping does."""
        return bool(self._real().matches_merlin(merlin_dtype))

    def to_merlin(self, external_dtype: Any) -> Any:
        """Translate as the real mapping does."""
        return self._real().to_merlin(external_dtype)

    def from_merlin(self, merlin_dtype: Any) -> Any:
        """Translate as the real mapping does."""
        return self._real().from_merlin(merlin_dtype)

    @property
    def translator(self) -> Any:
        """Return the real mapping's translator, None while its framework is not imported."""
        return self._real().translator if self.framework in sys.modules else None

    def _real(self) -> Any:
        from merlin.dtypes.registry import _dtype_registry

        importlib.import_module(self.module)  # registers itself in this one's place
        real = _dtype_registry.mappings[self.name]
        if real is self:
            raise KeyError(f"{self.framework} is not installed")
        return real


def _import_merlin_schema() -> None:
    if "merlin.dtypes" in sys.modules:
        return
    for module in _PUT_OFF:
        sys.modules[module] = ModuleType(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "... dtype mappings did not load": expected
            registry = importlib.import_module("merlin.dtypes.registry")._dtype_registry
            mappings = importlib.import_module("merlin.dtypes.mappings")
    finally:
        for module in _PUT_OFF:
            del sys.modules[module]
    for module, (framework, names) in _PUT_OFF.items():
        vars(mappings).pop(module.rpartition(".")[2], None)
        if importlib.util.find_spec(framework) is not None:
            for name in names:
                registry.mappings[name] = DeferredMapping(module, framework, name)
    # Merlin asks the mappings in this order, and Triton's, whose dtypes are plain numbers, would
    # take TensorFlow's for its own.
    order = ["cudf", "merlin", "numpy", "pandas", "python", "tf", "tensorflow", "torch", "triton"]
    last = len(order)
    place = {name: position for position, name in enumerate(order)}
    by_place = sorted(registry.mappings.items(), key=lambda entry: place.get(entry[0], last))
    registry.mappings.clear()
    registry.mappings.update(by_place)


_import_merlin_schema()

import merlin.dtypes as md  # noqa: E402
from merlin.dtypes.shape import Shape  # noqa: E402
from merlin.schema import ColumnSchema, Schema, Tags, TagSet  # noqa: E402
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata  # noqa: E402

__all__ = ["ColumnSchema", "Schema", "Shape", "TagSet", "Tags", "TensorflowMetadata", "md"]
