"""The tricks that reach into the whole process, and why each is played.

- :func:`silence_third_party_noise`, :func:`show_dataset_warnings`: a person at a terminal hears our
  warnings as sentences, and other libraries' not.
- :func:`quiet_merlin`: in Python nothing is left turned off, but what Merlin says of every table
  is not heard.
- :func:`hide_tensorflow`, :func:`dask_setup`: click logs are preprocessed, the workers of a cluster
  work and a server stands before its models without a tensor, but Merlin would import TensorFlow.
- :func:`hide_gpu_from_merlin`, :func:`hide_unusable_gpu`: a GPU that cudf or TensorFlow cannot use
  would end Merlin's imports.
- :func:`put_off_dtype_mappings`: a Merlin schema is read without TensorFlow, Dask and Numba.
- :func:`keep_freed_memory`: arrow uses the pages of one window of rows for the next.
- :func:`collect_less_often`: Python looks for garbage less often, and not while it ends.
- :func:`deterministic_operations`: TensorFlow turns them on for good; a run in a program turns
  them off again, for which TensorFlow has a private name only.
- :func:`one_report_of_undecodable_rows`: arrow prints a traceback beside its error.

What cannot stand here:

- ``scripts/gpu_environment.py`` is copied into an environment with a GPU, where no other file of
  this package need be. It stands first among those whom Python asks for a module, to open CUDA's
  libraries before TensorFlow and cupy look for them; gives a name back to ``cudf.core.column``
  that Merlin imports; and sets what CUDA, XLA, numba and Dask read in the environment.
- Environment variables are set beside what they are about, as they are the way to talk to
  libraries that are not imported yet, and to children: ``ranks/own_gpu.py`` (a rank's GPU and its
  memory), ``training/runs/affinity.py`` (cores and threads), ``scripts/options/devices.py`` (no
  GPU for preprocessing).
- Handlers of signals stand with those who wait for one: ``ranks/interruption.py``,
  ``training/runs/run.py``, ``serving/triton/serve.py``.
- ``models/composed_model.py`` wraps a method of Merlin's models, which gives no block the sample
  weights of a batch, and a function of theirs, so that a dataset directory is refused in words.
- Two reach into a single object of Merlin's: ``workflows/ops/workflow.py`` exchanges the
  executor of its own workflows, ``dataloader/stored_rows.py`` the order of its dataset's files.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any, TextIO

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
    """Print a :class:`DatasetWarning` as the command line prints messages, on the first rank.

    Once: a command may open a dataset several times.
    """
    import click

    show = warnings.showwarning
    shown: set[str] = set()

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
        elif os.environ.get("HOROVOD_RANK", "0") == "0" and str(message) not in shown:
            shown.add(str(message))
            click.echo(f"merlin-sim: warning: {message}", err=True)

    warnings.showwarning = show_plainly


@contextlib.contextmanager
def quiet_merlin() -> Iterator[None]:
    """Leave out what Merlin warns of within the block: of every table, that there is no GPU.

    Python's own switches (``-W``, ``PYTHONWARNINGS``) still show it.
    """
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.filterwarnings("ignore", module=r"(merlin|nvtabular)\.")
        yield


@contextlib.contextmanager
def quiet_save() -> Iterator[None]:
    """Leave out what TensorFlow says within the block of how it writes names of columns.

    Inside a saved graph they have small letters only; requests name columns as the dataset does.
    """
    logger = logging.getLogger("absl")

    def is_of_more(record: logging.LogRecord) -> bool:
        return "which will be renamed to" not in str(record.msg)

    logger.addFilter(is_of_more)
    try:
        yield
    finally:
        logger.removeFilter(is_of_more)


_GPU_COUNT = "merlin.core.has_gpu"
_gpu_is_hidden = False


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
    use them. It can be set otherwise by ``CUDA_VISIBLE_DEVICES`` alone, which would hide the GPU
    from TensorFlow too. To be called before anything else of Merlin is imported.
    """
    global _gpu_is_hidden
    _gpu_is_hidden = True
    importlib.import_module(_GPU_COUNT).HAS_GPU = False  # type: ignore[attr-defined]


def hide_unusable_gpu() -> None:
    """Have Merlin find no GPU where TensorFlow or cudf cannot use it, and warn with the reason.

    For the use of the package from Python, before Merlin is imported; the command line decides
    for each command. Where Merlin has counted already, nothing is changed.
    """
    if _gpu_is_hidden or _GPU_COUNT in sys.modules:
        return
    from .gpus import look, why_not_merlin

    problem = why_not_merlin(look())
    if problem is not None:
        hide_gpu_from_merlin()
        warnings.warn(f"merlin_sim: {problem}", UserWarning, stacklevel=4)


def keep_freed_memory() -> None:
    """Let arrow keep memory for ten seconds after a window of rows is done, for the next window.

    Its default of one second has every window touch new pages, at about a third of the rate.
    """
    import pyarrow as pa

    with contextlib.suppress(NotImplementedError):  # a build without jemalloc
        pa.jemalloc_set_decay_ms(10_000)


def silence_grpc_at_forks() -> None:
    """Let gRPC do and say nothing at a fork, of those that start servers and run nothing of it.

    It reads this when it is imported, as it is with Merlin's schema.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def collect_less_often() -> None:
    """Look for garbage among 50,000 new objects at a time, not 700, and not while Python ends.

    TensorFlow and Merlin are a million objects that stay. To look through them again and again was
    a fifth of what it takes to import them, and once more when the process ended.
    """
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)  # registered first, it runs last: what others do then is done


# Merlin's module with the mapping -> (the framework it is for, its names in the registry)
_PUT_OFF = {
    "merlin.dtypes.mappings.tf": ("tensorflow", ("tf", "tensorflow")),
    "merlin.dtypes.mappings.cudf": ("cudf", ("cudf",)),
}


class DeferredMapping:
    """Stands in Merlin's dtype registry for a mapping whose framework is not imported yet."""

    def __init__(self, module: str, framework: str, name: str) -> None:
        self.module, self.framework, self.name = module, framework, name

    def matches_external(self, external_dtype: Any) -> bool:
        """Answer as the real mapping does; no dtype is of a framework that was not imported."""
        real = self._registered()
        return real is not None and bool(real.matches_external(external_dtype))

    @property
    def translator(self) -> Any:
        """Return the real mapping's translator, None while its framework is not imported."""
        real = self._registered()
        return None if real is None else real.translator

    def matches_merlin(self, merlin_dtype: Any) -> bool:
        """Answer as the real mapping does."""
        return bool(self._real().matches_merlin(merlin_dtype))

    def to_merlin(self, external_dtype: Any) -> Any:
        """Translate as the real mapping does."""
        return self._real().to_merlin(external_dtype)

    def from_merlin(self, merlin_dtype: Any) -> Any:
        """Translate as the real mapping does."""
        return self._real().from_merlin(merlin_dtype)

    def _registered(self) -> Any:
        """Return the real mapping; None while its framework is not imported, or of no use.

        That is what cudf is to Merlin where there is no GPU that can be used, though whoever tried
        has imported it.
        """
        return self._looked_up() if self.framework in sys.modules else None

    def _real(self) -> Any:
        real = self._looked_up()
        if real is None:
            raise KeyError(f"Merlin has no dtypes of {self.framework} here")
        return real

    def _looked_up(self) -> Any:
        from merlin.dtypes.registry import _dtype_registry

        importlib.import_module(self.module)  # registers itself in this one's place
        real = _dtype_registry.mappings[self.name]
        return None if real is self else real


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
    order_of = {name: position for position, name in enumerate(order)}
    in_order = sorted(registry.mappings.items(), key=lambda entry: order_of.get(entry[0], last))
    registry.mappings.clear()
    registry.mappings.update(in_order)


@contextlib.contextmanager
def deterministic_operations(enabled: bool) -> Iterator[None]:
    """Have TensorFlow use deterministic operations only, if enabled, until the block ends."""
    if not enabled:
        yield
        return
    import tensorflow as tf
    from tensorflow.python.framework.config import disable_op_determinism

    tf.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        disable_op_determinism()


@contextlib.contextmanager
def one_report_of_undecodable_rows() -> Iterator[None]:
    """Let arrow's error alone speak of a row with a wrong number of fields that is not UTF-8.

    Arrow cannot give such a row to whoever asked for it: it prints a traceback that nobody can
    catch, and then raises an error that says the row.
    """
    kept = sys.unraisablehook

    def report(problem: Any) -> None:
        if not isinstance(problem.exc_value, UnicodeDecodeError):
            kept(problem)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = kept
