from __future__ import annotations

import tracemalloc
import weakref

import numpy as np
import pytest

from merlin_sim.parallel.checkpoints import array_files, checkpoint_files
from merlin_sim.parallel.checkpoints.array_files import (
    ArrayPart,
    StoredArrays,
    join_index,
    whole,
    write_arrays,
)
from merlin_sim.parallel.checkpoints.checkpoint_files import read_checkpoint
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointError, CheckpointStore

TABLE = np.arange(10 * 4, dtype=np.float32).reshape(10, 4)
BIAS = np.arange(7, dtype=np.float64)


def part(rows, columns=(0, 4), name="table/m", **changed):
    values = TABLE[slice(*rows), slice(*columns)]
    entry = {"shape": TABLE.shape, "table": "item", "first_row": rows[0]}
    return ArrayPart(name, values, **{**entry, "first_column": columns[0], **changed})


BY_ROWS = [[part((0, 3))], [part((3, 9))], [part((9, 10))]]
BY_COLUMNS = [[part((0, 10), (0, 1))], [], [part((0, 10), (1, 4))]]
BY_BOTH = [
    [part((0, 6), (0, 2)), part((6, 10), (2, 4))],
    [part((0, 6), (2, 4))],
    [part((6, 10), (0, 2))],
]


def spread(ranks):
    """Let three ranks write: a table in parts, a bias that the first one has."""

    def write(directory, parts):
        first = [*parts, *whole({"bias": BIAS, "steps": np.int64(3)})]
        return [
            write_arrays(directory, first if rank == 0 else theirs, rank, len(ranks))
            for rank, theirs in enumerate(ranks)
        ]

    return write


def saved(path, ranks):
    return CheckpointStore(path).save(1, {"epoch": 1}, ranks[0], write=spread(ranks))


@pytest.mark.parametrize("ranks", [BY_ROWS, BY_COLUMNS, BY_BOTH], ids=["rows", "columns", "both"])
def test_what_three_ranks_wrote_two_others_read_in_ranges_of_their_own(tmp_path, ranks):
    path = saved(tmp_path, ranks)
    files = sorted(file.name for file in path.glob("arrays*"))
    assert files == ["arrays-0-of-3.npz", "arrays-1-of-3.npz", "arrays-2-of-3.npz"]
    arrays = CheckpointStore(tmp_path).load().arrays
    assert arrays.index["table/m"].table == "item" and arrays.index["bias"].table is None
    for rows, columns in [((0, 5), None), ((5, 10), None), (None, (0, 2)), ((2, 7), (1, 3))]:
        expected = TABLE[slice(*(rows or (0, 10))), slice(*(columns or (0, 4)))]
        np.testing.assert_array_equal(arrays.read("table/m", rows, columns), expected)
    np.testing.assert_array_equal(arrays["table/m"], TABLE)
    np.testing.assert_array_equal(arrays.read("bias", (2, 6)), BIAS[2:6])
    assert arrays["steps"] == 3 and arrays["steps"].shape == ()
    assert arrays.read("table/m", (4, 4)).shape == (0, 4)
    with pytest.raises(ValueError, match="table/m has no rows 5 to 11"):
        arrays.read("table/m", (5, 11))
    with pytest.raises(ValueError, match="table/m has no columns 3 to 2"):
        arrays.read("table/m", None, (3, 2))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([[part((0, 3))], [part((4, 10))]], "rows 3 to 4, columns 0 to 4 stand in no part"),
        ([[part((0, 5))], [part((3, 10))]], "rows 3 to 5, columns 0 to 4 stand in 2 parts"),
        ([[part((0, 10))], [part((0, 10))]], "rows 0 to 10, columns 0 to 4 stand in 2 parts"),
        ([[part((0, 10), (0, 3))], []], "rows 0 to 10, columns 3 to 4 stand in no part"),
        ([[part((0, 5))], [part((5, 10), shape=(9, 4))]], "for one rank and"),
        ([[part((0, 5))], [part((5, 10), table="user")]], "for one rank and"),
        ([[part((0, 10), first_row=1)], []], "the indices 1 to 11 of 10"),
    ],
    ids=["gap", "overlap", "twice", "columns", "shapes", "tables", "outside"],
)
def test_parts_that_do_not_make_up_a_whole_are_not_saved(tmp_path, ranks, said):
    with pytest.raises(CheckpointError, match="table/m.*" + said):
        saved(tmp_path, ranks)
    assert not list(tmp_path.iterdir())


def test_files_that_lack_a_rank_are_refused(tmp_path):
    written = spread(BY_ROWS)(tmp_path, BY_ROWS[0])
    files = {file.name: open(tmp_path / file.name, "rb") for file in (written[0], written[2])}
    with pytest.raises(KeyError):
        StoredArrays(files, join_index(written))


def test_the_files_of_a_checkpoint_that_was_removed_can_still_be_read(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    saved(tmp_path, BY_ROWS)
    opened = store.load()
    store.save(2, {}, whole({"w": BIAS}))
    assert store.names() == ["step-0000000002"]
    np.testing.assert_array_equal(opened.arrays["table/m"], TABLE)


@pytest.mark.slow
def test_a_file_reports_that_it_goes_on_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "SYNCED_BYTES", 1 << 24)
    sizes = []
    values = np.zeros((10 << 20, 4), np.float32)  # 160 MiB
    parts = whole({"w": values})
    array_files.write_arrays(
        tmp_path, parts, report=lambda: sizes.append((tmp_path / "arrays.npz").stat().st_size)
    )
    growing = [size for size in sizes if size < values.nbytes]
    assert len(set(growing)) >= 8, "many signs of life while one array is written"
    assert sizes.count(sizes[-1]) > 100, "and while its digest is computed"


class Counted:
    """A variable that says how many copies of such are held."""

    held = most = 0

    def numpy(self):
        values = np.zeros(1000, np.float32)
        Counted.held += 1
        Counted.most = max(Counted.most, Counted.held)
        weakref.finalize(values, self.drop)
        return values

    @staticmethod
    def drop():
        Counted.held -= 1


def test_arrays_are_copied_one_by_one_while_they_are_written(tmp_path):
    write_arrays(tmp_path, whole({str(number): Counted() for number in range(5)}))
    assert (Counted.most, Counted.held) == (1, 0)


@pytest.mark.parametrize("columns", [None, (3, 5)])
def test_of_a_part_the_range_alone_is_read(tmp_path, monkeypatch, columns):
    monkeypatch.setattr(array_files, "READ_BYTES", 1 << 14)
    table = np.arange(100_000 * 8, dtype=np.float32).reshape(-1, 8)
    store = CheckpointStore(tmp_path)
    store.save(1, {}, whole({"table": table}))
    arrays = store.load().arrays
    tracemalloc.start()
    try:
        found = arrays.read("table", (500, 2500), columns)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, table[500:2500, slice(*(columns or (0, 8)))])
    assert most < found.nbytes + (1 << 16)  # of 3.2 MB


def test_files_that_another_rank_has_compared_are_opened_as_they_are(tmp_path, monkeypatch):
    path = saved(tmp_path, BY_ROWS)
    first = read_checkpoint(path)
    digests = []
    original = checkpoint_files.digest_of
    monkeypatch.setattr(
        checkpoint_files, "digest_of", lambda file: digests.append(file) or original(file)
    )
    other = read_checkpoint(path, first.sums)
    assert len(digests) == 1  # that of the manifest
    np.testing.assert_array_equal(other.arrays["table/m"], TABLE)
    with pytest.raises(CheckpointError, match="is not what another rank has read"):
        read_checkpoint(path, {**first.sums, "manifest.json": "0"})
