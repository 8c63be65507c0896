from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.criteo import key_kernels
from merlin_sim.workflows.criteo.key_table import KeyTable, KeyTableWriter, table_of_vocabulary
from merlin_sim.workflows.criteo.rank_keys import key_texts

KEYS = st.lists(st.integers(0, 2**32 - 1), max_size=60)


@pytest.mark.slow
@settings(max_examples=50)
@given(KEYS)
def test_scattering_has_an_inverse(keys):
    keys = np.array(keys, np.int64)
    mixed = key_kernels.scatter_all(keys)
    assert key_kernels.gather_up(mixed).tolist() == keys.tolist()


@settings(max_examples=50)
@given(KEYS, st.integers(0, 3))
def test_keys_are_counted_part_by_part(keys, part_bits):
    keys = np.array([*keys, *keys[:7], -1], np.int64)
    pairs, begins = key_kernels.count_keys(keys, part_bits)
    mixed = (pairs >> np.uint64(32)).astype(np.uint32)
    counts = (pairs & np.uint64(0xFFFFFFFF)).tolist()
    found = dict(zip(key_kernels.gather_up(mixed).tolist(), counts, strict=True))
    expected = dict(zip(*np.unique(keys[keys >= 0], return_counts=True), strict=True))
    assert found == expected
    parts = np.repeat(np.arange(1 << part_bits), np.diff(begins))
    np.testing.assert_array_equal(mixed.astype(np.int64) >> (32 - part_bits), parts)


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_every_key_is_found_and_no_other(tmp_path, count):
    keys = np.unique(np.random.default_rng(count).integers(0, 2**32, count))
    mixed = np.sort(key_kernels.scatter_all(keys))
    ids = np.arange(1, len(keys) + 1, dtype=np.int32)
    with KeyTableWriter(tmp_path, "cat_0") as writer:
        writer.write(mixed[: count // 2], ids[: count // 2])
        writer.write(mixed[count // 2 :], ids[count // 2 :])
    table = KeyTable(tmp_path, "cat_0")
    known = key_kernels.gather_up(mixed).astype(np.int64)
    asked = np.concatenate([known, [-1], np.setdiff1d(np.arange(100), known)])
    expected = np.concatenate([ids, np.zeros(len(asked) - len(ids), np.int32)])
    np.testing.assert_array_equal(table.look_up(asked), expected)


def test_a_table_that_is_made_anew_is_read_anew(tmp_path):
    keys = np.array([5], np.int64)
    for value in (3, 9):
        with KeyTableWriter(tmp_path, "cat_0") as writer:
            writer.write(key_kernels.scatter_all(keys), np.array([value], np.int32))
        assert KeyTable(tmp_path, "cat_0").look_up(keys).tolist() == [value]


@pytest.mark.parametrize(
    ("keys", "said"),
    [(["1"], "8 hexadecimal digits"), (["zzzzzzzz"], "hexadecimal"), (["a" * 8] * 2, "the order")],
)
def test_a_vocabulary_of_another_kind_is_refused(tmp_path, keys, said):
    path = tmp_path / "cat_0.parquet"
    pq.write_table(pa.table({"id": np.arange(len(keys)), "key": keys}), path)
    with pytest.raises(MerlinSimError, match=said):
        table_of_vocabulary(tmp_path, "cat_0", path)


def test_keys_are_written_with_all_their_digits():
    keys = np.array([0, 255, 2**32 - 1], np.uint32)
    assert key_texts(keys).to_pylist() == ["00000000", "000000ff", "ffffffff"]
    assert key_texts(keys[:0]).to_pylist() == []
