"""A workflow fitted and run beside NVTabular's own operators, on the same log.

    .venv/bin/python benchmarks/bench_workflow.py [--rows 1000000] [--rounds 3]

Ours: ``ops.Categorify`` of user, item and category, then ``ops.GroupHistories``. NVTabular's:
``nvt.ops.Categorify`` of the same, then ``nvt.ops.Groupby`` into lists, sorted by time. Each is
fitted on the log, and transforms it to a table in memory, in one process, by turns. Merlin reads
the log for both. `preprocess log`: what the command does, which reads the log by arrow, on all
cores, fits the same graph, and writes the dataset directory.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import nvtabular as nvt  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from measuring.records import Recording  # noqa: E402
from measuring.timing import in_turn  # noqa: E402
from merlin.io import Dataset  # noqa: E402

from merlin_sim import ops  # noqa: E402
from merlin_sim.schemas.users_layout import USERS  # noqa: E402
from merlin_sim.workflows.behaviour_columns import BehaviourColumns  # noqa: E402
from merlin_sim.workflows.preprocess.preprocess_log import PreprocessLog  # noqa: E402
from merlin_sim.workflows.rules import ALL_ROWS, SampleRules  # noqa: E402
from merlin_sim.workflows.table_log import TableLog  # noqa: E402

KEYS = ["user", "item", "category"]
USERS_OF, ITEMS, CATEGORIES = 10, 300_000, 500


def write_log(path: Path, rows: int) -> None:
    """Write interactions whose keys are text; users stand together in no order of time."""
    random = np.random.default_rng(0)
    items = np.minimum((random.pareto(1.2, rows) * 500).astype(int), ITEMS - 1)
    users = random.integers(0, rows // USERS_OF, rows)
    table = {
        "user": pa.array([f"A{user:07d}" for user in users]),
        "item": pa.array([f"B{item:06d}" for item in items]),
        "category": pa.array([f"category {item % CATEGORIES}" for item in items]),
        "time": pa.array(random.integers(1_600_000_000, 1_700_000_000, rows)),
    }
    pq.write_table(pa.table(table), path)


def fit_and_transform(graph: nvt.WorkflowNode, log: Path) -> int:
    """Return how many users there are."""
    workflow, dataset = nvt.Workflow(graph), Dataset(str(log), engine="parquet", cpu=True)
    workflow.fit(dataset)
    return len(workflow.transform(dataset).compute(scheduler="synchronous"))


def ours(log: Path, files: Path) -> int:
    """Group histories by our operators."""
    ids = KEYS >> ops.Categorify(out_path=str(files))
    histories = ids + ["time"] >> ops.GroupHistories(
        user="user", item="item", order="time", negatives="none"
    )
    return fit_and_transform(histories, log)


def preprocess(log: Path, files: Path) -> int:
    """Do what `preprocess log` does."""
    columns = BehaviourColumns("user", "item", "time", item_features=("category",))
    rules = SampleRules(shortest_sequence_for_user=1, fit_on=ALL_ROWS)
    program = PreprocessLog(TableLog([log], columns), rules, layout=USERS)
    return program.write(files / "dataset", overwrite=True).users


def nvtabulars(log: Path, files: Path) -> int:
    """Group histories by NVTabular's operators."""
    ids = KEYS >> nvt.ops.Categorify(out_path=str(files))
    lists = ids + ["time"] >> nvt.ops.Groupby(
        groupby_cols=["user"],
        sort_cols=["time"],
        aggs={"item": ["list"], "category": ["list"], "time": ["list"]},
    )
    return fit_and_transform(lists, log)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {"interactions": options.rows, "rounds": options.rounds}
    recording = Recording("workflow", "A workflow beside NVTabular's own", settings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.parquet", options.rows)
        users = {}

        def work(name, run):
            users[name] = run(folder / "log.parquet", folder / name)
            return options.rows

        ways = {
            "NVTabular": nvtabulars, "merlin-sim": ours, "merlin-sim, `preprocess log`": preprocess,
        }  # fmt: skip
        works = {name: functools.partial(work, name, run) for name, run in ways.items()}
        in_turn(works, 1)
        rates = in_turn(works, options.rounds)
        assert len(set(users.values())) == 1, users
    recording.table("fit and transform", "interactions/s", rates, "NVTabular")
    recording.end()


if __name__ == "__main__":
    main()
