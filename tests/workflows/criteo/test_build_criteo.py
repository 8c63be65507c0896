"""From day files to a dataset directory, beside what pandas makes of the same lines."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from merlin.core import dispatch
from merlin.io import Dataset
from stand_in import put_gpu_into

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.hashing import mix_32_arrays
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.layout_names import TEST, TRAIN, VALIDATION
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.criteo import build_criteo
from merlin_sim.workflows.criteo.build_criteo import (
    CriteoBuilder,
    DaySplit,
    Span,
)
from merlin_sim.workflows.criteo.click_graph import CriteoRules, load_clicks
from merlin_sim.workflows.criteo.criteo_columns import (
    COLUMNS,
    KEY_COLUMNS,
    NUMBER_COLUMNS,
    parse_thresholds,
)
from merlin_sim.workflows.criteo.criteo_log import find_days
from merlin_sim.workflows.ops.saving import save_workflow
from merlin_sim.workflows.schedulers import SingleProcess
from merlin_sim.workflows.synthetic.click_days import PlantedClicks, synthesize_days
from merlin_sim.workflows.text_lines import SKIP

ROWS = 400
NAMES = ("label", *NUMBER_COLUMNS, *KEY_COLUMNS)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    directory = tmp_path_factory.mktemp("raw")
    synthesize_days(directory, PlantedClicks(ROWS, most_keys=300, seed=4), 3)
    return directory


def builder_of(raw, threshold="3", fit_on="all", workers=1, **options):
    rules = CriteoRules(parse_thresholds(threshold), fit_on)
    return CriteoBuilder(find_days(raw), rules, scheduler=SingleProcess(workers), **options)


@pytest.fixture(scope="module")
def built(raw, tmp_path_factory):
    """Of files that are cut into many blocks, whose rows are counted by many tasks of threads."""
    output = tmp_path_factory.mktemp("built") / "data"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_lines, "BLOCK_BYTES", 40_000)
        patched.setattr(build_criteo, "ROWS_PER_COUNT", 500)
        summary = builder_of(raw, workers=3).build(output)
    assert len(DatasetDirectory.open(output).files("train")) > 4
    return output, summary


def read_raw(raw, *days):
    frames = [
        pd.read_csv(raw / f"day_{day}", sep="\t", header=None, names=NAMES, dtype=str)
        for day in days
    ]
    return pd.concat(frames, ignore_index=True)


def read_rows(directory, mapping):
    files = DatasetDirectory.open(directory).files(mapping)
    return pd.concat([pq.read_table(file).to_pandas() for file in files], ignore_index=True)


def ids_of(directory, column):
    table = pq.read_table(directory / f"categories/{column}.parquet").to_pandas()
    return table.set_index("key")


def check_ids(directory, raw_rows, rows, counted, limit_of):
    """Every id follows from the counts and keys."""
    for column in KEY_COLUMNS:
        counts = counted[column].value_counts()
        kept = counts[counts >= limit_of(column)]
        table = ids_of(directory, column)
        assert set(table.index) == set(kept.index)
        assert sorted(table["id"]) == list(range(1, len(kept) + 1))
        by_id = table.sort_values("id")["count"]
        assert by_id.is_monotonic_decreasing and (by_id == kept[by_id.index]).all()
        # Those of equal counts follow a hash: neither blocks nor other keys change their ids.
        table = table.sort_values("id")
        keys = np.array([int(key, 16) for key in table.index], np.uint32)
        by_count_and_hash = np.lexsort((mix_32_arrays(keys), -table["count"]))
        assert by_count_and_hash.tolist() == list(range(len(table)))
        expected = raw_rows[column].map(table["id"]).fillna(0).astype(np.int32)
        np.testing.assert_array_equal(rows[column], expected)
        assert DatasetDirectory.open(directory).spec.feature_spec[column].cardinality == (
            len(kept) + 1
        )


def check_values(raw_rows, rows):
    np.testing.assert_array_equal(rows["label"], raw_rows["label"].astype(int))
    for column in NUMBER_COLUMNS:
        expected = np.log(raw_rows[column].astype(float) + 3).fillna(0)
        np.testing.assert_allclose(rows[column], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_rows_are_what_pandas_makes_of_them(raw, built):
    output, summary = built
    train, test = read_rows(output, "train"), read_rows(output, "test")
    validation = read_rows(output, "validation")
    assert list(train.columns) == list(COLUMNS)
    last = read_raw(raw, 2)
    check_values(read_raw(raw, 0, 1), train)
    check_values(last[: ROWS // 2], validation)
    check_values(last[ROWS // 2 :].reset_index(drop=True), test)
    everything = read_raw(raw, 0, 1, 2)
    check_ids(output, everything[: 2 * ROWS], train, everything, lambda column: 3)
    assert summary.rows == {"train": 2 * ROWS, "validation": ROWS // 2, "test": ROWS // 2}
    assert DatasetDirectory.open(output, model="dlrm").channels["categorical"] == [*KEY_COLUMNS]
    assert not (output / ".work").exists()


@pytest.mark.slow
def test_limits_by_column_and_counts_of_rows_that_train_alone(raw, tmp_path):
    output = tmp_path / "data"
    builder_of(raw, "2,3:20", "train", split=DaySplit(test_share=0.25)).build(output)
    everything = read_raw(raw, 0, 1, 2)
    trained = everything[:900]
    rows = read_rows(output, "train")
    check_ids(output, trained, rows, trained, lambda column: 20 if column == "cat_3" else 2)
    check_values(everything[900:].reset_index(drop=True), read_rows(output, "test"))
    assert "validation" not in DatasetDirectory.open(output).spec.source_spec


def test_the_spec_is_what_the_workflow_s_schema_says(built):
    output, summary = built
    dataset = DatasetDirectory.open(output)
    assert not dataset.spec.metadata  # nothing of the schema that a spec has no words for
    assert {n: f.dtype for n, f in dataset.spec.feature_spec.items()} == {
        "label": "int8",
        **dict.fromkeys(KEY_COLUMNS, "int32"),
        **dict.fromkeys(NUMBER_COLUMNS, "float32"),
    }
    assert {n: len(names) for n, names in dataset.channels.items()} == {
        "label": 1, "categorical": 26, "numerical": 13,
    }  # fmt: skip
    workflow, rules = load_clicks(output)
    assert rules == CriteoRules((3,) * 26, "all")
    assert summary.kept == {
        name: column.properties["domain"]["max"]
        for name, column in workflow.output_schema.column_schemas.items()
        if name in KEY_COLUMNS
    }


@pytest.mark.slow
def test_a_gpu_is_left_to_others(raw, built, tmp_path, monkeypatch):
    cudf = put_gpu_into(monkeypatch)
    monkeypatch.setattr(dispatch, "dask_cudf", SimpleNamespace(DataFrame=cudf.DataFrame))
    monkeypatch.setattr(cudf.DataFrame, "from_arrow", None)  # rows stay where they were read
    output = tmp_path / "data"
    builder_of(raw).build(output)
    for mapping in ("train", "test"):
        pd.testing.assert_frame_equal(read_rows(output, mapping), read_rows(built[0], mapping))


@pytest.mark.slow
def test_the_next_day_has_the_ids_of_the_days_before(raw, built, tmp_path):
    output, _ = built
    synthesize_days(tmp_path, PlantedClicks(ROWS, most_keys=900, seed=9), 1)
    fitted, rules = load_clicks(output)
    builder = CriteoBuilder(find_days(tmp_path), rules, DaySplit(test_share=0.5))
    builder.build(tmp_path / "next", fitted=fitted)
    rows, raw_rows = read_rows(tmp_path / "next", "train"), read_raw(tmp_path, 0)[: ROWS // 2]
    check_values(raw_rows, rows)
    for column in KEY_COLUMNS:
        expected = raw_rows[column].map(ids_of(output, column)["id"]).fillna(0)
        np.testing.assert_array_equal(rows[column], expected)
    theirs, ours = (
        json.loads((d / "workflow.json").read_text()) for d in (output, tmp_path / "next")
    )
    assert ours == theirs


@pytest.mark.slow
def test_a_changed_vocabulary_or_workflow_is_refused(built, tmp_path):
    output = shutil.copytree(built[0], tmp_path / "data")
    file = next(output.glob("workflow/*/unique.cat_7.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    with pytest.raises(MerlinSimError, match="cat_7.parquet: not the file that .* SHA-256 differs"):
        load_clicks(output)
    workflow = output / "workflow.json"
    text = workflow.read_text()
    workflow.write_text(text.replace('"fit_on": "all"', '"fit_on": "train"'))
    with pytest.raises(MerlinSimError, match="workflow.json: not as it was written"):
        load_clicks(output)
    workflow.write_text('{"format": 2, "log": "criteo"}')
    with pytest.raises(MerlinSimError, match="found format 2. .* fit it again with this one"):
        load_clicks(output)
    numbers = nvt.Workflow(["stock"] >> nvt.ops.LogOp())
    save_workflow(numbers.fit(Dataset(pd.DataFrame({"stock": [1.0]}))), tmp_path / "other")
    with pytest.raises(MerlinSimError, match="that `preprocess criteo` fitted, found another"):
        load_clicks(tmp_path / "other")
    rules = {"thresholds": 3, "fit_on": "all"}
    save_workflow(numbers, tmp_path / "other", log="criteo", rules=rules)
    with pytest.raises(MerlinSimError, match="rules.thresholds: expected a list, got the number 3"):
        load_clicks(tmp_path / "other")


@pytest.mark.slow
def test_a_bad_line_stops_the_run_or_is_left_out(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 20_000)
    spoiled = shutil.copytree(raw, tmp_path / "spoiled")
    lines = (spoiled / "day_1").read_text().splitlines()
    lines[320] = lines[320].replace("\t", "\tx", 1)
    (spoiled / "day_1").write_text("\n".join(lines) + "\n")
    said = r"day_1, line 321: num_0 \(column 2\): expected a whole"
    with pytest.raises(MerlinSimError, match=said):
        builder_of(spoiled).build(tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["spoiled"]
    summary = builder_of(spoiled, on_bad_rows=SKIP).build(tmp_path / "data")
    assert "day_1: 1 bad rows left out (line 321: num_0" in summary.lines()[0]
    kept = read_raw(raw, 0, 1).drop(ROWS + 320).reset_index(drop=True)
    check_values(kept, read_rows(tmp_path / "data", "train"))


def test_a_log_without_rows_is_refused(tmp_path):
    for day in range(2):
        (tmp_path / f"day_{day}").touch()
    with pytest.raises(MerlinSimError, match="expected rows, found none"):
        builder_of(tmp_path).build(tmp_path / "data")


FILES = ["day_0", "day_1", "day_2"]


@pytest.mark.parametrize(
    ("split", "rows", "expected"),
    [
        (DaySplit(), [10, 20, 5], [{TRAIN: (0, 10)}, {TRAIN: (0, 20)},
                                   {VALIDATION: (0, 2), TEST: (2, 5)}]),
        (DaySplit(("day_0",)), [10, 20, 5], [{VALIDATION: (0, 10)}, {TRAIN: (0, 20)},
                                             {TEST: (0, 5)}]),
        (
            DaySplit(validation_share=0.2, test_share=0.1), [60, 30, 10],
            [{TRAIN: (0, 60)}, {TRAIN: (0, 10), VALIDATION: (10, 30)}, {TEST: (0, 10)}],
        ),
        (DaySplit(test_share=0.25), [8], [{TRAIN: (0, 6), TEST: (6, 8)}]),
    ],
    ids=["as published", "files", "shares", "a share of one file"],
)  # fmt: skip
def test_rows_of_days_are_split(split, rows, expected):
    spans = split.spans(FILES[: len(rows)], rows)
    assert spans == [[Span(part, *rows) for part, rows in day.items()] for day in expected]


def test_what_cannot_be_is_refused():
    for options, said in (
        ({"test_share": 1.0}, "together below 1"),
        ({"validation_share": 0.5}, "needs a `test_share`"),
        ({"test_share": 0.5, "validation_files": ("day_0",)}, "Received: both"),
    ):
        with pytest.raises(MerlinSimError, match=said):
            DaySplit(**options)
    with pytest.raises(MerlinSimError, match="Nothing would be left to train on"):
        DaySplit().trained_on(["day_0"])
    with pytest.raises(MerlinSimError, match="should be some of day_0, day_1, day_2"):
        DaySplit(("day_7",)).trained_on(FILES)
    for text in ("", "x", "15,3", "15,26:1", "15,-1:2", "3:20", "15,3:x"):
        with pytest.raises(MerlinSimError, match="15,3:20, where 3 is cat_3"):
            parse_thresholds(text)
