"""Lines of a Criteo log: read as they stand, refused with file and line where they cannot be."""

from __future__ import annotations

import gzip
import threading

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.criteo.criteo_log import find_days, parse, read_days
from merlin_sim.workflows.text_lines import line_blocks


def line(label="0", numbers=("1",) * 13, keys=("a1",) * 26):
    return "\t".join([label, *numbers, *keys])


def read(*lines, text=None):
    """The labels, [13, rows] numbers and [26, rows] keys of lines, and the bad ones."""
    text = text or "".join(f"{each}\n" for each in lines)
    table, _, bad = parse(text.encode())
    label, *columns = (column.to_pylist() for column in table.columns)
    return label, np.array(columns[26:]), columns[:26], bad


def test_what_stands_in_a_line():
    numbers = ("5", "", "-2", "123456789012345678", *["0"] * 9)
    keys = ("68fd1e64", "", "FFFFFFFF", "0", "00000000000a", *["7"] * 21)
    labels, found, read_keys, bad = read(line("1", numbers, keys), line())
    assert labels == [1, 0] and not bad
    np.testing.assert_array_equal(
        found[:5, 0], np.array([5, np.nan, -2, 123456789012345678, 0], np.float32)
    )
    assert [key for key, _ in read_keys[:6]] == [0x68FD1E64, None, 0xFFFFFFFF, 0, 10, 7]
    assert [key for _, key in read_keys] == [0xA1] * 26


@pytest.mark.parametrize("text", ["{0}\n{1}", "{0}\n{1}\n", "{0}\r\n{1}\r\n", "{0}\n\n\r\n{1}\n"])
def test_lines_may_end_in_any_way(text):
    labels, _, keys, bad = read(text=text.format(line("1"), line("0")))
    assert labels == [1, 0] and not bad
    assert keys[25] == [0xA1, 0xA1]


BAD = [
    (line("2"), "label (column 1): expected 0 or 1, found '2'"),
    (line(""), "label (column 1): expected 0 or 1, found ''"),
    (line(numbers=("1", "1.5", *"1" * 11)), "num_1 (column 3): expected a whole number of at most"),
    (line(numbers=("-", *"1" * 12)), "num_0 (column 2): expected a whole number"),
    (line(numbers=("1" * 19, *"1" * 12)), "num_0 (column 2): expected a whole number"),
    (line(numbers=("-3", *"1" * 12)), "num_0 (column 2): expected a number of at least -2"),
    (line(keys=(*["1"] * 25, "xyz")), "cat_25 (column 40): expected a key in hexadecimal digits"),
    (line(keys=("100000000", *["1"] * 25)), "cat_0 (column 15): expected a key of at most 32 bits"),
    (line(keys=("1",) * 25), "expected 40 columns with tabs between, found 39"),
    (line(keys=("1",) * 27), "expected 40 columns with tabs between, found 41"),
]


@pytest.mark.parametrize(("wrong", "said"), BAD)
def test_a_bad_line_is_left_out_and_named(wrong, said):
    labels, numbers, keys, (bad,) = read(line("1"), wrong, line("1"))
    assert labels == [1, 1]
    assert keys == [[0xA1, 0xA1]] * 26 and (numbers == 1).all()
    assert bad.line == 2 and said in bad.reason


def labels_of(path):
    """The labels of a day's pieces, and how many lines they have."""
    pieces = [piece for block in line_blocks(path) for piece in read_days(block)]
    labels = [label for piece in pieces for label in piece.table["label"].to_pylist()]
    return labels, [piece.lines for piece in pieces]


def test_a_gzipped_day_is_read_as_a_plain_one_while_it_is_unpacked(tmp_path, monkeypatch):
    text = "\n".join(line(str(row % 2)) for row in range(50)).encode()
    (tmp_path / "day_0").write_bytes(text)
    packed = tmp_path / "day_1.gz"
    packed.write_bytes(gzip.compress(text))
    for path in find_days(tmp_path):
        assert labels_of(path) == ([0, 1] * 25, [50])
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 500)
    threads = set(threading.enumerate())
    labels, lines = labels_of(packed)
    assert labels == [0, 1] * 25 and sum(lines) == 50 and len(lines) > 5
    assert set(threading.enumerate()) <= threads
    (block,) = line_blocks(packed)
    stopped = read_days(block)
    next(stopped)
    stopped.close()
    assert set(threading.enumerate()) <= threads
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(MerlinSimError, match="the gzip stream is damaged or cut short"):
        labels_of(packed)


def test_days_are_found_in_the_order_of_their_numbers(tmp_path):
    for name in ("day_10", "day_2.gz", "day_0", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_days(tmp_path)] == ["day_0", "day_2.gz", "day_10"]
    (tmp_path / "day_2").touch()
    with pytest.raises(MerlinSimError, match="each day once, found day_2 and day_2.gz"):
        find_days(tmp_path)
    with pytest.raises(MerlinSimError, match="expected files called nights_"):
        find_days(tmp_path, "nights_*")
    with pytest.raises(MerlinSimError, match="it does not exist"):
        find_days(tmp_path / "nowhere")
    (tmp_path / "day_2").unlink()
    (tmp_path / "day_1").symlink_to(tmp_path / "unmounted" / "day_1")
    with pytest.raises(MerlinSimError, match="day_1: expected a file, found a link to .*unmounted"):
        find_days(tmp_path)
