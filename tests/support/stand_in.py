"""Modules that stand in for what only a machine with a GPU has; see tests/stand_ins/."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

FOLDER = Path(__file__).resolve().parents[1] / "stand_ins"


def load(name: str) -> ModuleType:
    """Load the stand-in for a module, once, without putting it in the module's place."""
    if f"stand_in_{name}" in sys.modules:
        return sys.modules[f"stand_in_{name}"]
    path = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"stand_in_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SHORT_OF_MEMORY = {
    "rmm": MemoryError("std::bad_alloc: out_of_memory: CUDA error at: /rmm/mr/cuda.hpp:62: 2"),
    "a pool of rmm": MemoryError(
        "std::bad_alloc: out_of_memory: RMM failure at:/rmm/mr/pool.hpp:257: Maximum pool size"
        " exceeded"
    ),
    "cupy": load("cupy").cuda.memory.OutOfMemoryError(1024, 4096),
    "the driver": RuntimeError("cudaErrorMemoryAllocation: out of memory"),
}
"""What libraries raise where a GPU's memory is short."""


def machine(*gpus: dict, driver: str = "535.104.05", cuda: int = 12020) -> str:
    """Describe a machine for the stand-in of pynvml."""
    return json.dumps({"driver": driver, "cuda": cuda, "gpus": list(gpus)})


def differences(stand_in: object, real: object, name: str) -> list[str]:
    """Say where a stand-in has what the real thing lacks, or takes other arguments.

    Every public function, method and property that the stand-in defines itself is looked up in
    the real thing by its name; what it takes must be the real one's first arguments, with the
    same names and the same defaults or none.
    """
    found = []
    for member, ours in vars(stand_in).items():
        if member.startswith("_") and member not in _SPECIAL:
            continue
        if inspect.ismodule(ours) or getattr(ours, "__module__", None) == "__future__":
            continue
        theirs = inspect.getattr_static(real, member, None)
        if theirs is None:
            if hasattr(real, member):
                theirs = getattr(real, member)
            else:
                found.append(f"{name} has no {member}")
                continue
        found += _different_arguments(ours, theirs, f"{name}.{member}")
    return found


def put_gpu_into(monkeypatch: Any) -> Any:
    """Let Merlin's dispatch and the operators find cudf's and cupy's stand-ins; return cudf's."""
    import merlin.core.dispatch as dispatch
    import pyarrow as pa

    from merlin_sim.workflows import frames as backend

    cudf = load("cudf")
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setitem(sys.modules, "cupy", load("cupy"))
    monkeypatch.setattr(backend, "cudf", cudf)
    monkeypatch.setattr(dispatch, "cudf", cudf)
    for name, function in {
        "cudf_is_list_dtype": lambda series: pa.types.is_list(series.to_arrow().type),
        "as_column": cudf.as_column,
        "build_column": cudf.build_column,
    }.items():
        monkeypatch.setattr(dispatch, name, function, raising=False)
    mends = _environment_of_a_gpu()
    for name in ("make_series", "create_multihot_col"):
        monkeypatch.setattr(dispatch, name, getattr(dispatch, name))
    mends.mend_series(cudf, cudf.ColumnBase, dispatch)
    return cudf


def _environment_of_a_gpu() -> ModuleType:
    """Load what ``make setup DEVICE=gpu`` installs beside the packages."""
    path = FOLDER.parents[1] / "scripts" / "gpu_environment.py"
    spec = importlib.util.spec_from_file_location("gpu_environment_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_gpu_into_workflows(monkeypatch: Any) -> Any:
    """Let whole workflows of NVTabular run on the stand-ins, over Dask; return cudf's.

    What NVTabular's operators call of cudf is their own affair: `fit` computes on the host, and so
    do they.
    """
    import merlin.core.dispatch as dispatch
    import merlin.dag.executors as executors
    import merlin.io.dataframe_engine as frames
    import merlin.io.dataset as datasets
    import nvtabular

    from merlin_sim.workflows import frames as backend

    cudf, dask_cudf = put_gpu_into(monkeypatch), load("dask_cudf")
    for module in (dispatch, executors, frames, datasets):
        for name, found in {"cudf": cudf, "dask_cudf": dask_cudf, "HAS_GPU": True}.items():
            monkeypatch.setattr(module, name, found, raising=False)
    monkeypatch.setattr(dispatch, "cp", load("cupy"))
    monkeypatch.setattr(executors, "cupy", load("cupy"))
    fit_on_host = nvtabular.Workflow.fit

    def through_host(on_host: Any) -> Any:
        def transform(self: Any, selector: Any, frame: Any) -> Any:
            if not isinstance(frame, cudf.DataFrame):
                return on_host(self, selector, frame)
            with monkeypatch.context() as host:
                host.setattr(dispatch, "cudf", None)
                host.setattr(backend, "cudf", None)
                changed = on_host(self, selector, _on_host(frame))
                return cudf.DataFrame.from_arrow(backend.frame_to_arrow(changed))

        return transform

    def fit(self: Any, rows: Any) -> Any:
        with monkeypatch.context() as host:
            for module in (dispatch, executors, frames, datasets):
                for name, found in {"cudf": None, "dask_cudf": None, "HAS_GPU": False}.items():
                    host.setattr(module, name, found, raising=False)
            host.setattr(backend, "cudf", None)
            pandas = rows.to_ddf().map_partitions(_on_host, meta=_on_host(rows.to_ddf()._meta))
            return fit_on_host(self, datasets.Dataset(pandas, cpu=True))

    for of in {of for of in vars(nvtabular.ops).values() if inspect.isclass(of)}:
        if "transform" in vars(of):
            monkeypatch.setattr(of, "transform", through_host(of.transform))
    monkeypatch.setattr(nvtabular.Workflow, "fit", fit)
    return cudf


def _on_host(frame: Any) -> Any:
    from merlin_sim.workflows import frames as backend

    return frame if isinstance(frame, pd.DataFrame) else backend.frame_from_arrow(frame.to_arrow())


_SPECIAL = ("__getitem__", "__setitem__", "__len__", "__dlpack__")


def _different_arguments(ours: object, theirs: object, name: str) -> list[str]:
    ours, theirs = (getattr(f, "__func__", f) for f in (ours, theirs))
    if inspect.isclass(ours) or not inspect.isfunction(ours):
        return []
    try:
        known = inspect.signature(theirs).parameters
    except (TypeError, ValueError):  # compiled code does not tell
        return []
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return []
    return [
        f"{name} takes no {taken}"
        for taken, parameter in inspect.signature(ours).parameters.items()
        if taken not in known
        or (parameter.default is not parameter.empty and known[taken].default is known[taken].empty)
    ]
