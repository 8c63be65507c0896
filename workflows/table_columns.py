"""The columns of a user's log: checked, and brought to the form that the workflow takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.exceptions import MerlinSimError
from ..schemas.parquet import type_in_words
from .behaviour_columns import SECONDS, BehaviourColumns
from .csv_file import CsvReader, how_to_convert
from .feature import LEVELS
from .fitted_numbers import NOTHING_LEARNED, FittedNumbers
from .raw_features import ReadFeature, fits_feature, read_feature, read_unfit
from .raw_values import LARGEST_OF_64_BITS, category_of, decoded, numbers_of
from .text_lines import BadRow
from .times import DATE, is_text, seconds_of, times_of, whole_numbers

NUMBER_HINT = "`--features` names columns of numbers; its type `category` takes them as keys"


def decimal_problems(path: Path, names: list[str], columns: BehaviourColumns) -> list[str]:
    """Say which features of a CSV file's beginning hold decimal numbers and nothing else.

    Parquet has such columns as floating-point numbers, which cannot be keys either.
    """
    features = (*columns.user_features, *columns.item_features)
    asked = [n for n in features if n in names and n not in columns.features.columns]
    if not asked:
        return []
    with CsvReader(path, asked, []) as reader:
        batch = next((batch for batch, _ in reader.batches()), None)
    if batch is None:
        return []
    return [
        f"{path}: column {name!r}: expected text or whole numbers, found decimal numbers such as "
        f"{example} ({NUMBER_HINT})."
        for name in asked
        if (example := _decimal_number(batch[name])) is not None
    ]


def _decimal_number(values: pa.Array) -> str | None:
    """The first decimal number of a column that holds numbers alone."""
    words = pc.unique(values)
    numbers, bad = numbers_of(words, LARGEST_OF_64_BITS)
    if bad.any() or not numbers.is_valid().to_numpy(zero_copy_only=False).any():
        return None
    is_decimal = np.array([b"." in word or b"e" in word.lower() for word in words.to_pylist()])
    if not is_decimal.any():
        return None
    return str(words[int(np.argmax(is_decimal))].as_py().decode())


LABEL_WORDS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
EXPECTED_LABEL = "0 or 1"


def check_types(schemas: Sequence[tuple[Path, pa.Schema]], columns: BehaviourColumns) -> None:
    """Refuse files, with all that is wrong, whose columns cannot be keys, times or features."""
    problems = []
    first: dict[str, tuple[Path, pa.DataType]] = {}
    made = [name for name in columns.features.columns if name != columns.timestamp]
    for path, schema in schemas:
        for name in columns.log:
            if name not in schema.names:
                found = ", ".join(schema.names)
                problems.append(f"{path}: expected a column {name!r}, found only {found}.")
                continue
            if schema.names.count(name) > 1:
                found = ", ".join(schema.names)
                problems.append(f"{path}: expected one column {name!r}, found {found}.")
                continue
            kind = schema.field(name).type
            fits, expected = _fits(name, kind, columns)
            if not fits:
                found = type_in_words(kind)
                problems.append(f"{path}: column {name!r}: expected {expected}, found {found}.")
                continue
            other = first.setdefault(name, (path, kind))
            is_key = name in columns.keyed and name not in (columns.label, columns.behaviour, *made)
            if is_key and _form(other[1]) != _form(kind):
                problems.append(
                    f"{path}: column {name!r}: expected {type_in_words(other[1])} as in "
                    f"{other[0]}, found {type_in_words(kind)}."
                )
    if problems:
        raise MerlinSimError("\n".join(problems))


def _fits(name: str, kind: pa.DataType, columns: BehaviourColumns) -> tuple[bool, str]:
    """Whether a column may be of a type, and what was expected of it."""
    if name == columns.timestamp:
        return _is_time(kind), "numbers or dates, or text of them"
    if name == columns.label:
        return can_be_label(kind), "0 and 1"
    for feature in columns.features:
        if feature.name == name:
            return fits_feature(feature, kind)
    expected = "text or whole numbers"
    is_feature = name in (*columns.user_features, *columns.item_features)
    if is_feature and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        expected += f" ({NUMBER_HINT})"
    return _is_key(kind), expected


def can_be_label(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold labels."""
    return any(test(kind) for test in (_is_key, pa.types.is_floating, pa.types.is_binary))


def _is_key(kind: pa.DataType) -> bool:
    return _form(kind) in (pa.string(), pa.int64())


def _is_time(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or is_text(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _form(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _form(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
        return pa.string()
    return pa.int64() if pa.types.is_integer(kind) else kind


def clean_columns(
    table: pa.Table,
    columns: BehaviourColumns,
    timestamp_kind: str,
    fitted: FittedNumbers = NOTHING_LEARNED,
    *,
    empty: bool = False,
) -> tuple[pa.Table, list[BadRow]]:
    """Bring a table, that of CSV as bytes, to the workflow's form: its good rows, and the bad ones.

    Keys become text or int64, without nulls. A number of which operators make none is bad. Where it
    is to be ``empty``, it has no rows, and the types that a CSV file gets.
    """
    if empty:
        table = pa.table({name: pa.array([], pa.binary()) for name in columns.log})
    good = np.ones(table.num_rows, bool)
    reasons: dict[int, str] = {}
    cleaned: dict[str, pa.Array] = {}
    made = columns.features.columns
    bucketed = {n.name for of in LEVELS for n in columns.features.bucketed(of)}

    def refuse(name: str, bad: npt.NDArray[np.bool_], expected: str) -> None:
        for row in np.flatnonzero(bad & good):
            found = _shown(table[name][int(row)])
            reasons[int(row)] = f"{name!r}: expected {expected}, found {found}"
        good[bad] = False

    for name in columns.keyed:
        values = table[name].combine_chunks()
        if name == columns.timestamp:
            column, expected = times_of(values, timestamp_kind)
        elif name == columns.label:
            column, expected = labels_of(values), EXPECTED_LABEL
        elif name == columns.behaviour:
            column, expected = pc.cast(_key(values, None), pa.string()), "a behaviour"
        elif name in made and name in bucketed:
            continue  # a number that buckets make an id of
        else:
            is_feature = name in (*columns.users[1:], *columns.item_features)
            values = category_of(values) if name in made else values
            column, expected = _key(values, f"no_{name}" if is_feature else None), "a value"
        refuse(name, np.asarray(column.is_null()), expected)
        cleaned[name] = column
    for read in _read_features(table, columns, timestamp_kind, fitted):
        refuse(read.name, read.bad, read.expected)
        cleaned |= read.stored
    rows = pa.table(cleaned)
    if not good.all():
        rows = rows.filter(pa.array(good))
    return rows, [BadRow(row + 1, reason) for row, reason in sorted(reasons.items())]


def _read_features(
    table: pa.Table, columns: BehaviourColumns, timestamp_kind: str, fitted: FittedNumbers
) -> Iterator[ReadFeature]:
    """Read what is no key; the timestamp once for all that is made of it."""
    if not columns.features:
        return
    values = table[columns.timestamp].combine_chunks()
    unit = columns.features.timestamp_unit or "s"
    seconds, _ = seconds_of(values, None if timestamp_kind == DATE else unit)
    if columns.features.needs_seconds:
        no_row = np.zeros(table.num_rows, bool)
        yield ReadFeature(columns.timestamp, {SECONDS: seconds.fill_null(0.0)}, no_row, "")
    for feature in columns.features:
        given = None if feature.name != columns.timestamp else seconds
        read = read_feature(feature, table[feature.name].combine_chunks(), given)
        yield read
        unfit = read_unfit(feature, read, fitted)
        if unfit is not None:
            yield unfit


def _key(values: pa.Array, otherwise: str | None) -> pa.Array:
    """A column of keys; null where there is none, ``otherwise`` for text without a value."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_integer(values.type):
        return whole_numbers(values)
    is_bytes = pa.types.is_binary(values.type)
    # Among bytes a null is what was not valid UTF-8: it has no value, so it stays null.
    is_missing = pa.scalar(False) if is_bytes else values.is_null()
    # Text from parquet is checked as bytes too: it need not be UTF-8.
    values = decoded(values if is_bytes else pc.cast(pc.cast(values, pa.string()), pa.binary()))
    without = pc.or_(pc.equal(pc.binary_length(values), 0).fill_null(False), is_missing)
    return pc.if_else(without, pa.scalar(otherwise, pa.string()), values)


def labels_of(values: pa.Array) -> pa.Array:
    """Labels as 0 and 1; null where there is neither."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_boolean(values.type):
        return pc.cast(values, pa.int8())
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        is_label = pc.or_(pc.equal(values, 0), pc.equal(values, 1))
        return pc.cast(pc.if_else(is_label, values, None), pa.int8())
    if not pa.types.is_binary(values.type):
        values = pc.cast(values, pa.binary())
    words = pc.utf8_lower(pc.utf8_trim_whitespace(decoded(values)))
    known = pa.array(list(LABEL_WORDS), pa.string())
    found = pa.array(list(LABEL_WORDS.values()), pa.int8())
    return found.take(pc.index_in(words, known))


def _shown(value: Any) -> str:
    """A value as a message shows it; of text that is none, how a file of it becomes some."""
    is_of_csv = pa.types.is_binary(value.type)
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        value = value.cast(pa.binary())  # it may not be valid UTF-8
    plain = value.as_py()
    if isinstance(plain, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            plain = plain.decode("utf-8")
    shown = "nothing" if plain in (None, b"", "") else f"{plain!r:.60}"
    if is_of_csv and isinstance(plain, bytes):
        shown += f", which is not UTF-8 ({how_to_convert(plain)})"
    return shown
