from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.feed.pages.runs import find_lists, find_zeros, look_up, start_runs


def encode(runs, width):
    """Write runs as the parquet format says: (value, count), or a list of packed values."""
    data = b""
    for run in runs:
        if isinstance(run, tuple):
            value, count = run
            data += varint(count << 1) + value.to_bytes((width + 7) // 8, "little")
        else:
            packed = run + [0] * (-len(run) % 8)
            bits = sum(value << (width * place) for place, value in enumerate(packed))
            data += varint(len(packed) // 8 << 1 | 1)
            data += bits.to_bytes(len(packed) * width // 8, "little")
    return np.frombuffer(data, np.uint8)


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


@st.composite
def runs(draw, width):
    value = st.integers(0, 2**width - 1)
    repeated = st.tuples(value, st.integers(1, 300))
    packed = st.integers(1, 70).flatmap(
        lambda groups: st.lists(value, min_size=groups * 8, max_size=groups * 8)
    )
    return draw(st.lists(repeated | packed, min_size=1, max_size=5))


def flat(runs):
    return [v for run in runs for v in ([run[0]] * run[1] if isinstance(run, tuple) else run)]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 12), st.lists(st.integers(1, 99), min_size=1))
def test_values_are_looked_up_however_many_at_a_time(data, width, counts):
    chosen = data.draw(runs(width))
    expected, encoded = flat(chosen), encode(chosen, width)
    dictionary = np.arange(2**width, dtype=np.int32) * 3
    state, read = start_runs(0, len(encoded)), []
    while len(read) < len(expected):
        result = np.empty(min(counts[len(read) % len(counts)], len(expected) - len(read)), np.int32)
        assert look_up(encoded, state, width, dictionary, result)
        read += result.tolist()
    assert read == [3 * value for value in expected]
    assert not look_up(encoded, state, width, dictionary, np.empty(8, np.int32))


def test_indices_of_32_bits():
    encoded = encode([[2**32 - 1] + [5] * 7], 32)
    result = np.empty(1, np.int64)
    state = start_runs(0, len(encoded))
    assert not look_up(encoded, state, 32, np.arange(6), result)  # outside
    encoded = encode([[5] * 8], 32)
    result = np.empty(8, np.int64)
    assert look_up(encoded, start_runs(0, len(encoded)), 32, np.arange(6), result)
    assert result.tolist() == [5] * 8


def test_the_unused_bytes_of_the_last_run_may_be_left_out():
    encoded = encode([[1, 2, 3, 0, 0, 0, 0, 0]], 8)[:4]
    result = np.empty(3, np.int64)
    assert look_up(encoded, start_runs(0, 4), 8, np.arange(9), result)
    assert result.tolist() == [1, 2, 3]


def test_a_run_of_nothing_ends_the_reading():
    encoded = encode([(1, 0), (1, 5)], 1)
    assert not look_up(encoded, start_runs(0, len(encoded)), 1, np.arange(2), np.empty(5, int))


@settings(max_examples=40, deadline=None)
@given(runs(1))
def test_zeros_are_found(chosen):
    expected, encoded = flat(chosen), encode(chosen, 1)
    result = np.empty(len(expected), np.int64)
    found = find_zeros(encoded, start_runs(0, len(encoded)), len(expected), result)
    assert result[:found].tolist() == [i for i, value in enumerate(expected) if not value]
    assert find_zeros(encoded, start_runs(0, len(encoded)), len(expected) + 1, result) == -1


def test_lists_with_missing_parts_are_found():
    # [7], none, [], [8, missing], [9]: nothing, an empty list, a missing element, a value
    repetitions = np.array([0, 0, 0, 0, 1, 0], np.uint8)
    definitions = np.array([3, 0, 1, 3, 2, 3], np.uint8)
    starts = np.empty(6, np.int64)
    assert find_lists(repetitions, definitions, (1, 2, 3), starts) == (5, 4, 2)
    assert starts[:5].tolist() == [0, 1, 1, 1, 3]
