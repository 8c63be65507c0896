"""JSON lines become an arrow table: fast where all is well, line by line where it is not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from .bad_rows import BadRow

ARROW_BLOCK = 4 << 20
SHOWN = 60


def read_json_lines(text: bytes, schema: pa.Schema) -> tuple[pa.Table, list[BadRow]]:
    """Read the fields of ``schema`` (strings and int64) from each line.

    Arrow reads the block in one go. What it refuses, or might have read otherwise than line by
    line (a null, two objects on a line, an object over two lines, bytes that are not UTF-8), is
    read again one line at a time; that reading decides.

    Returns:
        The good rows, and the bad ones with their lines in ``text``.
    """
    if not text or text.isspace():
        return schema.empty_table(), []
    table = _read_with_arrow(text, schema)
    return (table, []) if table is not None else _read_line_by_line(text, schema)


def _read_with_arrow(text: bytes, schema: pa.Schema) -> pa.Table | None:
    # One object a line, as far as bytes tell: each line ends in a brace, the next begins with one.
    breaks = text.count(b"\n") - text.endswith(b"\n")
    if text[:1] != b"{" or text.count(b"}\n{") + text.count(b"}\r\n{") != breaks:
        return None
    try:
        pa.array([text], pa.large_binary()).cast(pa.large_string())
        table = pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(block_size=ARROW_BLOCK),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != breaks + 1 or table.schema != schema:
        return None
    for column in table.columns:
        if column.null_count:
            return None
        if pa.types.is_string(column.type) and pc.min(pc.binary_length(column)).as_py() == 0:
            return None
    return table


def _read_line_by_line(text: bytes, schema: pa.Schema) -> tuple[pa.Table, list[BadRow]]:
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    bad = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        values = _read_line(line, schema)
        if isinstance(values, str):
            bad.append(BadRow(number, values))
            continue
        for name, value in zip(schema.names, values, strict=True):
            columns[name].append(value)
    return pa.table(columns, schema), bad


def _read_line(line: bytes, schema: pa.Schema) -> list[Any] | str:
    """The fields of a line, or what is wrong with it."""
    try:
        fields = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"expected UTF-8, found byte 0x{line[error.start]:02x} at {error.start}"
    except (ValueError, RecursionError) as error:
        return f"expected one JSON object, found {shown(line)} ({error})"
    if not isinstance(fields, dict):
        return f"expected one JSON object, found {shown(line)}"
    for field in schema:
        if field.name not in fields:
            return f"expected the key {field.name!r}, found only {', '.join(map(repr, fields))}"
        problem = _check_value(field, fields[field.name])
        if problem:
            return problem
    return [fields[name] for name in schema.names]


def _check_value(field: pa.Field, value: Any) -> str | None:
    if pa.types.is_string(field.type):
        if isinstance(value, str) and value:
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                return f"{field.name!r}: expected text, found a lone surrogate in {value!a:.60}"
            return None
        return f"{field.name!r}: expected a string, not empty, found {value!r:.60}"
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return None
    return f"{field.name!r}: expected a whole number, found {value!r:.60}"


def shown(line: bytes) -> str:
    """The beginning of a line, as a message shows it.

    >>> shown(b"abc")
    "'abc'"
    """
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
