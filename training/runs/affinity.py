"""Shares out the CPU cores of a machine among its ranks, before TensorFlow makes its threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...foundation.cores import count_cores
from ...foundation.gpus import Gpus
from ...foundation.ranks import LocalRank
from ...models.known_families import families
from .run_config import RunConfig

Core = list[int]
"""The logical CPUs of one physical core."""

FEW_CORES = 2
"""Up to so many cores of a rank are kept busy by operations side by side: sharing each operation
out as well has them wait for each other."""

_THREADS_IN_AN_OPERATION = "TF_NUM_INTRAOP_THREADS"


def set_up_process(
    config: RunConfig, local: LocalRank, near: Sequence[frozenset[int]] | None = None
) -> None:
    """Bind this process to its cores and say how many threads TensorFlow may make.

    To be called before TensorFlow is imported, which is when it settles both.
    """
    set_affinity(config.affinity, *local, near)
    family = families().get(str(config.model_type))  # one's own may import TensorFlow
    large = config.mode == "train" and family is not None and family.large_operations
    choose_threads(config.inter_op_parallelism, config.intra_op_parallelism, large)


def near_cores(gpus: Gpus, local: LocalRank) -> list[frozenset[int]] | None:
    """Return, by local rank, which logical CPUs are near its GPU; None where that is not known."""
    near = [gpu.cores for gpu in gpus.visible[: local.size]]
    return near if len(near) == local.size and all(near) else None


def choose_threads(
    inter_op: int | None = None, intra_op: int | None = None, large_operations: bool = False
) -> None:
    """Say how many operations run side by side, and how many threads share one.

    Args:
        inter_op: operations; None leaves it to TensorFlow.
        intra_op: threads in an operation; None makes it one where there are few cores, and
            leaves it to TensorFlow where there are more.
        large_operations: leaves it to TensorFlow there too, as one waits for another.
    """
    if inter_op is not None:
        os.environ["TF_NUM_INTEROP_THREADS"] = str(inter_op)
    if intra_op is not None:
        os.environ[_THREADS_IN_AN_OPERATION] = str(intra_op)
    elif count_cores() <= FEW_CORES and not large_operations:
        os.environ.setdefault(_THREADS_IN_AN_OPERATION, "1")


def shares_operations() -> bool:
    """Return whether an operation may use more than one thread."""
    return os.environ.get(_THREADS_IN_AN_OPERATION) != "1"


def set_affinity(
    mode: str, local_rank: int, local_size: int, near: Sequence[frozenset[int]] | None = None
) -> list[int] | None:
    """Bind this process to its cores; return their logical CPUs, or None where nothing is bound.

    A machine where the ranks are fewer than the sockets (one process, most of all) gives a rank
    several sockets.

    Args:
        mode: disabled; socket (all cores of the rank's sockets); single (the first of them);
            single_unique (one core each); socket_unique_interleaved and
            socket_unique_continuous (the socket's cores dealt out among its ranks, in turn or in
            runs).
        local_rank: this process on its machine.
        local_size: processes on this machine.
        near: the logical CPUs near each rank's GPU, by local rank. They replace the sockets,
            which need not be those of the GPUs in their order.
    """
    if mode == "disabled":
        return None
    allowed = os.sched_getaffinity(0)
    sockets = read_sockets(allowed)
    if near is not None and all(cores & allowed for cores in near):
        chosen = choose_near_cores(sockets, mode, local_rank, near)
    else:
        chosen = choose_cores(sockets, mode, local_rank, local_size)
    if set(chosen) == allowed:
        return None
    os.sched_setaffinity(0, chosen)
    return sorted(chosen)


def choose_cores(
    sockets: list[list[Core]], mode: str, local_rank: int, local_size: int
) -> list[int]:
    """Choose the logical CPUs of one rank.

    >>> two_sockets = [[[0], [1], [2], [3]], [[4], [5], [6], [7]]]
    >>> choose_cores(two_sockets, "socket_unique_interleaved", local_rank=1, local_size=4)
    [1, 3]
    >>> choose_cores(two_sockets, "socket_unique_continuous", local_rank=3, local_size=4)
    [6, 7]
    >>> choose_cores(two_sockets, "socket_unique_interleaved", local_rank=0, local_size=1)
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    first = local_rank * len(sockets) // local_size
    last = max(first + 1, (local_rank + 1) * len(sockets) // local_size)
    cores = [core for socket in sockets[first:last] for core in socket]
    sharing = [r for r in range(local_size) if r * len(sockets) // local_size == first]
    return _deal(cores, mode, sharing.index(local_rank), len(sharing))


def choose_near_cores(
    sockets: list[list[Core]], mode: str, local_rank: int, near: Sequence[frozenset[int]]
) -> list[int]:
    """Choose the logical CPUs of one rank among those near its GPU.

    >>> two_sockets = [[[0], [1], [2], [3]], [[4], [5], [6], [7]]]
    >>> far, close = frozenset({4, 5, 6, 7}), frozenset({0, 1, 2, 3})
    >>> choose_near_cores(two_sockets, "socket_unique_continuous", 1, [far, close, close])
    [0, 1]
    """
    mine = near[local_rank]
    cores = [core for socket in sockets for core in socket if mine & set(core)]
    sharing = [rank for rank, others in enumerate(near) if others == mine]
    return _deal(cores, mode, sharing.index(local_rank), len(sharing))


def _deal(cores: list[Core], mode: str, number: int, count: int) -> list[int]:
    """Deal cores out among ``count`` ranks, of which this is number ``number``."""
    if mode == "single":
        mine = cores[:1]
    elif mode == "single_unique" or (count > len(cores) and mode != "socket"):
        mine = [cores[number % len(cores)]]
    elif mode == "socket_unique_interleaved":
        mine = cores[number::count]
    elif mode == "socket_unique_continuous":
        mine = cores[number * len(cores) // count : (number + 1) * len(cores) // count]
    else:
        mine = cores
    return [cpu for core in mine for cpu in core]


def read_sockets(allowed: set[int]) -> list[list[Core]]:
    """Read which of the allowed logical CPUs form cores, and which cores form sockets."""
    sockets: dict[int, dict[int, Core]] = {}
    for cpu in sorted(allowed):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            socket = int((topology / "physical_package_id").read_text())
            core = int((topology / "core_id").read_text())
        except (OSError, ValueError):
            socket, core = 0, cpu
        sockets.setdefault(socket, {}).setdefault(core, []).append(cpu)
    return [list(cores.values()) for _, cores in sorted(sockets.items())]
