"""A page that says it has fewer values than it should: arrow alone would end the process."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attack.dataset_family import DatasetFamily
from attack.plan import Mutation, Plan

from merlin_sim.feed.pages.page_header import PageError
from merlin_sim.feed.rows import row_group

FILE = "train/part.1.parquet"
FLIPPED = {"file": FILE, "place": "pages", "change": "flip", "at": 525660760, "count": 6}
CASE = Plan(
    {"seed": 559770635, "padded": False, "sizes": {"rows": [1, 108, 1], "group": 108}},
    (Mutation("damage", {**FLIPPED, "value": 144}),),
)
COLUMNS = ["clicked", "site", "device", "age"]


@pytest.fixture
def damaged(tmp_path):
    family = DatasetFamily("clicks")
    family.write(CASE, tmp_path)
    lengths = pq.ParquetFile(tmp_path / FILE).read_row_group(0, columns=["device"]).num_rows
    assert lengths == 44  # of 108
    return tmp_path / FILE


@pytest.mark.parametrize("whole_rows", [row_group.WHOLE_ROWS, 100])
@pytest.mark.parametrize("use_threads", [True, False])
def test_columns_of_unequal_lengths_are_refused(damaged, whole_rows, use_threads, monkeypatch):
    monkeypatch.setattr(row_group, "WHOLE_ROWS", whole_rows)
    with pq.ParquetFile(damaged) as file:
        reader = row_group._ArrowReader(file, 0, COLUMNS, use_threads)
        with pytest.raises((pa.ArrowInvalid, PageError), match=r"device"):
            reader.read(108)


def test_long_row_groups_are_read_in_pieces(tmp_path, monkeypatch):
    table = pa.table({"a": list(range(1000)), "b.c": [float(n) for n in range(1000)]})
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=1000)
    monkeypatch.setattr(row_group, "WHOLE_ROWS", 10)
    monkeypatch.setattr(row_group, "CHUNK_ROWS", 300)
    with pq.ParquetFile(tmp_path / "file.parquet") as file:
        reader = row_group._ArrowReader(file, 0, ["b.c", "a"])
        found = [reader.read(rows) for rows in (250, 500, 250)]
        reader.finish()
    for name in ("a", "b.c"):
        assert [x for part in found for x in part[name].values.tolist()] == table[name].to_pylist()
