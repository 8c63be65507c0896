"""A million users, and a user of a million interactions: all samples come, in little memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run
from small_users import COLUMNS, COUNTRIES, ITEMS, KINDS, RULES, write_users_dataset
from warm import warm

from merlin_sim.schemas.dataset import write_documents
from merlin_sim.workflows.dataset_spec import samples_schema, users_layout_of, users_spec
from merlin_sim.workflows.preprocess.dataset_writer import INTERACTIONS_PER_GROUP, cut

WORKER = Path(__file__).parents[1] / "support/workers/fed_users_worker.py"


def write_many(directory, users, length):
    """Write users of one length, in row groups as the package writes them."""
    write_users_dataset(directory, [[[length]]])
    path = "users/part.0.parquet"
    schema = pq.read_schema(directory / path)
    offsets = np.arange(users + 1) * length
    random = np.random.default_rng(2)
    with pq.ParquetWriter(directory / path, schema) as writer:
        for first, stop in cut(offsets, INTERACTIONS_PER_GROUP):
            count = stop - first
            items = random.integers(1, ITEMS + 1, count * length).astype(np.int32)
            places = pa.array(offsets[: count + 1], pa.int32())
            table = {
                "user": np.arange(first, stop) + 1,
                "country": random.integers(1, COUNTRIES + 1, count),
                "train_begin": np.full(count, 1),
                "train_end": np.full(count, length - 1),
                "test_begin": np.full(count, length - 1),
                "test_end": np.full(count, length),
                "thing": pa.ListArray.from_arrays(places, pa.array(items)),
            }
            writer.write_table(pa.table(table, schema=schema), row_group_size=count)
    sizes = {"user": users, "country": COUNTRIES, "thing": ITEMS, "kind": KINDS}
    for name in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (directory / name).unlink()
    schema = samples_schema(COLUMNS, sizes, RULES.max_sequence_length)
    layout = replace(users_layout_of(COLUMNS, RULES), user_hash=None)  # all have ids
    write_documents(directory, users_spec(schema, layout, [path]))
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidates", "small", "users", "length", "most"),
    [(4, (2000, 4), 1_000_000, 4, 400e6), (16, (20, 100), 1, 1_000_000, 100e6)],
    ids=["a million users", "a user of a million interactions"],
)
def test_many_samples_come_whole_in_little_memory(tmp_path, candidates, small, users, length, most):
    """217 and 22 MB when this was written: of users a row group, and 17 bytes more a user."""
    paths = write_many(tmp_path / "small", *small), write_many(tmp_path / "large", users, length)
    done = run(warm(str(WORKER), str(candidates), *map(str, paths)))
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["samples"] == 2 * reported["positives"] == 2 * users * (length - 2)
    assert reported["users"] == (length - 2) * users * (users + 1)
    assert reported["bytes"] < most, reported
