"""CSV files are read by threads of arrow: none of them may come back to Python after all others."""

from __future__ import annotations

import gzip
import itertools
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from merlin_sim.workflows.csv_file import CsvReader, header_of

HEADER, ROW = b"who,what\n", b"some-user,some-item\n"
MANY = (34 << 20) // len(ROW)
"""Rows of more than two blocks: the thread that reads ahead is at the third."""


def write(path: Path, rows: int) -> Path:
    text = HEADER + ROW * rows
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def is_open(path: Path) -> bool:
    return str(path) in {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_no_thread_of_arrow_runs_python(tmp_path, monkeypatch, name):
    """A file of Python's is read in arrow's thread, which nobody can join: exit code 134."""
    path, threads = write(tmp_path / name, 5), set()
    kept = gzip.GzipFile.read

    def read(file, *size):
        threads.add(threading.get_ident())
        return kept(file, *size)

    monkeypatch.setattr(gzip.GzipFile, "read", read)
    before = set(threading.enumerate())
    assert header_of(path) == ["who", "what"]
    with CsvReader(path, ["what"], []) as reader:
        assert [batch.num_rows for batch, _ in reader.batches()] == [5]
    assert threads <= {threading.get_ident()}
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_whoever_leaves_early_leaves_no_reader_behind(tmp_path, name):
    path, ragged = write(tmp_path / name, MANY), []
    with CsvReader(path, ["who"], ragged) as reader:
        ((batch, done),) = itertools.islice(reader.batches(), 1)
    assert batch.column(0)[0].as_py() == b"some-user"
    assert 0 < done <= path.stat().st_size
    assert not is_open(path)  # arrow's threads have nothing of ours any more
    assert header_of(path) == ["who", "what"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'a,a\n"', HEADER + b"1\n" * 9])
def test_a_file_that_cannot_be_read_leaves_no_reader_behind(tmp_path, content):
    (tmp_path / "log.csv").write_bytes(content)
    reader = CsvReader(tmp_path / "log.csv", ["who"], [])
    try:
        with reader:
            list(reader.batches())
    except (pa.ArrowInvalid, KeyError, UnicodeDecodeError):
        pass
    assert not is_open(tmp_path / "log.csv")


def test_rows_of_too_few_fields_are_given_to_whoever_asked(tmp_path):
    (tmp_path / "log.csv").write_bytes(HEADER + ROW + b"alone\n" + ROW)
    ragged = []
    with CsvReader(tmp_path / "log.csv", ["who", "what"], ragged) as reader:
        assert sum(batch.num_rows for batch, _ in reader.batches()) == 2
    assert [(row.line, row.reason) for row in ragged] == [(3, "expected 2 fields, found 1")]
