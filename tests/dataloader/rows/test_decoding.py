"""Windows come in order and whole, whatever their rows' parts wait for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from merlin_sim.dataloader.rows.decoded_rows import ScalarColumn
from merlin_sim.dataloader.rows.decoding import decode_windows
from merlin_sim.dataloader.rows.stored_rows import StoredRows

WAIT = 100


class Part:
    """A reader of one column that counts on; it notices when it is called twice at a time."""

    def __init__(self, name, gate=None, fails_at=None):
        self.name = name
        self.gate = gate
        self.fails_at = fails_at
        self.next = 0
        self.busy = threading.Lock()

    def read(self, first_row, rows):
        assert first_row == self.next
        assert self.busy.acquire(blocking=False), "called twice at a time"
        if self.gate is not None:
            assert self.gate.wait(WAIT)
        if self.fails_at == self.next:
            self.busy.release()
            raise ValueError(f"{self.name} is damaged at {self.next}")
        values = np.arange(self.next, self.next + rows)
        self.next += rows
        self.busy.release()
        return {self.name: ScalarColumn(values)}


def group(parts, pieces, rows=3):
    """One row group as ``pieces`` pieces that share their readers."""
    names = [part.name for part in parts]
    return [StoredRows(names, rows, "file", piece * rows, parts) for piece in range(pieces)]


def accept(anything):
    pass


class Uses:
    """What was brought where, in the order in which it was brought."""

    def __init__(self):
        self.seen = []

    def of(self, window):
        def use(columns):
            ((name, column),) = columns.items()
            self.seen.append((window, name, column.values.tolist()))

        return use


def test_a_reader_goes_from_front_to_back_and_a_piece_may_be_of_two_windows():
    parts = [Part("item"), Part("user")]
    first, middle, last = group(parts, 3)
    uses, checked = Uses(), []
    windows = [
        ("one", [(first, uses.of("one")), (middle, uses.of("one"))]),
        ("two", [(middle, uses.of("two")), (last, uses.of("two"))]),
        ("nothing of this rank's", []),
    ]
    assert list(decode_windows(windows, checked.append)) == [name for name, _ in windows]
    for name in ("item", "user"):
        mine = [(window, values) for window, of, values in uses.seen if of == name]
        assert mine == [
            ("one", [0, 1, 2]),
            ("one", [3, 4, 5]),
            ("two", [3, 4, 5]),
            ("two", [6, 7, 8]),
        ]
    assert sorted(rows.first_row for rows in checked) == [0, 3, 6]  # each once
    assert all(list(rows.columns) == ["item", "user"] for rows in checked)


def test_the_next_window_is_decoded_while_one_is_used():
    decoded = threading.Event()
    windows = [
        ("one", [(piece, accept) for piece in group([Part("item")], 1)]),
        ("two", [(piece, lambda columns: decoded.set()) for piece in group([Part("item")], 1)]),
    ]
    running = decode_windows(windows, accept)
    assert next(running) == "one"
    assert decoded.wait(WAIT)
    assert list(running) == ["two"]


@pytest.mark.parametrize("what", ["reader", "check"])
def test_an_error_comes_in_place_of_its_window(what):
    fails_at = 3 if what == "reader" else None
    pieces = group([Part("item", fails_at=fails_at), Part("user")], 2)

    def check(rows):
        if what == "check" and rows.first_row == 3:
            raise ValueError("item is damaged at 3")

    running = decode_windows([(piece, [(piece, accept)]) for piece in pieces], check)
    assert next(running) is pieces[0]
    with pytest.raises(ValueError, match="item is damaged at 3"):
        next(running)


@pytest.mark.parametrize("threads", [1, 3])
def test_so_many_parts_are_decoded_at_a_time_as_asked_for(threads):
    together = threading.Barrier(threads, timeout=WAIT)
    most, now, lock = 0, 0, threading.Lock()

    def use(columns):
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        together.wait()  # 6 parts: as many as there are threads come here at a time
        with lock:
            now -= 1

    names = ["a", "b", "c", "d", "e", "f"]
    windows = [("one", [(piece, use) for piece in group([Part(name) for name in names], 1)])]
    assert list(decode_windows(windows, accept, threads)) == ["one"]
    assert most == threads


def test_whoever_stops_early_leaves_no_thread_behind():
    before = set(threading.enumerate())
    gate = threading.Event()
    windows = [(0, []), (1, [(piece, accept) for piece in group([Part("item", gate)], 50)])]
    running = decode_windows(windows, accept)
    assert next(running) == 0
    closing = threading.Thread(target=running.close)
    closing.start()
    gate.set()
    closing.join(WAIT)
    assert not closing.is_alive()
    assert set(threading.enumerate()) <= before
