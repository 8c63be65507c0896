"""Each rank sees its own GPU and no other: what is first touched by cudf, cupy and TensorFlow.

The ways of one batch (cudf reads it, cupy pads it, DLPack hands it to TensorFlow) each take the
first GPU that they see; so the others are hidden before anything touches CUDA.
"""

from __future__ import annotations

import os

from ...foundation.gpus import VISIBLE, Gpus
from ...foundation.ranks import LocalRank

_GPU_OF_RANK = "MERLIN_SIM_GPU"  # what this rank has taken; its children inherit it

SHARE_OF_TENSORFLOW = "0.85"
"""Of the GPU's memory, at most; the rest is cudf's. Merlin's own choice is half for each."""


def take(gpus: Gpus, local: LocalRank) -> str | None:
    """Hide all GPUs but this rank's; return what it is called, None where none is taken.

    Where the ranks are more than the GPUs, nothing is hidden: they may share the CPU, and whether
    TensorFlow can use the GPUs (:func:`~.collectives.start` refuses then) is not known yet.
    """
    if not gpus.visible:
        return None
    _set_memory_up()
    if is_taken():
        return os.environ[_GPU_OF_RANK]
    if len(gpus.visible) == 1 and _dealt_out_by_slurm(local):
        return _see_only(gpus.visible[0].device_id)
    if local.size > len(gpus.visible):
        return None
    return _see_only(gpus.visible[local.rank].device_id)


def is_taken() -> bool:
    """Return whether this rank sees its own GPU only."""
    taken = os.environ.get(_GPU_OF_RANK)
    return taken is not None and taken == os.environ.get(VISIBLE)


def _see_only(device_id: str) -> str:
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # NVML's order, by which it was chosen
    os.environ[VISIBLE] = os.environ[_GPU_OF_RANK] = device_id
    return device_id


def _dealt_out_by_slurm(local: LocalRank) -> bool:
    """Return whether Slurm shows each task a GPU of its own already."""
    return "SLURM_LOCALID" in os.environ and (
        int(os.environ.get("SLURM_GPUS_ON_NODE", "0") or 0) >= local.size
    )


def _set_memory_up() -> None:
    """Let TensorFlow's share of the GPU's memory grow as needed.

    Importing Merlin makes a logical device with a limit, on which TensorFlow refuses
    ``set_memory_growth``; the environment sets the limit for Merlin and the growth for
    TensorFlow.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_MEMORY_ALLOCATION", SHARE_OF_TENSORFLOW)
