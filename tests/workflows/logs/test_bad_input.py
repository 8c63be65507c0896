"""Reviews, metadata and options that cannot be, and logs that hold nothing to learn from."""

from __future__ import annotations

import gzip
import shutil

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.amazon import REVIEW_SCHEMA
from merlin_sim.workflows.text_lines import read_json_lines

pytestmark = pytest.mark.slow

GOOD = b'{"reviewerID": "u", "asin": "a", "unixReviewTime": 5}'
OTHER = GOOD.replace(b'"asin": "a"', b'"asin": "b"')
META = b"{'asin': 'a', 'categories': [['x']]}\n"
BOOKS = ("reviews_Books.json", "meta_Books.json")
SHORT = ("--shortest_sequence_for_user", 1)
SKIP = ("--on_bad_rows", "skip")
BAD_LINES = [
    (b"not json", "expected one JSON object"),
    (b'{"asin": "a", "unixReviewTime": 5}', "expected the key 'reviewerID'"),
    (b'{"reviewerID": "u", "asin": "a"}', "expected the key 'unixReviewTime'"),
    (GOOD.replace(b'"u"', b"3"), "'reviewerID': expected a string"),
    (GOOD.replace(b'"a"', b'""'), "'asin': expected a string"),
    (GOOD.replace(b"5", b"5.5"), "'unixReviewTime': expected a whole number"),
    (GOOD.replace(b"5", b"true"), "'unixReviewTime': expected a whole number"),
    (GOOD.replace(b'"a"', b'"\xe9"'), "expected UTF-8, found byte"),
    (GOOD.replace(b'"a"', b'"\\ud800"'), "'asin': expected text, found a lone surrogate"),
    (GOOD + GOOD, "expected one JSON object"),
    (b"[1, 2]", "expected one JSON object"),
    (GOOD.decode().encode("utf-16"), "expected UTF-8"),
]


@pytest.fixture
def write(tmp_path):
    def write(reviews=GOOD + b"\n" + OTHER + b"\n", metadata=META):
        (tmp_path / "raw").mkdir(exist_ok=True)
        for name, content in zip(BOOKS, (reviews, metadata), strict=True):
            (tmp_path / "raw" / name).write_bytes(content)
        return tmp_path / "raw"

    return write


@pytest.fixture
def refused(tmp_path, preprocess):
    """What a run says that leaves nothing behind."""

    def refused(raw, *options):
        with pytest.raises(MerlinSimError) as caught:
            preprocess(raw, tmp_path / "dataset", *options)
        assert caught.value.exit_code == 2
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("dataset")]
        return str(caught.value)

    return refused


@pytest.fixture
def output_of(tmp_path, run_cli):
    def output_of(raw, *options):
        result = run_cli(
            "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path",
            tmp_path / "dataset", *options,
        )  # fmt: skip
        assert result.exception is None
        return result.output

    return output_of


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_bad_line_is_found(line, reason):
    text = b"\n".join([GOOD, b"", OTHER, line, GOOD, line, b""])
    _, bad = read_json_lines(text, REVIEW_SCHEMA)
    assert [row.line for row in bad] == [4, 6]
    assert all(row.reason.startswith(reason) for row in bad)


def test_bad_lines_stop_the_run_or_are_counted(write, refused, output_of):
    bad = [line for line, _ in BAD_LINES]
    raw = write(b"\n".join([GOOD, b"", OTHER, bad[0], GOOD, *bad[1:], b""]))
    short = ("--shortest_sequence_for_user", 3)
    assert f"reviews_Books.json, line 4: {BAD_LINES[0][1]}" in refused(raw, *short)
    output = output_of(raw, *SKIP, *short)
    left_out = f"reviews_Books.json: {len(bad)} bad rows left out (line 4: {BAD_LINES[0][1]}"
    assert left_out in output
    assert f"line 6: {BAD_LINES[1][1]}" in output
    assert "3 interactions read" in output


def test_bad_metadata_stops_the_run_or_is_counted(write, refused, output_of):
    raw = write(metadata=META + b"{'asin': 'b'\n" + META + b"{'asin': 'c'}\n")
    assert "meta_Books.json, line 2: expected a Python literal" in refused(raw, *SHORT)
    output = output_of(raw, *SKIP, *SHORT)
    assert "meta_Books.json: 2 bad rows left out (line 2: " in output
    assert "line 4: expected the key 'categories'" in output
    assert "cat_id: 1 items without one" in output


def test_the_line_is_right_far_into_a_file(write, refused, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 5_000)
    raw = write((GOOD + b"\n") * 1000 + b"bad\n" + (GOOD + b"\n") * 50)
    assert "reviews_Books.json, line 1001: " in refused(raw)
    reviews = raw / BOOKS[0]
    (raw / f"{BOOKS[0]}.gz").write_bytes(gzip.compress(reviews.read_bytes()))
    reviews.unlink()
    assert "reviews_Books.json.gz, line 1001: " in refused(raw)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (BOOKS[0], lambda packed: packed[: len(packed) // 2], "after line .*: the gzip stream"),
        (BOOKS[1], lambda packed: packed[:200] + b"\0" * 50, "after line .*: the gzip stream"),
        (BOOKS[0], lambda _: b"this is no gzip", "after line .*: the gzip stream"),
        (BOOKS[1], lambda _: b"", "expected a gzip stream, found an empty"),
    ],
    ids=["cut", "broken", "none", "empty"],
)
def test_a_damaged_gzip_stops_the_run(name, damage, message, raw, tmp_path, preprocess):
    copy = shutil.copytree(raw, tmp_path / "raw")
    packed = damage(gzip.compress((copy / name).read_bytes()))
    (copy / name).unlink()
    (copy / f"{name}.gz").write_bytes(packed)
    with pytest.raises(MerlinSimError, match=f"{name}.gz[:,] {message}"):
        preprocess(copy, tmp_path / "dataset", *SKIP)
    assert not (tmp_path / "dataset").exists()


def test_users_without_a_training_row_make_an_empty_train(write, tmp_path, preprocess, rows_of):
    dataset = preprocess(write(), tmp_path / "dataset", "--shortest_sequence_for_user", 2)
    assert (len(rows_of(dataset, "train")), len(rows_of(dataset, "test"))) == (0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max_sequence_length", 0), "`max_sequence_length` should be at least 1"),
        (("--review_loader_num_workers", 0), "workers should be at least 1"),
        (("--fitted", "nowhere"), "nowhere/workflow.json"),
        (("--seed", -1), "`seed` should lie"),
    ],
)
def test_options_are_checked(options, message, raw, refused):
    assert message in refused(raw, *options)


@pytest.mark.parametrize(
    ("reviews", "metadata", "options", "messages"),
    [
        (b"\n\n", META, (), ["reviews_Books.json: expected interactions, found no"]),
        (b"bad\nworse\n", META, SKIP, ["found none.", "2 bad rows left out (line 1: expected one"]),
        (GOOD + b"\nbad\n", META, SKIP, ["No user has 20 ", "1 bad rows left out (line 2"]),
        (
            (GOOD + b"\n") * 30,
            META,
            (),
            ["column 'item_id': expected ", "found only 'a'"],
        ),
        (GOOD + b"\n" + OTHER, b"", SHORT, ["meta_Books.json: expected items with their categor"]),
        (
            GOOD + b"\n" + OTHER,
            b"bad\n",
            (*SHORT, *SKIP),
            ["found none", "1 bad rows left out"],
        ),
    ],
)
def test_files_that_hold_nothing_to_learn_from(
    reviews, metadata, options, messages, write, refused
):
    said = refused(write(reviews, metadata), *options)
    assert all(message in said for message in messages), said
