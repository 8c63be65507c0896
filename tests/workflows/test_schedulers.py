from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from typing import ClassVar

import dask
import dask_cuda
import pandas as pd
import pytest
from dask_cuda import LocalCUDACluster
from distributed import LocalCluster
from merlin.core.utils import global_dask_client
from stand_in import FOLDER, SHORT_OF_MEMORY, load, machine

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.gpus import look
from merlin_sim.workflows import frames as backend
from merlin_sim.workflows import schedulers
from merlin_sim.workflows.schedulers import DaskCluster, SingleProcess, open_scheduler

WORKER = FOLDER.parent / "support/workers/cuda_cluster_worker.py"


def square(number):
    if number == 13:
        raise MerlinSimError("13 brings bad luck")
    return number**2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_single_process_runs_everything(workers):
    with open_scheduler("single", workers) as scheduler:
        assert scheduler.workers == workers
        assert sorted(scheduler.run(square, range(10))) == [n**2 for n in range(10)]
        with pytest.raises(MerlinSimError, match="bad luck"):
            list(scheduler.run(square, range(20)))
    for asked in (None, 1):
        with open_scheduler("auto", asked) as scheduler:
            assert isinstance(scheduler, SingleProcess)


def test_what_cannot_be_reached_is_said(monkeypatch):
    monkeypatch.setattr(schedulers, "SECONDS_TO_CONNECT", 1)
    with pytest.raises(MerlinSimError, match="no Dask scheduler answers"):
        with open_scheduler("tcp://127.0.0.1:1"):
            pass
    with pytest.raises(MerlinSimError, match="`scheduler` should be auto"):
        with open_scheduler("everywhere"):
            pass


class OneWorkerAGpu:
    """Stands in for LocalCUDACluster; it takes what that takes, and nothing that it does not know.

    Its workers are those of a LocalCluster in this process.
    """

    asked: ClassVar[dict] = {}
    __signature__ = inspect.signature(LocalCUDACluster)

    def __new__(cls, **options):
        parameters = cls.__signature__.parameters
        of_workers = {"dashboard_address", "silence_logs", "preload"}  # LocalCluster's
        assert not options.keys() - parameters.keys() - of_workers
        cls.asked = options
        gpus = len(look().visible)
        return LocalCluster(n_workers=gpus, processes=False, dashboard_address=None)


@pytest.fixture
def gpus(monkeypatch):
    """Put two GPUs and cudf into the machine."""
    monkeypatch.setitem(sys.modules, "pynvml", load("pynvml"))
    monkeypatch.setenv("GPU_STAND_INS", machine({}, {}))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(backend, "cudf", load("cudf"))
    monkeypatch.setitem(sys.modules, "cupy", load("cupy"))  # from where errors are unpickled
    monkeypatch.setitem(sys.modules, "cupy.cuda.memory", load("cupy").cuda.memory)
    monkeypatch.setattr(dask_cuda, "LocalCUDACluster", OneWorkerAGpu)


def test_a_machine_with_gpus_has_one_worker_for_each(gpus):
    process = os.getpid()
    with open_scheduler("auto", 3) as scheduler:
        assert isinstance(scheduler, DaskCluster) and scheduler.host is not None
        assert len(scheduler.client.scheduler_info()["workers"]) == 2
        assert sorted(scheduler.run(square, range(4))) == [0, 1, 4, 9]
        assert set(scheduler.run(lambda _: os.getpid(), range(4))) == {process}
        delayed = [dask.delayed(square)(number) for number in range(3)]
        assert sorted(scheduler.compute(delayed)) == [0, 1, 4]
    assert OneWorkerAGpu.asked["rmm_pool_size"] == 0.5
    assert OneWorkerAGpu.asked["device_memory_limit"] == 0.8


def test_what_workers_spill_can_be_taken_by_this_process(gpus, monkeypatch):
    """As from dask-cuda 24 on, whose workers send what only a process that spills can take."""
    parameters = dict(OneWorkerAGpu.__signature__.parameters)
    for name in ("enable_cudf_spill", "rmm_allocator_external_lib_list"):
        given = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        parameters.setdefault(name, given)
    known = inspect.Signature([p for p in parameters.values() if p.kind is not p.VAR_KEYWORD])
    monkeypatch.setattr(OneWorkerAGpu, "__signature__", known)
    load("cudf").options.clear()
    with open_scheduler("local"):
        pass
    assert OneWorkerAGpu.asked["enable_cudf_spill"]
    assert OneWorkerAGpu.asked["rmm_allocator_external_lib_list"] == "cupy"
    assert load("cudf").options == {"spill": True}


def test_one_process_computes_one_at_a_time_on_a_gpu(gpus):
    running = []

    def alone(number):
        running.append(number)
        time.sleep(0.01)
        assert running.pop() == number and not running
        return number

    with open_scheduler("single", 4) as scheduler:
        assert list(scheduler.compute([dask.delayed(alone)(n) for n in range(6)])) == list(range(6))


@pytest.mark.parametrize("where", ["single", "local"])
def test_out_of_gpu_memory_the_error_says_what_helps(gpus, where):
    """The host's memory is not taken for a GPU's."""

    def fail(error):
        raise error

    with open_scheduler(where) as scheduler:
        for error in SHORT_OF_MEMORY.values():
            with pytest.raises(MerlinSimError, match="GPU is out of memory: .* --scheduler local"):
                list(scheduler.compute([dask.delayed(fail)(error)]))
        if where == "single":
            error = MemoryError("Unable to allocate 3.00 GiB for an array with shape (9,)")
            with pytest.raises(MemoryError, match="Unable to allocate"):
                list(scheduler.compute([dask.delayed(fail)(error)]))


@pytest.mark.slow
def test_each_worker_of_dask_cuda_has_its_gpu_a_pool_and_the_cores_near_it():
    """All of it dask-cuda's own, on a driver, cudf, cupy and rmm that are made up."""
    near = [[core] for core in sorted(os.sched_getaffinity(0))[:2]]
    near = [near[0], near[-1]]
    folders = [*map(str, [FOLDER, FOLDER.parent / "support"])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", WORKER],
        env={
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "PYTHONPATH": os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")])),
            "GPU_STAND_INS": machine(*({"cores": cores, "memory": 10**9} for cores in near)),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    spills = "enable_cudf_spill" in inspect.signature(LocalCUDACluster).parameters  # not in 23.8
    assert reported["workers"] == [
        {
            "visible": visible,
            "cores": cores,
            "pools": [{"pool": True, "managed": False, "bytes": 10**9 // 2}],
            "spills": spills or None,
            "allocators": ["rmm_cupy_allocator"] if spills else [],
            "tensorflow": False,
        }
        for visible, cores in zip(("0,1", "1,0"), near, strict=True)
    ]
    assert reported["here"] == (spills or None)
    assert (reported["computed"], reported["ran"]) == ([0, 1, 2, 3, 4], [1, 2])


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_local_cluster_works_and_hands_errors_on():
    with open_scheduler("auto", 2) as scheduler:
        assert isinstance(scheduler, DaskCluster) and scheduler.host is None
        assert len(scheduler.client.scheduler_info()["workers"]) == 2
        assert sorted(scheduler.run(square, range(10))) == [n**2 for n in range(10)]
        with pytest.raises(MerlinSimError, match="bad luck"):
            list(scheduler.run(square, range(20)))
        assert global_dask_client() is scheduler.client  # Merlin finds it, and keeps it
    scheduler.client.cluster.workers["lost"] = None  # as where one was lost while it closed
    assert global_dask_client() is None


@pytest.fixture
def running_cluster(tmp_path):
    """The address of a scheduler with a worker that is started as an operator would start it."""
    with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        dask = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_worker"]
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory"]
        worker = subprocess.Popen(
            [*dask, address, *options, str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            cluster.get_client().wait_for_workers(1, timeout=200)
            yield address
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.slow
def test_a_running_cluster_gives_the_same_dataset(running_cluster, preprocess_log, tmp_path):
    from preprocess_runs import all_bytes  # and with it TensorFlow, which workers do without

    rows = [(f"u{n % 9}", f"i{n * n % 7}", n) for n in range(90)]
    log = pd.DataFrame(rows, columns=["who", "what", "when"])
    log.to_parquet(tmp_path / "log.parquet", row_group_size=40)
    given = (tmp_path / "log.parquet", "--shortest_sequence_for_user", 2)
    alone, _ = preprocess_log(tmp_path / "alone", *given)
    output, _ = preprocess_log(tmp_path / "dataset", *given, "--scheduler", running_cluster)
    assert all_bytes(output) == all_bytes(alone)
