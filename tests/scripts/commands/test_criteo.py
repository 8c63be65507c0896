"""`synthesize criteo` and `preprocess criteo` as a person runs them."""

from __future__ import annotations

import gzip

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.scripts import main
from merlin_sim.serving.encoder import open_encoder
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton import export


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    output = tmp_path_factory.mktemp("logs") / "raw"
    said = run(
        "data", "synthesize", "criteo", "--output", output, "--days", 2, "--rows_per_day", 300
    )
    assert "600 rows of 2 days" in said
    return output


def preprocess(raw, output, *options):
    arguments = ["--criteo_path", raw, "--output_path", output, "--scheduler", "single"]
    return run("preprocess", "criteo", *arguments, *options)


@pytest.fixture(scope="module")
def dataset(raw, tmp_path_factory):
    output = tmp_path_factory.mktemp("dataset") / "data"
    said = preprocess(raw, output, "--frequency_threshold", "5,3:20")
    assert "600 rows read" in said and "rows: train 300, validation 150, test 150" in said
    assert "fitted on: all rows (`--fit_on`)" in said and "nothing validates" not in said
    return output


def test_the_same_seed_writes_the_same_bytes_plain_or_gzipped(raw, tmp_path):
    options = ["--days", 2, "--rows_per_day", 300, "--gzip"]
    for name in ("one", "other"):
        run("data", "synthesize", "criteo", "--output", tmp_path / name, *options)
    one, other = (tmp_path / name / "day_1.gz" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert gzip.decompress(one.read_bytes()) == (raw / "day_1").read_bytes()


@pytest.fixture
def encoder(dataset, tmp_path, monkeypatch):
    """What makes requests of a servable; its model is left out."""
    monkeypatch.setattr(export, "save_served_model", lambda *_: None)
    opened = DatasetDirectory.open(dataset, model="dlrm")
    small = {"embedding_dim": 4, "bottom_mlp_dims": (4,), "top_mlp_dims": (4, 1)}
    made = export.export_model(build_model("dlrm", opened.schema, **small), opened, tmp_path / "s")
    return open_encoder(Servable.open(made, with_model=False))


def lines_of(raw):
    """The rows of test, the second half of the last day, as a caller sends them."""
    for line in (raw / "day_1").read_text().splitlines()[150:]:
        _, *values = line.split("\t")
        row = {f"num_{n}": int(x) if x else None for n, x in enumerate(values[:13])}
        yield row | {f"cat_{n}": key or None for n, key in enumerate(values[13:])}


@pytest.mark.slow
def test_lines_of_the_log_become_what_the_model_was_tested_on(raw, dataset, encoder):
    spec = DatasetDirectory.open(dataset, model="dlrm").spec
    sizes = {name: len(names) for name, names in spec.channel_spec.items()}
    assert sizes == {"label": 1, "categorical": 26, "numerical": 13}
    assert spec.feature_spec["cat_3"].cardinality < spec.feature_spec["cat_2"].cardinality
    rows = list(lines_of(raw))
    assert any(value is None for row in rows for value in row.values())
    encoded = [encoder.encode(encoder.parse(row)).targets for row in rows]
    files = sorted((dataset / "test").glob("*.parquet"))
    columns = {name: [] for name in encoder.fields_for(())}
    for file in files:
        for name, values in pq.read_table(file, columns=list(columns)).to_pydict().items():
            columns[name] += values
    for name, expected in columns.items():
        assert [row[name].item() for row in encoded] == expected, name
    row = rows[0]
    cells = {name: "" if value is None else str(value) for name, value in row.items()}
    assert encoder.from_cells(cells) == row
    for value, said in [
        (-3, "num_2: expected a number of at least -2: log"),
        ("3", "num_2: expected a number, received '3'"),
        (float("nan"), "num_2: expected a number, received nan"),
    ]:
        with pytest.raises(RequestError, match=said):
            encoder.encode(encoder.parse(row | {"num_2": value}))


@pytest.mark.slow
def test_the_next_day(raw, dataset, tmp_path):
    output = tmp_path / "next"
    options = ["--fitted", dataset, "--test_share", 0.5]
    said = preprocess(raw, output, *options)
    assert "rows: train 300, validation 0, test 300" in said
    old, new = (DatasetDirectory.open(path).spec.feature_spec for path in (dataset, output))
    assert old == new
    with pytest.raises(MerlinSimError, match="`frequency_threshold` is settled by the ids of"):
        preprocess(raw, tmp_path / "other", *options, "--frequency_threshold", 3)


def test_options_that_cannot_be_are_refused_before_work(raw, tmp_path):
    for options, said in [
        (["--frequency_threshold", "few"], "`frequency_threshold` should be a limit"),
        (["--validation_files", "day_0"], "Nothing would be left to train on"),
        (["--file_pattern", "*.tsv"], "expected files called"),
    ]:
        with pytest.raises(MerlinSimError, match=said):
            preprocess(raw, tmp_path / "data", *options)
    assert not list(tmp_path.iterdir())
    mixed = ["data", "synthesize", "--users", "5", "criteo", "--output", str(tmp_path / "raw")]
    for words, said in (
        (mixed, "--users: options of `criteo` stand behind it"),
        (["data", "synthesize"], "Missing option '--output'"),
    ):
        result = CliRunner().invoke(main.cli, words)
        assert result.exit_code == 2 and said in result.output


def test_the_summary_says_which_rows_were_fitted_on_and_that_nothing_validates(raw, tmp_path):
    said = preprocess(raw, tmp_path / "data", "--fit_on", "train", "--test_share", "0.5")
    assert "fitted on: the rows that train (`--fit_on`)" in said and "nothing validates" in said
