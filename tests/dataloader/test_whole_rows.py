"""Whole rows over all ranks: every column that is fed is what pyarrow reads from the files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.dataloader import stored_rows
from merlin_sim.dataloader.epoch_plan import EpochPlan
from merlin_sim.dataloader.row_loader import RowLoader

LONGEST, FIXED, CARDINALITY = 5, 3, 90
SCALARS = {"label": np.float32, "row": np.int64, "item": np.int64, "price": np.float64}
LISTS = {"items": np.int64, "weights": np.float32, "fixed": np.int16}


def schema_of_all():
    ids = {"domain": {"min": 0, "max": CARDINALITY, "name": "item"}}
    counts = {"min": 0, "max": LONGEST}

    def lists(name, counts, **properties):
        properties["value_count"] = counts
        return ColumnSchema(name, dtype=LISTS[name], is_list=True, properties=properties)

    return Schema(
        [
            ColumnSchema("label", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.float32),
            ColumnSchema("row", dtype=np.int64),
            ColumnSchema("item", tags=[Tags.CATEGORICAL], dtype=np.int64, properties=ids),
            ColumnSchema("price", dtype=np.float64),
            lists("items", counts, **ids),
            lists("weights", counts),
            lists("fixed", {"min": FIXED, "max": FIXED}),
        ]
    )


def table_of(rows, first):
    random = np.random.default_rng(first)
    offsets = {
        name: np.concatenate([[0], np.cumsum(random.integers(0, LONGEST + 1, rows))])
        for name in ("items", "weights")
    } | {"fixed": np.arange(rows + 1) * FIXED}
    columns = {
        "label": random.integers(0, 2, rows),
        "row": np.arange(first, first + rows),
        "item": random.integers(1, CARDINALITY + 1, rows),
        "price": random.normal(size=rows),
        "items": random.integers(1, CARDINALITY + 1, offsets["items"][-1]),
        "weights": random.integers(1, 1000, offsets["weights"][-1]),
        "fixed": random.integers(1, 1000, rows * FIXED),
    }
    arrays = {name: pa.array(columns[name].astype(kind)) for name, kind in SCALARS.items()}
    for name, kind in LISTS.items():
        values = pa.array(columns[name].astype(kind))
        arrays[name] = pa.ListArray.from_arrays(pa.array(offsets[name], pa.int32()), values)
    return pa.table(arrays)


def write(directory, files):
    """Write one file for each list of row groups' sizes."""
    first, paths = 0, []
    for number, groups in enumerate(files):
        path = str(directory / f"part.{number}.parquet")
        with pq.ParquetWriter(path, table_of(0, 0).schema) as writer:
            for rows in groups:
                writer.write_table(table_of(rows, first), row_group_size=max(rows, 1))
                first += rows
        paths.append(path)
    return paths


def read_by_arrow(paths):
    """Every column by row number, lists padded on the left."""
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    columns = {name: table[name].to_numpy() for name in SCALARS}
    for name, kind in LISTS.items():
        width = FIXED if name == "fixed" else LONGEST
        lists = table[name].to_pylist()
        columns[name] = np.array([[0] * (width - len(x)) + x for x in lists], kind)
    return columns


def loader_of(paths, batch_size, ranks, rank, start, **options):
    dataset = Dataset(
        paths, engine="parquet", schema=schema_of_all(), cpu=True, row_groups_per_part=1
    )
    loader = RowLoader(
        dataset, batch_size // ranks, seed=3, global_size=ranks, global_rank=rank, **options
    )
    loader.start_at(1, max(min(start, len(loader) - 1), 0))
    return loader


def batches_of(loader):
    return [
        {"label": label.numpy(), **{name: inputs[name].numpy() for name in columns}}
        for columns in [[name for name in (*SCALARS, *LISTS) if name != "label"]]
        for inputs, label in loader
    ]


def feed_and_compare(paths, stored, batch_size, ranks, start=0, **options):
    """Join the batches of all ranks, step by step, and compare them with the files."""
    loaders = [loader_of(paths, batch_size, ranks, i, start, **options) for i in range(ranks)]
    by_rank = [*map(batches_of, loaders)]
    alone = by_rank[0]
    if ranks > 1:
        alone = batches_of(loader_of(paths, batch_size, 1, 0, start, **options))
    seen = []
    for mine, *parts in zip(alone, *by_rank, strict=True):
        step = {name: np.concatenate([part[name] for part in parts]) for name in stored}
        for name, values in step.items():
            assert values.dtype.kind == stored[name].dtype.kind
            np.testing.assert_array_equal(values, mine[name], err_msg=name)
            np.testing.assert_array_equal(values, stored[name][step["row"]], err_msg=name)
        seen.append(step["row"])
    rows = np.concatenate([np.empty(0, np.int64), *seen])
    total = len(stored["row"])
    left_out = total % batch_size if options.get("drop_last") else 0
    steps = -(-(total - left_out) // batch_size)
    skipped = max(min(start, steps - 1), 0)
    assert len(seen) == steps - skipped
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) == total - left_out - skipped * batch_size


@pytest.mark.slow
@settings(
    max_examples=1,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    files=st.lists(
        st.lists(st.integers(0, 1000), min_size=1, max_size=3), min_size=1, max_size=3
    ).filter(lambda files: sum(map(sum, files)) > 600),
    ranks=st.integers(1, 9),
    batch_size=st.integers(15, 150),
    shuffle=st.booleans(),
    memory=st.sampled_from([0, 0.3, 100]),
    drop_last=st.booleans(),
    start=st.sampled_from([0, 0, 1, 5]),
    window_rows=st.sampled_from([1, 800, 65536]),
    chunk_rows=st.sampled_from([200, stored_rows.PIECE_ROWS]),
)
@example([[1300], [800]], 3, 61, True, 0, False, 0, 65536, 230)
@example([[800, 1], [800]], 7, 33, True, 100, True, 5, 800, 16384)
@example([[1500, 1500]], 9, 59, False, 0.15, False, 5, 65536, 350)
@example([[1000, 1000]], 5, 67, True, 0.1, False, 0, 65536, 230)
# A row group longer than a piece, and shorter ones, in pieces that are cut between ranks.
@example([[1250, 63], [7, 313, 0, 197], [250]], 7, 32, True, 0.01, False, 0, 65536, 1024)
@example([[601]], 9, 67, False, 0, True, 5, 2500, 700)  # no step at all
@example([[0, 7], [3, 1]], 5, 15, True, 0.3, False, 0, 1, 3)  # fewer rows than ranks take
def test_the_rows_of_all_ranks_are_those_of_the_files(
    tmp_path_factory,
    monkeypatch,
    files,
    ranks,
    batch_size,
    shuffle,
    memory,
    drop_last,
    start,
    window_rows,
    chunk_rows,
):
    monkeypatch.setattr(stored_rows, "PIECE_ROWS", chunk_rows)
    paths = write(tmp_path_factory.mktemp("files"), files)
    feed_and_compare(
        paths,
        read_by_arrow(paths),
        batch_size * ranks,
        ranks,
        start,
        shuffle=shuffle,
        drop_last=drop_last,
        window_rows=window_rows,
        data_memory_mb=memory,
    )


def batches_of_plan(plan, rank, size):
    """The rows of the epoch's sequence in each of a rank's batches."""
    for window in plan.windows():
        found = plan.rank_rows(window, rank, size)
        read = np.concatenate([np.arange(start, stop) for start, stop in found.spans])
        for rows in found.batches:
            yield read[rows]


def test_a_shuffled_batch_comes_from_the_whole_window():
    plan = EpochPlan([1000], 100, True, seed=0, window_rows=1000)
    for batch in batches_of_plan(plan, 0, 1):
        counts = np.histogram(batch, bins=10, range=(0, 1000))[0]
        assert counts.min() >= 5 and counts.max() <= 15


def test_a_rank_reads_only_its_part_of_a_shuffled_window():
    plan = EpochPlan([512] * 16, 4096, True, window_rows=8192)
    window = next(iter(plan.windows()))
    read = [sum(b - a for a, b in plan.rank_rows(window, rank, 4).spans) for rank in range(4)]
    assert read == [2048] * 4
