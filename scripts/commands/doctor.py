"""``merlin-sim doctor``: what is installed, what it can do here, what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

import click
import psutil

from ...foundation.cores import count_cores
from ...foundation.exceptions import MerlinSimError
from ...foundation.gpus import Gpus, look, why_not_cudf, why_not_tensorflow
from ..options.devices import settle_training
from ..text_table import print_table

PACKAGES = (
    "merlin-sim",
    "nvtabular",
    "merlin-core",
    "merlin-dataloader",
    "merlin-models",
    "tensorflow",
    "dask",
    "pyarrow",
    "pandas",
    "numpy",
    "numba",
)
# The module that each part of a training run imports first.
NEEDED_TO_TRAIN = ("nvtabular", "merlin.dataloader.tensorflow", "merlin.models.tf")


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report."""

    topic: str
    text: str
    is_bad: bool = False
    """Whether training could not run because of it."""


@click.command()
def command() -> None:
    """Show versions, devices and abilities; exit 2 where training could not run."""
    gpus = look()
    findings = [
        *_versions(),
        _machine(),
        *_gpus(gpus),
        *_guarded("TensorFlow", lambda: _tensorflow(gpus)),
        *_guarded("Horovod", _horovod),
        *_guarded("feed", lambda: _feed(gpus)),
        *_guarded("GPU", lambda: _settled(gpus)),
        *[finding for name in NEEDED_TO_TRAIN for finding in _guarded("import", lambda: [], name)],
        _optional("serving", "pytriton", "make setup"),
    ]
    rows = [("!" if found.is_bad else "", found.topic, found.text) for found in findings]
    print_table(("", "merlin-sim doctor", ""), rows)
    bad = [finding.topic for finding in findings if finding.is_bad]
    if bad:
        raise MerlinSimError("training cannot run here: see " + ", ".join(dict.fromkeys(bad)))


def _versions() -> list[Diagnosis]:
    findings = [Diagnosis("Python", f"{platform.python_version()} ({sys.executable})")]
    if sys.version_info[:2] not in ((3, 10), (3, 11)):
        findings.append(Diagnosis("Python", "3.10 or 3.11 is needed: TensorFlow 2.12", is_bad=True))
    for package in PACKAGES:
        try:
            findings.append(Diagnosis(package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Diagnosis(package, "not installed (make setup)", is_bad=True))
    return findings


def _machine() -> Diagnosis:
    memory = psutil.virtual_memory()
    cores = count_cores()
    total, free = memory.total / 2**30, memory.available / 2**30
    return Diagnosis("machine", f"{cores} CPU cores, {total:.0f} GiB ({free:.0f} free)")


def _guarded(
    topic: str, look: Callable[[], list[Diagnosis]], module: str | None = None
) -> list[Diagnosis]:
    """Look at something; whatever an import sets off becomes a finding, not a traceback."""
    try:
        if module is not None:
            importlib.import_module(module)
        return look()
    except Exception as error:  # a broken installation can raise anything
        reason = " ".join(str(error).split())[:200]
        name = f"{module} " if module else ""
        return [Diagnosis(topic, f"{name}{type(error).__name__}: {reason}", is_bad=True)]


def _gpus(gpus: Gpus) -> list[Diagnosis]:
    """What the driver says, before anything has tried to use it."""
    if not gpus.driver:
        return [Diagnosis("GPU", f"none: {gpus.problem}")]
    names = ", ".join(f"{gpu.device_id}: {gpu.name}" for gpu in gpus.visible) or "none visible"
    cuda = ".".join(map(str, gpus.cuda))
    return [Diagnosis("GPU", f"{names} (driver {gpus.driver}, CUDA {cuda})")]


def _tensorflow(gpus: Gpus) -> list[Diagnosis]:
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    if found:
        return [Diagnosis("device", f"{len(found)} GPU(s)")]
    reason = why_not_tensorflow(gpus) if gpus.visible else "no GPU that TensorFlow can use"
    return [Diagnosis("device", f"CPU ({reason})")]


def _horovod() -> list[Diagnosis]:
    if importlib.util.find_spec("horovod") is None:
        return [Diagnosis("Horovod", "not installed (for several ranks: HOROVOD=1 make setup)")]
    import horovod.tensorflow as hvd

    abilities = {
        "Gloo": hvd.gloo_built(),
        "MPI": hvd.mpi_built(),
        "NCCL": hvd.nccl_built(),
        "CUDA": hvd.cuda_built(),
    }
    able = [name for name, built in abilities.items() if built]
    unable = [name for name, built in abilities.items() if not built]
    built, missing = (", ".join(names) or "nothing" for names in (able, unable))
    text = f"{importlib.metadata.version('horovod')}, built with {built}; without {missing}"
    return [Diagnosis("Horovod", text, is_bad=not {"Gloo", "MPI"} & set(able))]


def _feed(gpus: Gpus) -> list[Diagnosis]:
    reason = why_not_cudf(gpus) if gpus.visible else "no GPU for cudf"
    if reason is not None:
        return [Diagnosis("feed", f"CPU: arrow and NumPy ({reason})")]
    return [Diagnosis("feed", f"GPU: cudf {importlib.import_module('cudf').__version__}")]


def _settled(gpus: Gpus) -> list[Diagnosis]:
    """Say what a run would do with the GPU, and set Merlin up for it, which is imported next."""
    problem = settle_training(gpus)
    return [] if problem is None else [Diagnosis("a run", problem)]


def _optional(topic: str, module: str, how: str) -> Diagnosis:
    if importlib.util.find_spec(module) is not None:
        return Diagnosis(topic, f"{module} {importlib.metadata.version('nvidia-' + module)}")
    return Diagnosis(topic, f"not installed (optional: {how})")
