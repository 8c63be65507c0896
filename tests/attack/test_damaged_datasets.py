"""A damaged dataset is refused with its file's name, or fed as arrow reads it: nothing between."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from .apart import Lost, apart
from .damage import ANY_NUMBER, CONTENT_DAMAGES, PAGE_CHANGES
from .feeding import MAPPINGS, read_dataset
from .good_datasets import DOCUMENTS, FORMS, SPEC, Good, good_datasets, model_of
from .judged import answer, share
from .table_damage import TABLE_DAMAGES
from .truth import Truth

pytestmark = pytest.mark.slow


def read_truths(directory: Path) -> dict[str, Truth]:
    return {mapping: Truth(directory, mapping) for mapping in MAPPINGS}


def judge(directory: Path, form: str, are_tables: bool = False) -> bool:
    """Read a dataset and compare; whether it was fed without a warning.

    Args:
        directory: The dataset.
        form: Whose model reads it.
        are_tables: Whether its tables alone were changed, by an arrow that wrote good files.
    """
    found = answer(read_dataset, directory, model_of(form), names=(directory,))
    try:
        truths = read_truths(directory)
    except Exception as error:  # it cannot be understood
        assert found.refusal or found.warned or not (directory / SPEC).exists(), error
        return False
    faults = [fault for truth in truths.values() for fault in truth.faults]
    if found.refusal is None:
        assert not faults, faults[0]
        for mapping, truth in truths.items():
            truth.assert_fed(found.result[mapping])
    elif are_tables and not any(truth.unclear for truth in truths.values()):
        assert faults, found.refusal
        rows = [row for truth in truths.values() for row in truth.rows]
        if len(rows) == len(faults):
            said = {int(number) for number in re.findall(r"rows? (\d+)", found.refusal)}
            assert any(row in said and name in found.refusal for name, row in rows), found.refusal
    return found.refusal is None and not found.warned


def judge_apart(directory: Path, *arguments: Any) -> None:
    try:
        apart(judge, directory, *arguments)
    except Lost:
        try:
            apart(read_truths, directory)
        except Exception:
            reject()
        raise


def written(good: Good, parent: str) -> Path:
    directory = Path(parent) / "d"
    try:
        good.write(directory)
    except (pa.ArrowException, OSError):  # arrow writes no such table
        reject()
    return directory


@share(40, suite=15)
@given(good_datasets(), st.lists(st.tuples(ANY_NUMBER, TABLE_DAMAGES), min_size=1, max_size=2))
def test_changed_tables(good, damages):
    names = list(good.tables)
    for number, damage in damages:
        name = names[number % len(names)]
        good.tables[name] = damage.made(good.tables[name])
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        judge_apart(written(good, parent), good.form, True)


@share(40, suite=15)
@given(good_datasets(), st.lists(st.tuples(ANY_NUMBER, PAGE_CHANGES), min_size=1, max_size=2))
def test_changed_bytes_of_parquet(good, damages):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        directory = written(good, parent)
        for number, damage in damages:
            damage.make(directory / list(good.tables)[number % len(good.tables)])
        judge_apart(directory, good.form)


@share(60, suite=30)
@given(good_datasets(), st.sampled_from([SPEC, *DOCUMENTS]), CONTENT_DAMAGES, ANY_NUMBER)
def test_a_changed_description(good, document, damage, column):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        directory = written(good, parent)
        damage.make(directory / document)
        if judge(directory, good.form):
            an_id_beyond_its_table_is_still_found(directory, good.form, column)


def an_id_beyond_its_table_is_still_found(directory: Path, form: str, number: int) -> None:
    """Whatever one description says otherwise of a dataset that is fed: the others know it."""
    of_ids = [name for name, column in FORMS[form].items() if column.largest is not None]
    path, name = directory / "train/part.0.parquet", of_ids[number % len(of_ids)]
    table = pq.read_table(path)
    cells = table[name].to_pylist()
    row = next((row for row, cell in enumerate(cells) if cell not in (None, [])), None)
    assume(row is not None)
    beyond = FORMS[form][name].largest + 1
    cells[row] = [*cells[row][:-1], beyond] if isinstance(cells[row], list) else beyond
    made = pa.array(cells, table.schema.field(name).type)
    pq.write_table(table.set_column(table.column_names.index(name), name, made), path)
    found = answer(read_dataset, directory, model_of(form), names=(directory,))
    assert found.refusal is not None, f"{name}: {beyond} is fed"
