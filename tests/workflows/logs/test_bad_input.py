from __future__ import annotations

import gzip
import json
import shutil
import signal

import in_process
import killed_program
import processes
import pytest
from full_disk import written_at_most
from warm import warm

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.amazon import REVIEW_SCHEMA
from merlin_sim.workflows.text_lines import read_json_lines

pytestmark = pytest.mark.slow

GOOD = b'{"reviewerID": "u", "asin": "a", "unixReviewTime": 5}'
OTHER = GOOD.replace(b'"asin": "a"', b'"asin": "b"')
BAD_LINES = [
    (b'{"reviewerID": "u", "asin"', "expected one JSON object"),
    (b"not json", "expected one JSON object"),
    (b'{"asin": "a", "unixReviewTime": 5}', "expected the key 'reviewerID'"),
    (b'{"reviewerID": "u", "unixReviewTime": 5}', "expected the key 'asin'"),
    (b'{"reviewerID": "u", "asin": "a"}', "expected the key 'unixReviewTime'"),
    (b'{"reviewerID": 3, "asin": "a", "unixReviewTime": 5}', "'reviewerID': expected a string"),
    (b'{"reviewerID": "u", "asin": null, "unixReviewTime": 5}', "'asin': expected a string"),
    (b'{"reviewerID": "u", "asin": "", "unixReviewTime": 5}', "'asin': expected a string"),
    (
        b'{"reviewerID": "u", "asin": "a", "unixReviewTime": "5"}',
        "'unixReviewTime': expected a whole number",
    ),
    (
        b'{"reviewerID": "u", "asin": "a", "unixReviewTime": 5.5}',
        "'unixReviewTime': expected a whole number",
    ),
    (
        b'{"reviewerID": "u", "asin": "a", "unixReviewTime": true}',
        "'unixReviewTime': expected a whole number",
    ),
    (b'{"reviewerID": "u", "asin": "\xe9", "unixReviewTime": 5}', "expected UTF-8, found byte"),
    (
        b'{"reviewerID": "u", "asin": "\\ud800", "unixReviewTime": 5}',
        "'asin': expected text, found a lone surrogate",
    ),
    (GOOD + GOOD, "expected one JSON object"),
    (b"[1, 2]", "expected one JSON object"),
    (GOOD.decode().encode("utf-16"), "expected UTF-8"),
]


def write(tmp_path, reviews: bytes, metadata: bytes = b"{'asin': 'a', 'categories': [['x']]}\n"):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "reviews_Books.json").write_bytes(reviews)
    (raw / "meta_Books.json").write_bytes(metadata)
    return raw


def with_bad(line: bytes) -> bytes:
    return b"\n".join([GOOD, b"", OTHER, line, GOOD, line, b""])


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_bad_line_is_found(line, reason):
    _, bad = read_json_lines(with_bad(line), REVIEW_SCHEMA)
    assert [row.line for row in bad] == [4, 6]
    assert all(row.reason.startswith(reason) for row in bad)


@pytest.mark.parametrize(("line", "reason"), [BAD_LINES[0], BAD_LINES[-1]])
def test_a_bad_line_stops_the_run(line, reason, tmp_path, preprocess):
    raw = write(tmp_path, with_bad(line))
    with pytest.raises(MerlinSimError) as error:
        preprocess(raw, tmp_path / "dataset", "--shortest_sequence_for_user", 3)
    assert f"reviews_Books.json, line 4: {reason}" in str(error.value)
    assert error.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_bad_lines_are_counted(tmp_path, run_cli):
    bad = [line for line, _ in BAD_LINES]
    raw = write(tmp_path, b"\n".join([GOOD, b"", OTHER, bad[0], GOOD, *bad[1:], b""]))
    result = run_cli(
        "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path",
        tmp_path / "dataset", "--on_bad_rows", "skip", "--shortest_sequence_for_user", 3,
    )  # fmt: skip
    assert result.exception is None
    left_out = f"reviews_Books.json: {len(bad)} bad rows left out (line 4: {BAD_LINES[0][1]}"
    assert left_out in result.output
    assert f"line 6: {BAD_LINES[1][1]}" in result.output
    assert "3 interactions read" in result.output


def test_bad_metadata_is_reported_with_its_line_or_counted(tmp_path, preprocess, run_cli):
    good = b"{'asin': 'a', 'categories': [['x']]}\n"
    raw = write(
        tmp_path, GOOD + b"\n" + OTHER + b"\n", good + b"{'asin': 'b'\n" + good + b"{'asin': 'c'}\n"
    )
    options = ("--shortest_sequence_for_user", 1)
    with pytest.raises(MerlinSimError, match="meta_Books.json, line 2: expected a Python literal"):
        preprocess(raw, tmp_path / "dataset", *options)
    result = run_cli(
        "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path",
        tmp_path / "dataset", "--on_bad_rows", "skip", *options,
    )  # fmt: skip
    assert "meta_Books.json: 2 bad rows left out (line 2: " in result.output
    assert "line 4: expected the key 'categories'" in result.output


def test_the_line_is_right_far_into_a_file(tmp_path, preprocess, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 5_000)
    raw = write(tmp_path, (GOOD + b"\n") * 1000 + b"bad\n" + (GOOD + b"\n") * 50)
    with pytest.raises(MerlinSimError, match="reviews_Books.json, line 1001: "):
        preprocess(raw, tmp_path / "dataset")
    with open(raw / "reviews_Books.json", "rb") as file:
        packed = gzip.compress(file.read())
    (raw / "reviews_Books.json.gz").write_bytes(packed)
    (raw / "reviews_Books.json").unlink()
    with pytest.raises(MerlinSimError, match="reviews_Books.json.gz, line 1001: "):
        preprocess(raw, tmp_path / "dataset")


@pytest.mark.parametrize("name", ["reviews_Books.json", "meta_Books.json"])
def test_a_damaged_gzip_stops_the_run(name, raw, tmp_path, preprocess):
    for what in ("cut", "broken", "none"):
        copy = tmp_path / what
        shutil.copytree(raw, copy)
        packed = gzip.compress((copy / name).read_bytes())
        damaged = {
            "cut": packed[: len(packed) // 2],
            "broken": packed[:200] + b"\0" * 50 + packed[250:],
            "none": b"this is no gzip",
        }[what]
        (copy / name).unlink()
        (copy / f"{name}.gz").write_bytes(damaged)
        with pytest.raises(MerlinSimError, match=f"{name}.gz, after line .*: the gzip stream"):
            preprocess(copy, tmp_path / "dataset", "--on_bad_rows", "skip")
        assert not (tmp_path / "dataset").exists()


def test_users_without_a_training_row_make_an_empty_train(tmp_path, preprocess, rows_of):
    raw = write(tmp_path, GOOD + b"\n" + OTHER + b"\n")
    dataset = preprocess(raw, tmp_path / "dataset", "--shortest_sequence_for_user", 2)
    assert len(rows_of(dataset, "train")) == 0
    assert len(rows_of(dataset, "test")) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max_sequence_length", 0), "`max_sequence_length` should be at least 1"),
        (("--scheduler", "nowhere"), "`scheduler` should be"),
        (("--review_loader_num_workers", 0), "workers should be at least 1"),
        (("--fitted", "nowhere"), "nowhere/workflow.json"),
        (("--seed", -1), "`seed` should lie"),
    ],
)
def test_options_are_checked(options, message, raw, tmp_path, preprocess):
    with pytest.raises(MerlinSimError, match=message):
        preprocess(raw, tmp_path / "dataset", *options)
    assert not list(tmp_path.iterdir())


def words(raw, output, *options):
    return [
        "preprocess", "amazon-books", "--amazon_dataset_path", str(raw), "--output_path",
        str(output), *map(str, options),
    ]  # fmt: skip


def test_a_full_disk_stops_the_run(raw, tmp_path):
    with written_at_most(100_000):
        done = in_process.answer(*words(raw, tmp_path / "dataset"))
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert "no output directory was made" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_nothing_half_written(raw, tmp_path, preprocess):
    output = tmp_path / "dataset"
    partial = tmp_path / "dataset.partial"
    run = words(raw, output)
    for seen in (".work/buckets", "train"):
        done = processes.run(warm(killed_program.__file__, str(partial / seen), *run))
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not output.exists()
        assert partial.exists()
    result = preprocess(raw, output)
    assert not partial.exists()
    assert json.loads((result / "metadata.json").read_text())
