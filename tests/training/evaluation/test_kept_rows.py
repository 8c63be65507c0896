"""Every sample of an evaluation is found in the dataset, whatever the ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_users import write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader, user_column
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.steps.sample_batch import SampleBatch
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.evaluate import LocationFinder

LENGTHS = [3, 9, 2, 14, 6, 5, 11]


def locations_of(dataset, columns, ranks, mapping, candidates=None, contiguous=False):
    """Row, position, item, user and label of each sample of all ranks."""
    found = []
    for rank in range(ranks):
        feed = open_loader(
            dataset,
            mapping,
            columns,
            24,
            Ranks(rank, ranks),
            candidates=candidates,
            contiguous=contiguous,
        )
        locations = LocationFinder.of(feed, dataset)
        for step, given in enumerate(feed.inputs()):
            batch = SampleBatch(*feed.make(given))
            of_each = batch.column(columns[0]), batch.flat()[0]
            users, labels = (batch.counted(values.numpy()) for values in of_each)
            item = batch.columns[columns[2]].numpy().reshape(-1)
            of_batch = locations.of_batch(
                step, given, len(labels), {columns[2]: batch.counted(item)}
            )
            found += zip(*of_batch, users, labels, strict=True)
    return [tuple(int(value) for value in sample) for sample in found]


@pytest.mark.parametrize(
    ("ranks", "candidates", "with_baskets", "contiguous"),
    [(1, 1, True, False), (3, 1, False, True), (3, 4, True, False), (3, 4, False, True)],
)
def test_positions_of_users_over_ranks(tmp_path, ranks, candidates, with_baskets, contiguous):
    path = write_users_dataset(
        tmp_path / "users",
        [[[1, 0], LENGTHS[:3], LENGTHS[3:4]], [LENGTHS[4:]]],
        with_baskets=with_baskets,
    )
    dataset, columns = DatasetDirectory.open(path), ["user", "label", "thing_trgt"]
    found = locations_of(dataset, columns, ranks, "train", candidates, contiguous)
    tables = [pq.read_table(file) for file in sorted(path.glob("users/*"))]
    rows = pa.concat_tables(tables).to_pylist()
    wanted = [
        (number, position, label)
        for number, row in enumerate(rows)
        for position in range(row["train_begin"], row["train_end"])
        for label in (0, 1)
    ]
    assert sorted((row, position, label) for row, position, _, _, label in found) == wanted
    for row, position, item, user, label in found:
        assert user == rows[row]["user"]
        if label:  # a negative was drawn
            assert item == rows[row]["thing"][position]


@pytest.mark.parametrize("contiguous", [False, True])
def test_rows_over_ranks(sim_dataset, contiguous):
    dataset = DatasetDirectory.open(sim_dataset)
    item = dataset.channels["target_item_features"][0]
    columns = [user_column(dataset.schema), dataset.channels["label"][0], item]
    found = locations_of(dataset, columns, 2, "test", contiguous=contiguous)
    rows = pa.concat_tables([pq.read_table(file) for file in dataset.files("test")])
    stored = [np.asarray(rows[name]).astype(int).tolist() for name in (item, *columns[:2])]
    wanted = [(row, -1, *values) for row, values in enumerate(zip(*stored, strict=True))]
    assert sorted(found) == wanted
