from __future__ import annotations

import pytest

from merlin_sim.foundation.gpus import Gpu, Gpus
from merlin_sim.foundation.ranks import LocalRank
from merlin_sim.training.runs import affinity
from merlin_sim.training.runs.affinity import (
    choose_cores,
    choose_near_cores,
    choose_threads,
    near_cores,
    set_up_process,
    shares_operations,
)
from merlin_sim.training.runs.run_config import AFFINITIES, RunConfig

HYPERTHREADED = [[[0, 8], [1, 9], [2, 10], [3, 11]], [[4, 12], [5, 13], [6, 14], [7, 15]]]


@pytest.mark.parametrize("mode", AFFINITIES)
def test_unique_modes_never_share_a_core(mode):
    for ranks in (1, 2, 3, 4, 8) if mode.startswith(("socket_u", "single_u")) else ():
        chosen = [choose_cores(HYPERTHREADED, mode, rank, ranks) for rank in range(ranks)]
        every = [cpu for cpus in chosen for cpu in cpus]
        assert len(every) == len(set(every))
        assert all(chosen)
        if mode.startswith("socket") and ranks in (1, 2, 4, 8):
            assert sorted(every) == list(range(16))
    for rank in range(5):  # more ranks than cores still get one
        assert choose_cores([[[0], [1]]], mode, rank, 5)


def test_a_physical_core_stays_whole():
    assert choose_cores(HYPERTHREADED, "socket_unique_interleaved", 1, 4) == [1, 9, 3, 11]
    assert choose_cores(HYPERTHREADED, "socket_unique_continuous", 1, 4) == [2, 10, 3, 11]
    assert choose_cores(HYPERTHREADED, "single", 3, 4) == [4, 12]
    assert choose_cores(HYPERTHREADED, "socket", 0, 8) == [0, 8, 1, 9, 2, 10, 3, 11]


@pytest.mark.parametrize(
    ("cores", "before", "asked", "expected"),
    [
        (1, None, None, "1"),
        (2, None, None, "1"),
        (3, None, None, None),  # TensorFlow's choice
        (2, "4", None, "4"),  # that of whoever started the process
        (2, "4", 2, "2"),
        (8, None, 1, "1"),
    ],
)
def test_operations_have_one_thread_where_cores_are_few(
    monkeypatch, cores, before, asked, expected
):
    environment = {} if before is None else {"TF_NUM_INTRAOP_THREADS": before}
    monkeypatch.setattr(affinity.os, "environ", environment)
    monkeypatch.setattr(affinity, "count_cores", lambda: cores)
    choose_threads(intra_op=asked)
    assert environment.get("TF_NUM_INTRAOP_THREADS") == expected
    assert shares_operations() == (expected != "1")


@pytest.mark.parametrize(
    ("model", "mode", "threads"),
    [
        ("sim", "train", "1"),
        ("dlrm", "train", None),
        ("dcnv2", "train", None),
        ("dlrm", "inference", "1"),
        ("somewhere:FAMILY", "train", "1"),
    ],
)
def test_large_operations_are_shared_out_in_training(monkeypatch, model, mode, threads):
    environment = {}
    monkeypatch.setattr(affinity.os, "environ", environment)
    monkeypatch.setattr(affinity, "count_cores", lambda: 2)
    config = RunConfig("data", model_type=model, mode=mode, affinity="disabled")
    set_up_process(config, LocalRank())
    assert environment.get("TF_NUM_INTRAOP_THREADS") == threads


def test_ranks_take_the_cores_of_their_gpus():
    near = [frozenset(range(4, 8)) | frozenset(range(12, 16))] * 2
    near += [frozenset(range(4)) | frozenset(range(8, 12))] * 2
    chosen = [
        choose_near_cores(HYPERTHREADED, "socket_unique_interleaved", rank, near)
        for rank in range(4)
    ]
    assert chosen == [[4, 12, 6, 14], [5, 13, 7, 15], [0, 8, 2, 10], [1, 9, 3, 11]]
    assert choose_near_cores(HYPERTHREADED, "single", 1, near) == [4, 12]


def test_the_cores_of_gpus_are_known_for_every_rank_or_not_used():
    gpus = Gpus((Gpu("0", cores=frozenset({1})), Gpu("1", cores=frozenset({0}))))
    assert near_cores(gpus, LocalRank(1, 2)) == [{1}, {0}]
    assert near_cores(gpus, LocalRank(0, 3)) is None
    assert near_cores(Gpus((Gpu("0"),)), LocalRank()) is None


def test_a_process_is_bound_to_the_cores_of_its_gpu(monkeypatch):
    bound = []
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(affinity.os, "sched_setaffinity", lambda pid, cpus: bound.append(cpus))
    monkeypatch.setattr(affinity, "read_sockets", lambda cpus: [[[0], [1]], [[2], [3]]])
    near = [frozenset({2, 3}), frozenset({0, 1})]
    assert affinity.set_affinity("socket", 0, 2, near) == [2, 3]
    elsewhere = [frozenset({64}), frozenset({65})]  # cores that this process may not use
    assert affinity.set_affinity("socket", 0, 2, elsewhere) == [0, 1]
