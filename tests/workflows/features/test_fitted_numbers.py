"""What numbers learn of a log, on values that a person can count."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
from merlin.io import Dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.feature import Encoding, Number
from merlin_sim.workflows.fitted_numbers import FittedNumbers
from merlin_sim.workflows.ops import QuantileBuckets

pytestmark = pytest.mark.filterwarnings("ignore:.*in CPU mode")


@pytest.mark.parametrize("smoothing", [0, 1e-300, 5])
def test_what_was_never_seen_has_the_mean_share(smoothing):
    encoding = Encoding("brand", ("target",))
    seen = np.array([0, 4]), np.array([0, 1])
    found = FittedNumbers(prior=0.3).encode(encoding, smoothing, *seen)["brand_target"]
    assert found.tolist() == pytest.approx([0.3, (1 + smoothing * 0.3) / (4 + smoothing)])
    assert found.dtype == np.float32


def fitted(values, count, partitions=1):
    """Buckets that were fitted in a workflow."""
    operator = QuantileBuckets(count)
    log = pd.DataFrame({"price": np.array(values, float)})
    nvt.Workflow(["price"] >> operator).fit(Dataset(log, npartitions=partitions, cpu=True))
    return FittedNumbers({"price": [operator]}), Number("price", "item", buckets=count)


def buckets_of(values, count, partitions=1):
    """What fitted buckets hold, in their order."""
    numbers, price = fitted(values, count, partitions)
    keys = np.array(list(map(str, numbers.bucket_keys(price, values))))
    return [sorted(np.asarray(values)[keys == key]) for key in sorted(set(keys))]


TENTHS, SEVENTHS = ([number, float(np.float32(number))] for number in (0.1, 0.7))
"""What 32 bits do not tell apart."""


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([4, 2, 3, 1], 2, [[1, 2], [3, 4]]),
        (range(1, 11), 5, [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]),
        ([0] * 6 + [1] * 4, 2, [[0] * 6, [1] * 4]),
        ([0] * 95 + [1, 2, 3, 4, 5], 10, [[0] * 95, [1, 2, 3, 4, 5]]),
        (
            [0] * 60 + [*range(1, 41)],
            10,
            [[0] * 60, *([*range(first, first + 10)] for first in (1, 11, 21, 31))],
        ),
        (TENTHS + SEVENTHS, 2, [sorted(TENTHS), sorted(SEVENTHS)]),
    ],
)
def test_buckets_hold_as_many_values_each_where_values_differ(values, count, expected, partitions):
    assert buckets_of(values, count, partitions) == expected


def test_fewer_buckets_than_asked_for_are_reported_and_one_is_refused():
    numbers, price = fitted([0] * 95 + [1, 2, 3, 4, 5], 10)
    age = Number("age", "user", buckets=(18.0,))
    assert numbers.fewer_buckets([price, age]) == {"price": (2, 10)}
    with pytest.raises(MerlinSimError, match="'price': expected 2 buckets, found one.*9"):
        fitted([7] + [9] * 20, 2)


def test_a_value_between_two_buckets_belongs_to_the_lower():
    numbers, price = fitted([1.0, 2, 3, 4], 2)
    keys = numbers.bucket_keys(price, [2.9, 3.0, np.nan])
    assert keys.tolist() == ["bucket 0", "bucket 1", "no_price"]
