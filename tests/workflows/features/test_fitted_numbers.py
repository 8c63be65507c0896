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
    keys = np.array(list(map(str, (found := fitted(values, count, partitions))[0].bucket_keys(
        found[1], values
    ))))  # fmt: skip
    return [sorted(np.asarray(values)[keys == key]) for key in sorted(set(keys))]


@pytest.mark.parametrize("partitions", [1, 3])
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
def test_buckets_hold_as_many_values_each_where_values_differ(values, count, expected, partitions):
    if expected is None:
        with pytest.raises(MerlinSimError, match="'price': expected 2 buckets, found one.*9"):
            buckets_of(values, count, partitions)
    else:
        assert buckets_of(values, count, partitions) == expected


def test_a_frequent_value_stands_alone_and_the_others_are_dealt_out():
    zeros, *others = buckets_of([0] * 60 + list(range(1, 41)), 10)
    assert zeros == [0] * 60
    assert others == [list(range(first, first + 10)) for first in (1, 11, 21, 31)]


def test_fewer_buckets_than_asked_for_are_reported():
    numbers, price = fitted([0] * 95 + [1, 2, 3, 4, 5], 10)
    age = Number("age", "user", buckets=(18.0,))
    assert numbers.fewer_buckets([price, age]) == {"price": (2, 10)}


def test_a_value_between_two_buckets_belongs_to_the_lower():
    numbers, price = fitted([1.0, 2, 3, 4], 2)
    assert numbers.bucket_keys(price, [2.9, 3.0, np.nan]).tolist() == [
        "bucket 0", "bucket 1", "no_price",
    ]  # fmt: skip


def test_numbers_that_32_bits_do_not_tell_apart_are_in_one_bucket():
    numbers, price = fitted([0.1, float(np.float32(0.1)), 0.7, float(np.float32(0.7))], 2)
    keys = numbers.bucket_keys(price, [0.1, float(np.float32(0.1)), 0.7, float(np.float32(0.7))])
    assert keys.tolist() == ["bucket 0", "bucket 0", "bucket 1", "bucket 1"]
