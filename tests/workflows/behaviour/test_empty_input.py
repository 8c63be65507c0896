"""Logs and metadata that hold nothing to learn from are refused, and the message says why."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError

COLUMNS = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
REVIEW = '{{"reviewerID": "u", "asin": "{}", "unixReviewTime": 5}}\n'
META = "{'asin': 'a', 'categories': [['x']]}\n"
SHORT = ("--shortest_sequence_for_user", 1)


def write(tmp_path, reviews="", metadata=META):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "reviews_Books.json").write_text(reviews)
    (raw / "meta_Books.json").write_text(metadata)
    return raw


@pytest.fixture
def log(run_cli, tmp_path):
    def run(*files):
        result = run_cli(
            "preprocess", "log", *files, *COLUMNS, "--output_path", tmp_path / "dataset", *SHORT
        )
        assert not (tmp_path / "dataset").exists()
        raise result.exception

    return run


@pytest.mark.parametrize("name", ["reviews_Books.json", "meta_Books.json"])
def test_an_empty_gzip_file_is_named(name, tmp_path, preprocess):
    raw = write(tmp_path, REVIEW.format("a"))
    (raw / name).unlink()
    (raw / f"{name}.gz").touch()
    with pytest.raises(MerlinSimError, match=f"{name}.gz: expected a gzip stream, found an empty"):
        preprocess(raw, tmp_path / "dataset", *SHORT)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_reviews_without_a_line(text, tmp_path, preprocess):
    with pytest.raises(MerlinSimError, match="reviews_Books.json: expected interactions, found no"):
        preprocess(write(tmp_path, text), tmp_path / "dataset")


def test_a_header_alone(tmp_path, log):
    (tmp_path / "log.csv").write_text("who,what,when\n")
    with pytest.raises(MerlinSimError, match="log.csv: expected interactions, found none"):
        log(tmp_path / "log.csv")


def test_parquet_without_row_groups(tmp_path, log):
    schema = pa.schema([("who", pa.int64()), ("what", pa.int64()), ("when", pa.int64())])
    for name in ("a.parquet", "b.parquet"):
        pq.ParquetWriter(tmp_path / name, schema).close()
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 0
    with pytest.raises(MerlinSimError, match="a.parquet, .*b.parquet: expected interactions, fou"):
        log(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_rows_that_are_all_bad_are_told_where_they_are_skipped(tmp_path, preprocess):
    raw = write(tmp_path, "bad\nworse\n")
    with pytest.raises(MerlinSimError) as caught:
        preprocess(raw, tmp_path / "dataset", "--on_bad_rows", "skip")
    assert "reviews_Books.json: expected interactions, found none." in str(caught.value)
    assert "2 bad rows left out (line 1: expected one JSON object, found 'bad'" in str(caught.value)
    (raw / "reviews_Books.json").write_text(REVIEW.format("a") + "bad\n")
    with pytest.raises(MerlinSimError, match=r"(?s)No user has 20 .*1 bad rows left out \(line 2"):
        preprocess(raw, tmp_path / "dataset", "--on_bad_rows", "skip")


def test_a_log_of_one_item_is_refused(tmp_path, preprocess):
    raw = write(tmp_path, REVIEW.format("a") * 30)
    message = "reviews_Books.json: column 'item_id': expected .* two items, found only 'a'"
    with pytest.raises(MerlinSimError, match=message):
        preprocess(raw, tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_metadata_of_no_item_is_refused(tmp_path, preprocess):
    raw = write(tmp_path, REVIEW.format("a") + REVIEW.format("b"), "")
    with pytest.raises(MerlinSimError, match="meta_Books.json: expected items with their categor"):
        preprocess(raw, tmp_path / "dataset", *SHORT)
    (raw / "meta_Books.json").unlink()
    (raw / "meta_Books.json.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(MerlinSimError, match="meta_Books.json.gz: expected items with their categ"):
        preprocess(raw, tmp_path / "dataset", *SHORT)
    (raw / "meta_Books.json.gz").unlink()
    (raw / "meta_Books.json").write_text("bad\n")
    with pytest.raises(MerlinSimError, match=r"(?s)found none.*1 bad rows left out \(line 1: expe"):
        preprocess(raw, tmp_path / "dataset", *SHORT, "--on_bad_rows", "skip")


@pytest.mark.slow
def test_items_without_metadata_are_counted(tmp_path, run_cli):
    raw = write(tmp_path, REVIEW.format("a") + REVIEW.format("b"))
    result = run_cli(
        "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path",
        tmp_path / "dataset", *SHORT,
    )  # fmt: skip
    assert result.exception is None
    assert "cat_id: 1 items without one" in result.output
