"""Numbers, vectors and lists of a log, from CSV as from parquet.

On the way through the workflow a vector is the bytes of its float32 numbers, and a list is one text
with a separator that no key holds: rows are dealt out, sorted and chosen by them.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.exceptions import MerlinSimError
from ..schemas.parquet import is_list, value_type

LARGEST = float(np.finfo(np.float32).max)
"""Models compute in 32 bits."""
LARGEST_OF_64_BITS = float(np.finfo(np.float64).max)
EXPECTED_NUMBER = "a number"
Mask = npt.NDArray[np.bool_]


def numbers_of(values: pa.Array, largest: float = LARGEST) -> tuple[pa.Array, Mask]:
    """Read numbers of any type, or text of them, as float64; and which values are none.

    NaN is a missing number, which becomes null.

    >>> numbers, bad = numbers_of(pa.array([" 12.50 ", "", "dear", "nan", "1e300"]))
    >>> numbers.to_pylist(), bad.tolist()
    ([12.5, None, None, None, None], [False, False, True, False, True])
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    is_bad = np.zeros(len(values), bool)
    if is_words(values.type):
        text, is_bad = decoded_text(values)
        given = ~np.asarray(text.is_null())
        numbers = whole_or_in_pieces(text, lambda part: pc.cast(part, pa.float64()), pa.float64())
        is_bad |= given & np.asarray(numbers.is_null())
    elif pa.types.is_boolean(values.type):
        numbers = pc.cast(pc.cast(values, pa.int8()), pa.float64())
    else:
        numbers = pc.cast(values, pa.float64(), safe=False)
    plain = np.asarray(numbers.fill_null(np.nan))
    with np.errstate(invalid="ignore"):
        beyond = np.abs(plain) > largest
    missing = np.isnan(plain) | beyond
    return pa.array(plain, pa.float64(), mask=missing), is_bad | beyond


def refuse_nulls(read: pa.Array, values: pa.Array, name: str, expected: str) -> None:
    """Refuse a frame's column of which a value could not be read; ``values`` are as they came."""
    if not read.null_count:
        return
    row = pc.index(read.is_null(), True).as_py()
    found = values[row].as_py()
    shown = "nothing" if found is None or found == "" else repr(found)[:60]
    raise MerlinSimError(f"the log, row {row + 1}: {name!r}: expected {expected}, found {shown}.")


def can_be_number(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold numbers."""
    if pa.types.is_dictionary(kind):
        return can_be_number(kind.value_type)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_number or is_words(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def is_words(kind: pa.DataType) -> bool:
    """Whether a column is text, or the bytes that CSV is read as."""
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def decoded(values: pa.Array) -> pa.Array:
    """Bytes as text; null where they are not valid UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for value in values.to_pylist():
            try:
                texts.append(None if value is None else value.decode("utf-8"))
            except UnicodeDecodeError:
                texts.append(None)
        return pa.array(texts, pa.string())


def decoded_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Text without the blanks around it, null where nothing is left; and what is not UTF-8."""
    words = pc.cast(values, pa.binary())
    text = pc.utf8_trim_whitespace(decoded(words))
    is_bad = np.asarray(pc.and_(text.is_null(), words.is_valid()))
    empty = pc.equal(pc.binary_length(text), 0).fill_null(True)
    return pc.if_else(empty, pa.scalar(None, pa.string()), text), is_bad


def whole_or_in_pieces(text: pa.Array, read: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Read a column in one go; value by value where that is refused, null for what is none."""
    try:
        return read(text)
    except pa.ArrowInvalid:
        distinct = text.dictionary_encode()
        words = distinct.dictionary
        pieces = [_one(words.slice(index, 1), read, kind) for index in range(len(words))]
        found = pa.concat_arrays(pieces) if pieces else pa.array([], kind)
        return found.take(distinct.indices)


def _one(word: pa.Array, read: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    try:
        return read(word)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


SEPARATOR = "\x1f"


def can_be_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold vectors: lists of numbers, or text of them."""
    inner = value_type(kind)
    is_number = pa.types.is_floating(inner) or pa.types.is_integer(inner)
    return bool((is_list(kind) and is_number) or is_words(inner) and not is_list(kind))


def can_be_list(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold lists of keys, or text of them."""
    inner = value_type(kind)
    return bool(is_words(inner) or (is_list(kind) and pa.types.is_integer(inner)))


def vectors_of(values: pa.Array, size: int) -> tuple[pa.Array, Mask]:
    """Read vectors as the bytes of ``size`` numbers of 32 bits, null for none; and which are none.

    >>> vectors, bad = vectors_of(pa.array(["3|4", "[0, 2]", "", "1|2|3", "1|x"]), 2)
    >>> [value and np.frombuffer(value, "<f4").tolist() for value in vectors.to_pylist()]
    [[3.0, 4.0], [0.0, 2.0], None, None, None]
    >>> bad.tolist()
    [False, False, False, True, True]
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    is_bad = np.zeros(len(values), bool)
    lists = values
    if is_words(values.type):
        text, is_bad = decoded_text(values)
        plain = pc.replace_substring_regex(text, r"[\[\]\s]", "")
        lists = pc.split_pattern(pc.replace_substring(plain, ",", "|"), "|")
    flat, offsets = flat_lists(lists)
    missing = np.asarray(lists.is_null())
    fits = (np.diff(offsets) == size) & ~missing
    matrix = np.zeros((len(lists), size), "<f4")
    if len(lists):
        rows = _numbers_of_32_bits(flat)
        if fits.all():
            matrix = rows.reshape(-1, size)
        elif fits.any():
            matrix[fits] = rows[offsets[:-1][fits][:, np.newaxis] + np.arange(size)]
    good = fits & np.isfinite(matrix).all(axis=1)
    data = pa.py_buffer(np.ascontiguousarray(matrix, "<f4"))
    stored = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4 * size), len(lists), [None, data])
    if not good.all():
        stored = pc.if_else(pa.array(good), stored, pa.scalar(None, pa.binary(4 * size)))
    return stored, is_bad | (~missing & ~good)


def _numbers_of_32_bits(flat: pa.Array) -> npt.NDArray[np.float32]:
    """Numbers, NaN where there is none: what 32 bits do not hold is infinite."""
    if pa.types.is_floating(flat.type) and not flat.null_count:
        with np.errstate(over="ignore"):
            plain: npt.NDArray[np.float32] = np.asarray(flat).astype("<f4", copy=False)
        return plain
    numbers, _ = numbers_of(flat)
    return np.asarray(numbers.fill_null(np.nan)).astype("<f4")


def flat_lists(lists: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the values of lists one after the other, and where each list begins; null is empty."""
    if pa.types.is_fixed_size_list(lists.type):
        lists = pc.cast(lists, pa.list_(lists.type.value_type))
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    return lists.flatten(), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def matrix_of(stored: pa.Array, size: int) -> npt.NDArray[np.float32]:
    """The vectors of stored bytes, each brought to length 1: [rows, size].

    >>> matrix_of(vectors_of(pa.array(["3|4", ""]), 2)[0], 2).round(1).tolist()[1]
    [0.0, 0.0]

    One of zeros stays as it is, and where there is none are zeros.
    """
    filled = stored.fill_null(bytes(4 * size))
    rows = np.frombuffer(b"".join(filled.to_pylist()), "<f4").reshape(-1, size).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float32)


def lists_of(values: pa.Array, separator: str) -> tuple[pa.Array, Mask]:
    r"""Read lists of keys as text with a separator between them; and which are not UTF-8.

    >>> lists, bad = lists_of(pa.array(["Drama| Crime", "", None]), "|")
    >>> lists.to_pylist(), bad.tolist()
    (['Drama\x1fCrime', '', ''], [False, False, False])
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not is_list(values.type):
        text, is_bad = decoded_text(values)
        distinct = text.fill_null("").dictionary_encode()
        lists = pc.split_pattern(distinct.dictionary, separator)
        return _joined(lists).take(distinct.indices), is_bad
    return _joined(values), np.zeros(len(values), bool)


def _joined(lists: pa.Array) -> pa.Array:
    flat, offsets = flat_lists(lists)
    if not is_words(flat.type):
        flat = pc.cast(flat, pa.string())
    keys, _ = decoded_text(flat)
    given = np.asarray(keys.is_valid())
    before = np.concatenate([[0], np.cumsum(given)]).astype(np.int64)
    starts = pa.array(before[offsets], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(starts, keys.drop_null()), SEPARATOR)


def keys_of_lists(
    stored: pa.Array, longest: int, separator: str = SEPARATOR
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the keys of stored lists, the first ``longest`` of each, and whose row each is."""
    lists = pc.split_pattern(stored, separator)
    flat, offsets = flat_lists(lists)
    rows = np.repeat(np.arange(len(stored)), np.diff(offsets))
    positions = np.arange(len(flat)) - offsets[rows]
    kept = (positions < longest) & np.asarray(pc.greater(pc.binary_length(flat), 0))
    return flat.filter(pa.array(kept)), rows[kept]


def category_of(values: pa.Array) -> pa.Array:
    """Decimal numbers as text that is one for each number: 12.50 is 12.5; other text as it is.

    >>> category_of(pa.array(["12.50", "x", "", "1.20e1"])).to_pylist()
    [b'12.5', b'x', b'', b'12']
    >>> category_of(pa.array([12.5, 12.0, None])).to_pylist()
    ['12.5', '12', None]
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_integer(values.type):
        return pc.cast(values, pa.string())  # all digits of them
    if pa.types.is_decimal(values.type):
        texts = category_of(pc.cast(values, pa.string()))  # these have more digits than a float
        return pc.if_else(values.is_valid(), pc.cast(texts, pa.string()), None)
    if not is_words(values.type):
        return _texts(values)
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        values = values.fill_null("")  # among bytes a null is what was not valid UTF-8
    distinct = pc.cast(values, pa.binary()).dictionary_encode()
    words = pa.array([_canonical(word) for word in distinct.dictionary.to_pylist()], pa.binary())
    return words.take(distinct.indices)


def _texts(values: pa.Array) -> pa.Array:
    """Numbers as the shortest text that no other of their own width has."""
    numbers, _ = numbers_of(values, largest=LARGEST_OF_64_BITS)
    distinct = numbers.dictionary_encode()
    plain = distinct.dictionary
    if pa.types.is_float32(values.type):
        plain = pc.cast(plain, pa.float32())
    words = [_digits(word) for word in pc.cast(plain, pa.string()).to_pylist()]
    return pa.array(words, pa.string()).take(distinct.indices)


def _digits(word: str) -> str:
    """A whole number as its digits, however many, and as 0 where it is -0."""
    if word == "-0":
        return "0"
    if "e+" in word:
        return f"{Decimal(word):f}"
    return word


def _canonical(word: bytes) -> Any:
    is_decimal = any(sign in word for sign in (b".", b"e", b"E"))
    if not is_decimal:
        return b"0" if word == b"-0" else word
    values = pa.array([word], pa.binary())
    numbers, bad = numbers_of(values, largest=LARGEST_OF_64_BITS)
    if bad[0] or not numbers[0].is_valid:
        return word
    digits, stated = str(_texts(values)[0]), Decimal(word.decode())
    if Decimal(digits) == stated:
        return digits.encode()
    text = f"{stated:f}"  # more digits than 64 bits hold: all of them tell numbers apart
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
