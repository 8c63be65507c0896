"""Users whose samples would be nonsense are refused by `transcode` as by the feed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feature_logs import FEATURES, OPTIONS, feature_log, write_features
from preprocess_runs import all_bytes
from small_users import write_users_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.preprocess import write_samples
from merlin_sim.workflows.transcoding.users import users_to_samples

USERS, ITEMS = "users/part.0.parquet", "categories/thing.parquet"


@pytest.fixture
def users(tmp_path):
    return write_users_dataset(tmp_path / "dataset", [[[3, 5, 4], [6]]])


def transcode(directory, output):
    return users_to_samples(DatasetDirectory.open(directory), output, Silence())


def rows_of(directory):
    return [pq.read_table(directory / f"{mapping}") for mapping in ("train", "test")]


def test_what_cannot_be_is_refused_with_its_place(users, tmp_path):
    whole = {name: (users / name).read_bytes() for name in (USERS, ITEMS)}
    for name, column, row, value, message in (
        (ITEMS, "kind", 3, 2**63 - 1, "thing.parquet, row 4: column kind should hold 1 to 7"),
        (ITEMS, "count", 0, -1, "thing.parquet, row 1: column count"),
        (ITEMS, "id", 5, 1, "thing.parquet: column id should hold each of 1 to 50 once"),
        (ITEMS, "kind", 2, None, "thing.parquet, row 3: column kind .*Received: None"),
        (ITEMS, "count", ..., 0, "thing.parquet: column count holds no interaction"),
        (USERS, "thing", (0, 1), 51, r"row 1 \(user .*position 1: column thing should .* 1 to 50"),
    ):
        table = pq.read_table(users / name)
        values = table[column].to_pylist()
        if row is ...:
            values = [value] * len(values)
        elif isinstance(row, tuple):
            values[row[0]][row[1]] = value
        else:
            values[row] = value
        index = table.column_names.index(column)
        changed = pa.array(values, table.schema.field(column).type)
        pq.write_table(table.set_column(index, table.schema.field(column), changed), users / name)
        with pytest.raises(MerlinSimError, match=message):
            transcode(users, tmp_path / "samples")
        assert not (tmp_path / "samples").exists()
        (users / name).write_bytes(whole[name])


@pytest.mark.parametrize("name", [USERS, ITEMS])
def test_a_damaged_file_is_named_and_not_the_output(users, tmp_path, name):
    content = bytearray((users / name).read_bytes())
    content[4:60] = bytes([255]) * 56
    (users / name).write_bytes(content)
    said = f"{users / name} (cannot be read as parquet|is damaged in row)"
    with pytest.raises(MerlinSimError, match=said):
        transcode(users, tmp_path / "samples")


@pytest.mark.slow
def test_histories_of_other_types_are_the_same_ones(users, tmp_path):
    whole = write_users_dataset(tmp_path / "equal", [[[4, 4, 4]]])
    wanted = transcode(whole, tmp_path / "wanted") and rows_of(tmp_path / "wanted")
    table = pq.read_table(whole / USERS)
    index = table.column_names.index("thing")
    values = table["thing"].combine_chunks().flatten()
    for number, kind in enumerate((pa.list_(pa.int32(), 4), pa.large_list(pa.uint16()))):
        stored = pa.array(values.to_numpy().reshape(-1, 4).tolist(), kind)
        pq.write_table(table.set_column(index, "thing", stored), whole / USERS)
        transcode(whole, tmp_path / f"{number}")
        assert rows_of(tmp_path / f"{number}") == wanted


@pytest.mark.slow
def test_samples_are_the_same_however_many_are_made_at_a_time(tmp_path, monkeypatch):
    """The first of a width run op by op and all others in a graph: to the bit the same."""
    users = write_users_dataset(tmp_path / "users", [[[30, 17], [25, 9]]], time_intervals="hours")
    made = []
    for samples in (write_samples.SAMPLES, 5):
        monkeypatch.setattr(write_samples, "SAMPLES", samples)
        transcode(users, tmp_path / f"{samples}")
        made.append(rows_of(tmp_path / f"{samples}"))
    assert made[0] == made[1]


@pytest.mark.slow
def test_users_with_features_become_the_samples_of_preprocessing(tmp_path, run_cli):
    """With values that change, equal times, labels, draws, counts of what came before."""
    log = feature_log(users=30, rows=800)
    log["when"] = log["when"].dt.floor("2h")
    log["income"] = (log["income"] + np.arange(len(log)) % 3 * 0.2).round(3)
    log.loc[::5, "price"] *= 2
    log.to_parquet(tmp_path / "log.parquet")
    counts = "encodings: {what: [count, target], brand: [count, recency]}"
    given = write_features(tmp_path / "features.yaml", FEATURES + counts)
    for layout in ("users", "samples"):
        result = run_cli(
            "preprocess", "log", tmp_path / "log.parquet", *OPTIONS, "--features", given,
            "--layout", layout, "--output_path", tmp_path / layout, "--label_column", "clicked",
            "--negatives", "uniform",
        )  # fmt: skip
        assert result.exception is None, result.exception
    transcode(tmp_path / "users", tmp_path / "made")
    made, stored = all_bytes(tmp_path / "made"), all_bytes(tmp_path / "samples")
    assert made.keys() == stored.keys()
    assert {name for name in stored if made[name] != stored[name]} <= {"schema.pbtxt"}
    opened = [DatasetDirectory.open(tmp_path / name).schema for name in ("made", "samples")]
    assert opened[0] == opened[1]  # the order of a schema's properties is none
