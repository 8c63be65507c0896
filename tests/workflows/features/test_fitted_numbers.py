"""What numbers learn of a log, on values that a person can count."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.features.feature import Encoding, Number
from merlin_sim.workflows.features.fitted_numbers import FittedNumbers, fit_numbers


@pytest.mark.parametrize("smoothing", [0, 1e-300, 5])
def test_what_was_never_seen_has_the_mean_share(smoothing):
    encoding = Encoding("brand", ("target",))
    seen = np.array([0, 4]), np.array([0, 1])
    found = FittedNumbers(prior=0.3).encode(encoding, smoothing, *seen)["brand_target"]
    assert found.tolist() == pytest.approx([0.3, (1 + smoothing * 0.3) / (4 + smoothing)])
    assert found.dtype == np.float32


def buckets_of(values, count):
    """What fitted buckets hold, in their order."""
    number = Number("price", "item", buckets=count)
    fitted = FittedNumbers(fit_numbers([number], {"price": np.array(values, float)}))
    keys = fitted.bucket_keys(number, values)
    return [sorted(np.asarray(values)[keys == key]) for key in sorted(set(keys))]


@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([4, 2, 3, 1], 2, [[1, 2], [3, 4]]),
        (range(1, 11), 5, [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]),
        ([0] * 6 + [1] * 4, 2, [[0] * 6, [1] * 4]),
        ([0] * 95 + [1, 2, 3, 4, 5], 10, [[0] * 95, [1, 2, 3, 4, 5]]),
        ([7] + [9] * 20, 2, None),
    ],
)
def test_buckets_hold_as_many_values_each_where_values_differ(values, count, expected):
    if expected is None:
        with pytest.raises(MerlinSimError, match="'price': expected 2 buckets, found one.*9"):
            buckets_of(values, count)
    else:
        assert buckets_of(values, count) == expected


def test_a_frequent_value_stands_alone_and_the_others_are_dealt_out():
    zeros, *others = buckets_of([0] * 60 + list(range(1, 41)), 10)
    assert zeros == [0] * 60
    assert others == [list(range(first, first + 10)) for first in (1, 11, 21, 31)]


def test_fewer_buckets_than_asked_for_are_told():
    numbers = [Number("price", "item", buckets=10), Number("age", "user", buckets=(18.0,))]
    values = {"price": np.array([0] * 95 + [1, 2, 3, 4, 5], float), "age": np.arange(3.0)}
    assert FittedNumbers(fit_numbers(numbers, values)).fewer_buckets(numbers) == {"price": (2, 10)}


def test_a_value_between_two_buckets_belongs_to_the_lower():
    number = Number("price", "item", buckets=2)
    fitted = FittedNumbers(fit_numbers([number], {"price": np.array([1.0, 2, 3, 4])}))
    assert fitted.bucket_keys(number, [2.9, 3.0]).tolist() == ["bucket 0", "bucket 1"]
