"""Decimal numbers that are names have one key, whatever holds them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from merlin_sim.serving.lookups import LogLookup
from merlin_sim.workflows.fitted_numbers import FittedNumbers
from merlin_sim.workflows.raw_values import category_of


def texts(values, kind):
    found = category_of(pa.array(values, kind)).to_pylist()
    return [word.decode() if isinstance(word, bytes) else word for word in found]


@pytest.mark.parametrize(
    ("word", "number", "key"),
    [
        ("12.10", 12.1, "12.1"),
        ("3.0", 3.0, "3"),
        ("-0.0", -0.0, "0"),
        ("-2.50", -2.5, "-2.5"),
        ("1e16", 1e16, "10000000000000000"),
        ("-1.5E20", -1.5e20, "-150000000000000000000"),
        ("1e-7", 1e-7, "1e-7"),
    ],
)
def test_a_number_has_one_key(word, number, key):
    assert texts([word], pa.string()) == texts([word.encode()], pa.binary()) == [key]
    assert texts([number], pa.float64()) == texts([number], pa.float32()) == [key]


def test_whole_numbers_keep_all_their_digits():
    ids = [2**53, 2**53 + 1, None]
    assert texts(ids, pa.int64()) == [str(2**53), str(2**53 + 1), None]
    assert texts(["9007199254740993", "007"], pa.string()) == ["9007199254740993", "007"]


def test_more_digits_than_a_float_holds_tell_numbers_apart():
    words = ["12345678901234567.0", "1.00000000000000000010", "-1.2345678901234567e16", "1e400"]
    keys = ["12345678901234567", "1.0000000000000000001", "-12345678901234567", "1e400"]
    assert texts(words, pa.string()) == keys
    assert texts([word.encode() for word in words], pa.binary()) == keys
    decimals = [Decimal("12345678901234567.20"), Decimal("12345678901234567.25"), None, Decimal(5)]
    found = ["12345678901234567.2", "12345678901234567.25", None, "5"]
    assert texts(decimals, pa.decimal128(30, 2)) == found
    assert texts([2.0**53, 2.0**53 + 2], pa.float64()) == [str(2**53), str(2**53 + 2)]


class Keys:
    domain = "size"

    def look_up(self, key, where):
        return {"12.1": 1, "12.5": 2, "10000000000000000": 3, "0": 4}.get(key, 0)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        *((12.1, 1), ("12.10", 1), (float(np.float32(12.1)), 1), (12.5, 2), (12.100001, 0)),
        *((1e16, 3), (10**16, 3), ("1e16", 3), (-0.0, 4), ("-0.0", 4), (0, 4), (None, 0)),
    ],
)
def test_a_request_finds_it(key, found):
    assert LogLookup(Keys(), None, FittedNumbers()).look_up(key, "size") == found
