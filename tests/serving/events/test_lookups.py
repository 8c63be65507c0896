"""Lookups of one domain."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.lookups import IdLookup, VocabularyLookup


def test_text_keys_with_features(tmp_path):
    path = tmp_path / "book.parquet"
    table = {"id": [2, 1], "key": ["b", "a"], "count": [1, 1], "genre": [7, 9]}
    pq.write_table(pa.table(table), path)
    lookup = VocabularyLookup.read("book", path, ["genre", "author"])
    assert [lookup.look_up(key, "x") for key in ("a", "b", "c", "", None)] == [1, 2, 0, 0, 0]
    assert lookup.features["genre"].tolist() == [0, 9, 7]
    assert "author" not in lookup.features


def test_a_feature_without_a_value_has_the_id_that_the_workflow_gave_it(tmp_path):
    path = tmp_path / "genre.parquet"
    pq.write_table(pa.table({"id": [1, 2], "key": ["no_genre", "sea"]}), path)
    lookup = VocabularyLookup.read("genre", path)
    assert [lookup.look_up(key, "x") for key in (None, "", "sea", "new")] == [1, 1, 2, 0]


def test_whole_number_keys(tmp_path):
    path = tmp_path / "user.parquet"
    pq.write_table(pa.table({"id": [1, 2], "key": pa.array([10, -3], pa.int32())}), path)
    lookup = VocabularyLookup.read("user", path)
    assert [lookup.look_up(key, "x") for key in (10, -3, 1, None)] == [1, 2, 0, 0]
    for key in ("10", 10.0, True):
        with pytest.raises(RequestError, match="user: expected a whole number"):
            lookup.look_up(key, "user")


def test_without_a_vocabulary_keys_are_ids():
    lookup = IdLookup("user", 5)
    assert [lookup.look_up(key, "x") for key in (1, 5, 6, 0, -1, 2**62, None)] == [1, 5] + [0] * 5
    with pytest.raises(RequestError, match="user: expected a whole number"):
        lookup.look_up("1", "user")


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize(
    "lookup", [IdLookup("user", 5), VocabularyLookup("user", {3: 1}, False, {})]
)
def test_numbers_beyond_64_bits_are_refused(lookup, key):
    """No log has them, and no file of scores could show them."""
    with pytest.raises(RequestError, match="user: expected a whole number of 64 bits, received"):
        lookup.look_up(key, "user")


def test_half_a_pair_of_surrogates_is_refused():
    lookup = VocabularyLookup("user", {"a": 1}, True, {})
    with pytest.raises(RequestError, match=r"user: expected text, received a lone surrogate in"):
        lookup.look_up("a\ud800", "user")
    assert lookup.look_up("\U0001f600", "user") == 0
