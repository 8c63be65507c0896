"""Workflows whose fit runs on a scheduler of a run learn what NVTabular's own fit learns."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import nvtabular as nvt
import pandas as pd
from merlin.dag import iter_nodes
from merlin.io import Dataset

from merlin_sim.workflows.ops import Categorify
from merlin_sim.workflows.ops.workflow import Workflow, fitting_on
from merlin_sim.workflows.schedulers import SingleProcess


def frame(seed):
    rng = np.random.default_rng(seed)
    price = np.where(rng.random(50) < 0.2, np.nan, rng.gamma(2, 3, 50))
    return pd.DataFrame({"item": rng.choice([*"abcdefg"], 50), "price": price})


def dataset():
    return Dataset(dd.from_map(frame, range(4), meta=frame(0).iloc[:0]))


def graph(directory):
    """Two operators that learn one after the other, and one that learns beside them."""
    price = ["price"] >> nvt.ops.FillMedian() >> nvt.ops.Normalize()
    return (["item"] >> Categorify(out_path=directory, freq_threshold=25)) + price


def test_the_scheduler_computes_what_operators_learn(tmp_path):
    scheduler, phases = SingleProcess(3), []

    def compute(delayed):
        phases.append(len(delayed))
        return [*scheduler.compute(delayed)]

    ours = Workflow(graph(tmp_path / "ours"))
    with fitting_on(ours, compute):
        ours.fit(dataset())
    theirs = nvt.Workflow(graph(tmp_path / "theirs")).fit(dataset())
    pd.testing.assert_frame_equal(ours.transform(frame(9)), theirs.transform(frame(9)))
    assert sorted(phases) == [1, 1, 1, 4]  # four partitions, a column's keys, median, mean
    op = next(node.op for node in iter_nodes([ours.output_node]) if hasattr(node.op, "counts"))
    assert op.count_left_out("item") == 4 * 50 - op.counts("item").sum() > 0
