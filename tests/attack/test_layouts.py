"""Dataset directories in any legal layout are fed as arrow reads them."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .feeding import MAPPINGS, read_dataset
from .good_datasets import FORMS, good_datasets, model_of
from .judged import share
from .truth import Truth, is_list


class Change(NamedTuple):
    """Another legal form of a table; the column is counted around those that are there."""

    how: str
    column: int

    def made(self, table: pa.Table, form: str) -> pa.Table:
        names = list(FORMS[form])
        name = names[self.column % len(names)]
        index = table.column_names.index(name)
        kind = table.schema.field(index).type
        element = kind.value_type if is_list(kind) else kind
        if self.how == "order":
            return table.select(sorted(table.column_names, key=lambda n: n[self.column % 3 :]))
        if self.how == "more columns":
            ids = pa.array(np.arange(len(table)))
            spare = pa.StructArray.from_arrays([ids], [name])
            return table.add_column(0, f"{name}.{len(table.column_names)}", spare)
        if self.how == "32 bits" and pa.types.is_integer(element):
            element = pa.int32()
        inner = pa.field("element", element, nullable=self.how != "required")
        if is_list(kind):
            kind = pa.large_list(inner) if self.how == "large lists" else pa.list_(inner)
        else:
            kind = element
        field = pa.field(name, kind, nullable=self.how != "required")
        return table.set_column(index, field, table.column(index).cast(kind))


HOWS = ["order", "more columns", "32 bits", "required", "large lists"]
CHANGES = st.builds(Change, st.sampled_from(HOWS), st.integers(0, 20))


@pytest.mark.slow
@share(20, suite=6)
@given(good_datasets(), st.lists(st.tuples(st.integers(0, 2), CHANGES), max_size=6))
def test_any_legal_layout_is_fed_as_arrow_reads_it(good, changes):
    for number, change in changes:
        name = list(good.tables)[number]
        good.tables[name] = change.made(good.tables[name], good.form)
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        directory = Path(parent) / "d"
        good.write(directory)
        found = read_dataset(directory, model_of(good.form))
        for mapping in MAPPINGS:
            truth = Truth(directory, mapping)
            assert not truth.faults
            truth.assert_fed(found[mapping])
