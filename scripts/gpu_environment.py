"""Set-up of an environment with a GPU, run before anything else in it.

``scripts/setup.sh`` copies this beside the packages and has every Python of the environment run it
when it starts, so that no user has to set ``LD_LIBRARY_PATH``. It costs nothing until TensorFlow or
cupy is imported: only then are CUDA's libraries opened, by their path beside the packages. The
loader finds them by name afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import Any

NVIDIA = Path(__file__).resolve().parent / "nvidia"

# What is opened for each package; first what others need.
LIBRARIES = {
    "tensorflow": (
        "cuda_runtime/lib/libcudart.so.11.0",
        "cublas/lib/libcublasLt.so.11",
        "cublas/lib/libcublas.so.11",
        "cufft/lib/libcufft.so.10",
        "curand/lib/libcurand.so.10",
        "cusparse/lib/libcusparse.so.11",
        "cusolver/lib/libcusolver.so.11",
        "cuda_cupti/lib/libcupti.so.11.8",
        "cudnn/lib/libcudnn.so.8",
    ),
    "cupy": ("cuda_runtime/lib/libcudart.so.12", "cuda_nvrtc/lib/libnvrtc.so.12"),
}


class OpenLibraries:
    """Stands first among those whom Python asks for a module: opens libraries, finds nothing."""

    def __init__(self) -> None:
        self._waiting = dict(LIBRARIES)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Open what the module needs, once."""
        if name == "merlin.io.fsspec_utils":
            fit_cudf_to_merlin()
        for library in self._waiting.pop(name, ()):
            with contextlib.suppress(OSError):  # its user reports what is missing
                ctypes.CDLL(str(NVIDIA / library))


def fit_cudf_to_merlin() -> None:
    """Let cudf 24.12 take what Merlin 23.8 was written for."""
    if not getattr(sys.modules.get("merlin.core.has_gpu"), "HAS_GPU", False):
        return
    try:
        cudf, column = map(importlib.import_module, ("cudf", "cudf.core.column"))
        groupby, dispatch = map(
            importlib.import_module, ("cudf._lib.groupby", "merlin.core.dispatch")
        )
    except Exception:  # the user of cudf reports what is wrong with it
        return
    # Merlin imports it, and calls it for files on remote disks alone.
    vars(column).setdefault("build_categorical_column", None)
    mend_series(cudf, column.ColumnBase, dispatch)
    # NVTabular counts keys that are strings by it: libcudf can, cudf's own check refuses it.
    groupby._STRING_AGGS.add("size")


def mend_series(cudf: Any, bare: type, dispatch: Any) -> None:
    """Have Merlin make series of bare columns, of offsets and of lists, as cudf 24.12 wants it."""
    series_of, list_column_of = dispatch.make_series, dispatch.create_multihot_col

    def make_series(_like_ser: Any, device: Any = None) -> Any:
        if isinstance(_like_ser, bare):
            return cudf.Series._from_column(_like_ser)
        return series_of(_like_ser, device)

    def create_multihot_col(offsets: Any, elements: Any) -> Any:
        if type(elements).__module__.startswith("pandas"):
            return list_column_of(offsets, elements)
        ends = dispatch.as_column(offsets, dtype="int32")
        column = dispatch.build_cudf_list_column(dispatch.as_column(elements), ends)
        return cudf.Series._from_column(column)

    dispatch.make_series, dispatch.create_multihot_col = make_series, create_multihot_col


def set_up() -> None:
    """Set what Python code and the processes that it starts will look for."""
    compiler = NVIDIA / "cuda_nvcc"
    flags = os.environ.get("XLA_FLAGS", "")
    if "--xla_gpu_cuda_data_dir" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={compiler}".strip()
    paths = os.environ.get("PATH", "").split(os.pathsep)
    if str(compiler / "bin") not in paths:
        os.environ["PATH"] = os.pathsep.join([*paths, str(compiler / "bin")])
    # Of code that the driver compiles for its GPU, only what is called; and all of that is kept.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 2**30))
    # With a driver of CUDA 13, numba's own calls of the driver end the process; NVIDIA's do not.
    os.environ.setdefault("NUMBA_CUDA_USE_NVIDIA_BINDING", "1")
    # cudf would ask for both versions in a process of its own, to compile functions of users.
    for name in (
        "CHECK_NUMBA_CODEGEN_PATCH_NEEDED",
        "KNOWN_DRIVER_VERSION",
        "KNOWN_RUNTIME_VERSION",
    ):
        os.environ.setdefault(f"PTXCOMPILER_{name}", "0" if name.startswith("CHECK") else "12.6")
    # Merlin is written for Dask's frames as they were before these.
    os.environ.setdefault("DASK_DATAFRAME__QUERY_PLANNING", "False")
    os.environ.setdefault("DASK_DATAFRAME__CONVERT_STRING", "False")
    sys.meta_path.insert(0, OpenLibraries())


if __name__ == "merlin_sim_gpu_environment":  # as setup.sh installs it
    set_up()
