"""Every trick that reaches into the whole process, and why it is played.

- :func:`silence_third_party_noise`, :func:`show_dataset_warnings`: a person at a terminal hears our
  warnings as sentences, and other libraries' not.
- :func:`hide_tensorflow`, :func:`dask_setup`: preprocessing never makes a tensor, but Merlin would
  import TensorFlow.
- :func:`hide_gpu_from_merlin`: a GPU that cudf or TensorFlow cannot use would end Merlin's imports.
- :func:`put_off_dtype_mappings`: a Merlin schema is read without TensorFlow, Dask and Numba.
- :func:`keep_freed_memory`: arrow uses the pages of one window of rows for the next.

One more reaches into a single object of Merlin's, and stands beside it:
``workflows/engine/workflow.py`` exchanges the executor of its own workflows.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
import warnings
from types import ModuleType
from typing import Any, TextIO

import click

from .exceptions import DatasetWarning


def silence_third_party_noise() -> None:
    """Turn off start-up chatter of TensorFlow and Merlin; what they say of errors still shows.

    To be called before TensorFlow is imported. Set ``TF_CPP_MIN_LOG_LEVEL=0`` to hear
    TensorFlow again, ``PYTHONWARNINGS=default`` for Python's warnings.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Merlin Models imports names that TensorFlow has moved; TensorFlow says so on every start.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if "PYTHONWARNINGS" in os.environ:
        return
    for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
        warnings.filterwarnings("ignore", category=category)
    # merlin.dtypes looks for every framework it could map to, merlin.core for a GPU.
    warnings.filterwarnings("ignore", message=".*dtype mappings did not load successfully.*")
    warnings.filterwarnings("ignore", module=r"merlin\..*")


def show_dataset_warnings() -> None:
    """Print a :class:`DatasetWarning` as the command line prints messages, on the first rank."""
    show = warnings.showwarning

    def show_plainly(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, DatasetWarning):
            show(message, category, filename, lineno, file, line)
        elif os.environ.get("HOROVOD_RANK", "0") == "0":
            click.echo(f"merlin-sim: warning: {message}", err=True)

    warnings.showwarning = show_plainly


def hide_tensorflow() -> None:
    """Have Merlin find no TensorFlow in this process.

    Merlin imports TensorFlow wherever it is installed: three seconds and a quarter of a gigabyte,
    for nothing where no tensor is made. To be called before Merlin is imported.
    """
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]


def dask_setup(worker: object) -> None:
    """Hide TensorFlow from a worker of a local cluster; Dask calls this before anything else.

    What Merlin then warns of (other frameworks that are missing as well) is of no use either.
    """
    warnings.simplefilter("ignore")
    hide_tensorflow()


def hide_gpu_from_merlin() -> None:
    """Have Merlin find no GPU in this process, whatever TensorFlow sees.

    Merlin counts GPUs once, when it is imported, and then believes that cudf and TensorFlow can
    use them. It can be told otherwise in ``CUDA_VISIBLE_DEVICES`` alone, which would hide the GPU
    from TensorFlow too. To be called before anything else of Merlin is imported.
    """
    importlib.import_module("merlin.core.has_gpu").HAS_GPU = False  # type: ignore[attr-defined]


def keep_freed_memory() -> None:
    """Let arrow keep memory for ten seconds after a window of rows is done, for the next window.

    Its default of one second has every window touch new pages, at about a third of the rate.
    """
    import pyarrow as pa

    with contextlib.suppress(NotImplementedError):  # a build without jemalloc
        pa.jemalloc_set_decay_ms(10_000)


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


def put_off_dtype_mappings() -> None:
    """Import Merlin's dtype registry with stand-ins for the mappings of TensorFlow and cudf.

    ``import merlin.schema`` imports every framework that Merlin can map dtypes to: TensorFlow, and
    through cudf's mapping Dask, Numba and distributed, seconds of work for a schema of nine
    columns. What is registered when a dtype of theirs turns up is Merlin's own module, so nothing
    differs for code that uses Merlin afterwards. Merlin has no switch for this.
    """
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
