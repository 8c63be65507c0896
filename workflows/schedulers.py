"""Schedulers: work runs in this process, on a local Dask cluster, or on a running one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import dask
import pyarrow as pa

from ..foundation import process_wide
from ..foundation.cores import count_cores
from ..foundation.exceptions import MerlinSimError
from ..foundation.files import whole_file
from ..foundation.gpus import Gpu, look, short_of_memory
from .frames import spill, uses_gpu

AUTO = "auto"
SINGLE = "single"
LOCAL = "local"
SECONDS_TO_CONNECT = 10
POOL = 0.5
"""Of a GPU's memory, what a worker takes at the start; more comes as it is needed."""
LOST_WORKER = {"distributed.deploy.lost-worker-timeout": "1000d"}
"""A worker that dies is started again, which may take long on a busy machine: Dask would give it up
after 15 seconds, for good, and a run whose workers are all given up waits for ever."""
SPILL_ABOVE = 0.8
"""Of a GPU's memory, above which what is not in use goes to the host's."""


def written_by_task(path: Path) -> Path:
    """Give the path of a file that a task wrote; a missing one must not be taken for nothing."""
    if not path.is_file():
        raise MerlinSimError(
            f"{path}: expected a file that a task of this run wrote, found none. All workers of a "
            "cluster should see the files of this process, and no other program remove them."
        )
    return path


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches, by a task, as an arrow file; it is whole, or not there."""
    with whole_file(path) as unfinished, pa.ipc.new_file(str(unfinished), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_arrow(path: Path) -> pa.Table:
    """Read an arrow file that a task wrote; its columns stay where the file is."""
    with pa.memory_map(str(written_by_task(path))) as source:
        return pa.ipc.open_file(source).read_all()


class SingleProcess:
    """Here, with a thread per core: numba, arrow and parquet leave Python's lock alone.

    Like every scheduler it runs tasks that do not depend on each other; results come as they are
    ready.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or count_cores()

    def run(self, task: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """Call ``task`` once for each of ``arguments``."""
        if self.workers == 1:
            yield from map(task, arguments)
            return
        with ThreadPoolExecutor(self.workers) as threads:
            futures = [threads.submit(task, argument) for argument in arguments]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()

    def compute(self, delayed: Sequence[Any]) -> Iterator[Any]:
        """Compute delayed values of Dask. A GPU has room for one at a time."""
        if not uses_gpu():
            if len(delayed) == 1:
                yield from dask.compute(*delayed, scheduler="threads", num_workers=self.workers)
            else:
                yield from self.run(_compute_here, delayed)
            return
        for value in delayed:
            with _explained():
                result = _compute_here(value)
            yield result


def _compute_here(value: Any) -> Any:
    return dask.compute(value, scheduler="synchronous")[0]


class DaskCluster:
    """A Dask or Dask-CUDA cluster, reached through a client.

    Of GPUs it computes with frames alone. What is only read and counted (raw logs, vocabularies)
    stays on their ``host``, whose cores are more.
    """

    def __init__(self, client: Any, host: SingleProcess | None = None) -> None:
        self.client = client
        self.host = host

    def run(self, task: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """See :class:`SingleProcess`."""
        if self.host is not None:
            return self.host.run(task, arguments)
        return self._as_completed(
            [self.client.submit(task, argument, pure=False) for argument in arguments]
        )

    def compute(self, delayed: Sequence[Any]) -> Iterator[Any]:
        """See :class:`SingleProcess`."""
        with _explained():
            yield from self._as_completed(self.client.compute(list(delayed)))

    def _as_completed(self, futures: list[Any]) -> Iterator[Any]:
        from distributed import as_completed as ready
        from distributed.scheduler import KilledWorker

        try:
            for future in ready(futures):
                yield future.result()
                future.release()
        except KilledWorker as error:
            raise MerlinSimError(
                "A worker of the cluster died again and again, most likely out of memory; "
                "its log says more. Fewer workers need less."
            ) from error
        finally:
            self.client.cancel(futures)


Scheduler = SingleProcess | DaskCluster


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        short = short_of_memory(error)
        if short is None:
            raise
        raise MerlinSimError(
            f"a GPU is out of memory: {short} --scheduler {LOCAL} moves what is not in use to the"
            " host's; with CUDA_VISIBLE_DEVICES= the CPU computes."
        ) from error


@contextmanager
def open_scheduler(where: str = AUTO, workers: int | None = None) -> Iterator[Scheduler]:
    """Start or reach what is asked for, and close it in the end.

    Args:
        where: ``single``, ``local``, the address of a running cluster, or ``auto``: a local
            cluster if ``workers`` asks for more than one or there are several GPUs to use, else
            this process. With GPUs a local cluster has one worker for each.
        workers: Processes of a local cluster, or threads of this process (those beside a cluster
            of GPUs too); as many as cores if None.
    """
    if workers is not None and workers < 1:
        raise MerlinSimError(f"The number of workers should be at least 1. Received: {workers}.")
    if where == AUTO:
        several = (workers is not None and workers > 1) or len(_gpus()) > 1
        where = LOCAL if several else SINGLE
    if where == SINGLE:
        yield SingleProcess(workers)
    elif where == LOCAL and _gpus():
        with _gpu_client() as client:
            yield DaskCluster(client, SingleProcess(workers))
    elif where == LOCAL:
        from distributed import LocalCluster

        settings, count = {"distributed.worker.daemon": True}, workers or count_cores()
        with _client_of(LocalCluster, settings, n_workers=count) as client:
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
def _client_of(
    cluster: Callable[..., Any], settings: Mapping[str, Any], **more: Any
) -> Iterator[Any]:
    """Start a cluster on this machine, whose workers have one thread and no dashboard.

    Merlin remembers the client that it finds, and uses it as long as its cluster lists workers,
    which a closed one may do where a worker was lost: Merlin then forgets it here.
    """
    from distributed import Client
    from merlin.core.utils import global_dask_client, set_dask_client

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s", **LOST_WORKER, **settings}),
        cluster(
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=40,
            preload=[process_wide.__name__],
            **more,
        ) as started,
        Client(started) as client,
    ):
        try:
            yield client
        finally:
            if global_dask_client() is client:
                set_dask_client("auto")


def _gpus() -> tuple[Gpu, ...]:
    gpus = look().visible  # a driver is asked first, which is quick
    return gpus if gpus and uses_gpu() else ()


def _gpu_client() -> AbstractContextManager[Any]:
    """Start one worker a GPU, each with half of its memory as a pool that grows, and spilling.

    cupy takes from that pool too: it would keep what it once had, and what is short for it would
    have nothing spilled.
    """
    from dask_cuda import LocalCUDACluster

    memory = {
        "device_memory_limit": SPILL_ABOVE,
        "enable_cudf_spill": True,
        "rmm_allocator_external_lib_list": "cupy",
    }
    known = inspect.signature(LocalCUDACluster).parameters  # 23.8 spills results, and no more
    if "enable_cudf_spill" in known:  # what workers send can then only be taken by one that does
        spill()
    taken = {name: value for name, value in memory.items() if name in known}
    return _client_of(LocalCUDACluster, {}, rmm_pool_size=POOL, **taken)


@contextmanager
def _remote_client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=f"{SECONDS_TO_CONNECT}s")
    except (OSError, ValueError) as error:
        raise MerlinSimError(f"{address}: no Dask scheduler answers there ({error}).") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise MerlinSimError(f"{address}: the Dask cluster has no workers.")
        yield client
