"""Columns as tf.train.Example messages, serialized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]


def encode_examples(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Give one message for each record.

    >>> [len(record) for record in encode_examples({"a": np.array([[1], [300]])})]
    [14, 15]

    Args:
        columns: Feature -> its values, [records, values of a record]: int64, or float32.
    """
    records = len(next(iter(columns.values())))
    for row in range(records):
        example = tf.train.Example()
        for name, values in columns.items():
            feature = example.features.feature[name]
            kind = feature.float_list if values.dtype == np.float32 else feature.int64_list
            kind.value.extend(values[row].tolist())  # numbers of Python's are taken much faster
        yield example.SerializeToString()
