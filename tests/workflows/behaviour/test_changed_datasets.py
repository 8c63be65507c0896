"""Datasets that somebody changed: what cannot be of a fitted workflow is refused by its row."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from attack.damage import TREE_CHANGES
from hypothesis import given, settings

from merlin_sim.foundation.digest import DIGEST, sha256, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.fitted_record import number_records
from merlin_sim.workflows.behaviour_columns import ROLE
from merlin_sim.workflows.ops.saving import load_workflow
from merlin_sim.workflows.preprocess.earlier_histories import COUNTED, FITTED, TAKEN_SO_FAR
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

FEATURES = {
    "features": {
        "price": {"type": "number", "of": "item", "operators": ["Normalize"]},
        "weight": {"type": "number", "of": "item", "buckets": [2.0, 4.0]},
        "genres": {"type": "list", "of": "item", "longest": 3},
        "look": {"type": "vector", "of": "item", "size": 2},
    },
    "encodings": {"what": ["recency"]},
    "timestamp_unit": "s",
}


@pytest.fixture(scope="module")
def dataset(run_cli, tmp_path_factory):
    directory = tmp_path_factory.mktemp("changed")
    random = np.random.default_rng(0)
    who, what = random.integers(0, 20, 300), random.integers(0, 25, 300)
    log = {
        "who": [f"u{number}" for number in who],
        "what": [f"i{number}" for number in what],
        "when": np.arange(300) * 9000,
        "brand": [f"b{number % 8}" for number in what],
        "price": what / 2,
        "weight": what % 6,
        "genres": [[f"g{number % 3}", f"g{number // 10}"] for number in what],
        "look": [[1.0, float(number)] for number in what],
    }
    pd.DataFrame(log).to_parquet(directory / "log.parquet")
    (directory / "features.yaml").write_text(yaml.safe_dump(FEATURES))
    result = run_cli(
        "preprocess", "log", directory / "log.parquet", "--output_path", directory / "dataset",
        "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
        "--item_feature_columns", "brand", "--features", directory / "features.yaml",
        "--shortest_sequence_for_user", 2, "--scheduler", "single",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return directory / "dataset"


@pytest.fixture
def copy(dataset, tmp_path):
    """The fitted state and nothing else."""
    for name in ("categories", "history"):
        shutil.copytree(dataset / name, tmp_path / name)
    shutil.copy(dataset / "workflow.json", tmp_path)
    return tmp_path


def edit(directory, change):
    """Change what a workflow says, as if it had been written so."""
    document = json.loads((directory / "workflow.json").read_text())
    document.pop(DIGEST)
    change(document)
    (directory / "workflow.json").write_text(with_own_digest(document), errors="surrogatepass")


def of_histories(part, name, **values):
    """Other values in what GroupHistories is made of (config) or learned."""

    def change(document):
        operators = document["operators"]
        histories = next(one for one in operators if one["operator"] == "GroupHistories")
        histories[part][name].update(values)

    return change


def with_spread(value):
    """Another spread of the prices."""

    def change(document):
        number_records(document)["price"][0]["learned"]["stds"] = value

    return change


DOCUMENTS = [
    (lambda d: d.update(format=8), "expected a workflow of format 9, found format 8"),
    (lambda d: d.update(extra=1), "extra: expected one of the keys history, grown_from, got the"),
    (lambda d: d.pop("history"), "expected a workflow of a behaviour log"),
    (lambda d: d["operators"][-1].update(operator="Categorify"), "a workflow of a behaviour log"),
    (lambda d: d["files"].pop("categories/brand.parquet"), "SHA-256 of categories/brand.parquet"),
    (lambda d: d["history"].update(files={"../x": "0"}), "names of files, .* found '../x'"),
    (lambda d: d["history"].update(longest="6"), "history.longest: expected a whole number, got"),
    (of_histories("config", "rules", seed="1"), "rules: seed: expected a whole number, got the te"),
    (of_histories("config", "rules", validation_from="3"), "json: .*`validation_from` needs"),
    (of_histories("config", "rules", pad=None), "rules: pad: expected true or false, got"),
    (of_histories("config", "columns", user="../x"), "should not be empty, contain `/`"),
    (of_histories("learned", "sizes", brand="3"), "sizes.brand: expected a whole number"),
    (of_histories("learned", "sizes", brand=99), "brand.parquet, column 'id': expected 99 values"),
    *(
        (with_spread(value), "stds of 'price': expected a finite number, found")
        for value in ("wide", {}, {"price": float("nan")})
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), DOCUMENTS)
def test_a_changed_document_is_refused(copy, change, message):
    edit(copy, change)
    with pytest.raises(MerlinSimError, match=message):
        FittedWorkflow.load(copy)


@pytest.mark.slow
@settings(max_examples=15)
@given(TREE_CHANGES)
def test_whatever_a_workflow_says_is_loaded_or_refused(dataset, tmp_path_factory, damage):
    copy = tmp_path_factory.getbasetemp() / "damaged workflow"
    if not copy.exists():
        shutil.copytree(dataset, copy)
    shutil.copy(dataset / "workflow.json", copy)
    edit(copy, damage.change)
    for load in (FittedWorkflow.load, load_workflow):
        try:
            load(copy)
        except MerlinSimError as error:
            assert str(copy) in str(error)


def at(index, cell):
    """The change of a column that puts ``cell`` into a row."""

    def change(column):
        cells = column.to_pylist()
        cells[index] = cell
        return pa.array(cells, column.type)

    return change


def as_type(name):
    return lambda column: column.cast(name)


def all_of(cell):
    return lambda column: pa.array([cell] * len(column))


VOCABULARIES = [
    ("brand", "id", lambda column: pa.concat_arrays([column] * 2), "[0-9]+ values, found"),
    ("brand", "id", at(0, 9), "expected 1 to"),
    ("who", "id", at(1, 1), "expected each value once, found 1 again"),
    ("brand", "id", None, "expected [0-9]+ values, found 0"),
    ("brand", "key", at(0, None), "expected a value in each row, found null"),
    ("who", "key", at(0, "u1"), "expected each value once, found '.+' again"),
    ("what", "count", None, "expected [0-9]+ values, found"),
    ("what", "count", at(0, -1), "expected 0 to [0-9,]+, found -1"),
    ("what", "weight", at(0, 2**62), f"expected 1 to [0-9]+, found {2**62:,}"),
    ("what", "brand", as_type("float64"), "expected whole numbers, found"),
    ("what", "genres", at(0, [1, -1]), "expected 1 to [0-9]+, found -1"),
    ("what", "genres", at(0, [1, 1, 1, 1]), "lengths of lists: expected 0 to 3, found 4"),
    ("what", "genres", all_of(1), "a list in each row, found"),
    ("what", "look", all_of([1.0]), "expected 2 to 2, found 1"),
    ("what", "price", at(0, None), "expected a value in each row, found null"),
    ("what", "price", all_of(True), "expected numbers, found"),
    ("what", "what_day_before", all_of(2**40), "expected -2,147,483,648 to 2,147,483,647"),
    ("what", "what_day_before", all_of(0.5), "whole numbers"),
]
HISTORIES = [
    (ROLE, as_type("string"), "expected whole numbers, found text"),
    (next(iter(COUNTED)), at(9, -1), "expected 0 to [0-9,]+, found -1"),
    (FITTED, at(9, 2), "expected 0 to 1, found 2"),
    (TAKEN_SO_FAR, at(9, 2**62), f"expected 0 to [0-9,]+, found {2**62:,}"),
    ("brand", lambda brands: pa.nulls(len(brands), brands.type), "expected a value in each row"),
    *((name, at(9, None), "expected a value in each row, found null") for name in ("who", ROLE)),
]


def forge(path, name, change):
    """Change a column of a file, or take it out."""
    table = pq.read_table(path)
    columns = {each: table[each].combine_chunks() for each in table.column_names}
    if change is None:
        del columns[name]
    else:
        changed = change(columns[name])
        columns = {each: column[: len(changed)] for each, column in columns.items()}
        if len(changed) > len(table):
            columns = {each: pa.concat_arrays([column] * 2) for each, column in columns.items()}
        columns[name] = changed
    pq.write_table(pa.table(columns), path)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name", "change", "message"), VOCABULARIES)
def test_a_forged_vocabulary_is_refused_under_any_digest(copy, table, name, change, message):
    file = f"categories/{table}.parquet"
    forge(copy / file, name, change)
    edit(copy, lambda document: document["files"].update({file: sha256(copy / file)}))
    with pytest.raises(MerlinSimError, match=f"{table}.parquet, column '{name}'.*{message}"):
        FittedWorkflow.load(copy)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change", "message"), HISTORIES)
def test_a_forged_history_is_refused_under_any_digest(copy, name, change, message):
    path = next((copy / "history").iterdir())
    forge(path, name, change)
    edit(copy, lambda document: document["history"]["files"].update({path.name: sha256(path)}))
    kept = FittedWorkflow.load(copy).kept
    with pytest.raises(MerlinSimError, match=re.escape(f"{path}, column {name!r}: ") + message):
        kept.read(path, [name])
