"""schema.pbtxt beside a spec: it says what the spec says, line by line, or it is refused."""

from __future__ import annotations

import re

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.column_record import from_record, same_schema, to_record
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.merlin_import import Schema
from merlin_sim.schemas.merlin_schema import with_properties
from merlin_sim.schemas.schema_file import read_schema, write_schema


def changed(line: str) -> list[str]:
    """The line with each of its numbers, and each of its words, another one."""
    numbers = [m.span() for m in re.finditer(r"\d+", line)]
    words = [m.span() for m in re.finditer(r"(?<![\\\w])[A-Za-z_]{2,}", line)]
    texts = [line[:start] + str(int(line[start:end]) + 1) + line[end:] for start, end in numbers]
    return texts + [line[:start] + "x" + line[start + 1 :] for start, _ in words]


def without_tags_of_its_own(schema: Schema, whole: Schema) -> Schema:
    """A schema without tags that the other one lacks: they are free."""
    columns = []
    for column in schema:
        record = to_record(column)
        known = to_record(whole[column.name])["tags"]
        columns.append(from_record({**record, "tags": sorted({*record["tags"]} & {*known})}))
    return Schema(columns)


def variants(text: str) -> dict[str, str]:
    """Every line of a schema deleted, written twice, and changed; those with bytes only deleted.

    Of two features of one kind the first one's.
    """
    lines = text.splitlines()
    found, is_second = {}, False
    for number, line in enumerate(lines, start=1):
        if line == "feature {":
            is_second = "cat_id" in lines[number]
        if is_second:
            continue
        before, after = lines[: number - 1], lines[number:]
        options = [[], [line, line], *([other] for other in changed(line) if len(line) < 80)]
        for option in options:
            name = f"line {number}, {line.strip():.40}: {option}"
            found[name] = "\n".join(before + option + after)
    return found


@pytest.mark.slow
def test_each_line_is_held_against_the_spec(directory):
    file = directory / "schema.pbtxt"
    whole, text = DatasetDirectory.open(directory).schema, file.read_text()
    refused = []
    for name, variant in variants(text).items():
        file.write_text(variant)
        try:
            schema = DatasetDirectory.open(directory, check_files=False).schema
        except MerlinSimError as error:
            assert "schema.pbtxt" in str(error), name
            refused.append(str(error))
        else:
            assert same_schema(without_tags_of_its_own(schema, whole), whole), name
    assert len(refused) > 130
    messages = "\n".join(refused)
    for said in (
        "item_id_trgt: expected cardinality 50, as in",
        "table (domain name) item_id, as in",
        "the tags target_item_features, as in",
        "item_id_neg: expected channel negative_history",
        "label: expected dtype int8, as in",
        "value_count has max",  # Merlin never looks at it; others do
    ):
        assert said in messages


def test_the_order_of_the_columns_is_the_specs_and_what_is_more_is_kept(directory):
    schema = read_schema(directory / "schema.pbtxt")
    columns = [with_properties(column, {"owner": "books"}) for column in schema]
    write_schema(Schema(columns[::-1]), directory / "schema.pbtxt")
    opened = DatasetDirectory.open(directory).schema
    assert opened.column_names == schema.column_names
    assert {column.properties["owner"] for column in opened} == {"books"}
