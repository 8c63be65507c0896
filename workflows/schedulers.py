"""Where the work runs: in this process, on a local Dask cluster, or on a running one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import dask

from ..schemas.exceptions import MerlinSimError

AUTO = "auto"
SINGLE = "single"
LOCAL = "local"
LARGE = 1 << 30  # bytes of raw data from which a local cluster is worth its start


class Scheduler(Protocol):
    """Runs independent tasks, and Dask's delayed values; results come as they are ready."""

    workers: int

    def run(self, task: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """Call ``task`` once for each of ``arguments``."""

    def compute(self, delayed: Sequence[Any]) -> Iterator[Any]:
        """Compute delayed values, such as the partitions of a transformed dataset."""


class SingleProcess:
    """One task after the other, here."""

    workers = 1

    def run(self, task: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """See :class:`Scheduler`."""
        for argument in arguments:
            yield task(argument)

    def compute(self, delayed: Sequence[Any]) -> Iterator[Any]:
        """See :class:`Scheduler`."""
        for value in delayed:
            yield dask.compute(value, scheduler="synchronous")[0]


class DaskCluster:
    """A Dask or Dask-CUDA cluster, reached through a client."""

    def __init__(self, client: Any) -> None:
        """Store the client."""
        self.client = client
        self.workers = max(1, len(client.scheduler_info()["workers"]))

    def run(self, task: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """See :class:`Scheduler`."""
        yield from self._as_completed(
            [self.client.submit(task, argument, pure=False) for argument in arguments]
        )

    def compute(self, delayed: Sequence[Any]) -> Iterator[Any]:
        """See :class:`Scheduler`."""
        yield from self._as_completed(self.client.compute(list(delayed)))

    def _as_completed(self, futures: list[Any]) -> Iterator[Any]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        try:
            for future in as_completed(futures):
                yield future.result()
                future.release()
        except KilledWorker as error:
            raise MerlinSimError(
                "A worker of the cluster died again and again, most likely out of memory; "
                "its log says more. Fewer workers need less."
            ) from error
        finally:
            self.client.cancel(futures)


@contextmanager
def open_scheduler(
    where: str = AUTO, workers: int | None = None, raw_bytes: int = 0
) -> Iterator[Scheduler]:
    """Start or reach what is asked for, and close it in the end.

    Args:
        where: ``single``, ``local``, the address of a running cluster, or ``auto``: a local
            cluster if ``workers`` asks for more than one or the raw data is large.
        workers: Processes of a local cluster; as many as cores if None.
        raw_bytes: The size of the raw data.
    """
    if workers is not None and workers < 1:
        raise MerlinSimError(f"The number of workers should be at least 1. Received: {workers}.")
    cores = len(os.sched_getaffinity(0))
    if where == AUTO:
        wanted = (cores if raw_bytes > LARGE else 1) if workers is None else workers
        where = LOCAL if wanted > 1 else SINGLE
    if where == SINGLE:
        yield SingleProcess()
    elif where == LOCAL:
        with _local_client(workers or cores) as client:
            yield DaskCluster(client)
    elif ":" in where:
        with _remote_client(where) as client:
            yield DaskCluster(client)
    else:
        raise MerlinSimError(
            f"`scheduler` should be {AUTO}, {SINGLE}, {LOCAL} or an address such as "
            f"tcp://host:8786. Received: `scheduler` = {where!r}."
        )


@contextmanager
def _local_client(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    settings = {
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "60s",
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=40,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _remote_client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise MerlinSimError(f"{address}: no Dask scheduler answers there ({error}).") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise MerlinSimError(f"{address}: the Dask cluster has no workers.")
        yield client
