"""Which process of a run this is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

from .exceptions import MerlinSimError


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.rank == 0


def rank_batch_size(global_batch_size: int, ranks: Ranks) -> int:
    """Divide the global batch; refuse a size that the ranks cannot share equally."""
    if global_batch_size % ranks.size:
        raise MerlinSimError(
            f"`global_batch_size` should be divisible by the number of ranks ({ranks.size})."
            f" Received: {global_batch_size}"
        )
    return global_batch_size // ranks.size


_LOCAL_NAMES = (
    ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


class LocalRank(NamedTuple):
    """This process among those of the run on the same machine."""

    rank: int = 0
    size: int = 1


def local_rank() -> LocalRank:
    """Read it from what horovodrun, mpirun or srun has set; a process alone is 0 of 1.

    Cores and the GPU are taken by it before TensorFlow or Horovod is imported.
    """
    for rank, size in _LOCAL_NAMES:
        if rank in os.environ and size in os.environ:
            return LocalRank(int(os.environ[rank]), int(os.environ[size]))
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE")
    if tasks and "SLURM_LOCALID" in os.environ:
        of_nodes = tasks_of_nodes(tasks)
        node = int(os.environ.get("SLURM_NODEID", "0"))
        if node < len(of_nodes):
            return LocalRank(int(os.environ["SLURM_LOCALID"]), of_nodes[node])
    return LocalRank()


def launched_size() -> int:
    """Read how many ranks the launcher has started, before they meet; a process alone is one."""
    names = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
    return max(int(os.environ.get(name, "1") or 1) for name in names)


def tasks_of_nodes(text: str) -> list[int]:
    """Read how many tasks Slurm has put on each node.

    >>> tasks_of_nodes("8(x2),4")
    [8, 8, 4]
    """
    counts: list[int] = []
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * int(times or 1)
    return counts
