"""Records of benchmarks: what is kept, and that pages show nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import published
import pytest
import render
from measuring import records
from measuring.records import NotQuietError, Recording, Table, own_seconds

FIGURES = {
    "docs/benchmarks.md": r"\d[\d.,]* ?(?:x|s|ms|GB|GiB|%|times|seconds|minutes|\w+/s)\b",
    "docs/quality.md": r"\d*\.\d+|\d[\d,]* ?(?:x|s|ms|GB|%|times|seconds)\b",
    "README.md": r"\d[\d.,]* ?(?:x|times|\w+/s)\b",
}


@pytest.fixture(name="record")
def make_record(tmp_path, monkeypatch):
    """A record that a quiet machine could have given."""
    monkeypatch.setenv("MERLIN_SIM_RECORDS", str(tmp_path))
    monkeypatch.setattr(records, "load", lambda: 0.4)
    monkeypatch.setattr(records, "commit", lambda: "0123456789" * 4)
    monkeypatch.setattr(Recording, "_busy", lambda self: 0.0)
    recording = Recording("sim-100", "SIM", {"history": 100})
    steps = {
        "published code": [100.0, 90.0, 300.0],
        "merlin-sim, from users": [200.0, 250.0, 260.0],
    }
    recording.table("training step, the median one", "samples/s", steps, "published code")
    recording.table("whole run", "s", {"published code": [8.0], "ours": [2.0]}, "published code")
    recording.end()
    return tmp_path / "sim-100.json"


@pytest.mark.parametrize("name", FIGURES)
def test_pages_show_what_the_records_have_and_no_other_figure(name):
    path = render.REPOSITORY / name
    page = path.read_text()
    assert render.pages(render.read_records())[path] == page, "run benchmarks/render.py"
    by_hand = re.sub(r"```.*?```", "", render.without_records(page), flags=re.DOTALL)
    assert re.findall(FIGURES[name], by_hand) == []


def test_a_record_reports_how_it_was_measured(record):
    reported = json.loads(record.read_text())
    assert reported["for_publication"] and reported["commit"].startswith("0123")
    assert reported["load_before"] == reported["load_after"] == 0.4
    assert reported["machine"]["cores"] >= 1 and reported["machine"]["memory_gib"] > 0
    assert reported["tables"][0]["values"]["published code"] == [100.0, 90.0, 300.0]


def test_a_page_has_medians_spread_and_multiples(record):
    (read,) = render.read_records(record.parent)
    text = render.section(read)
    assert "| merlin-sim, from users | 250 | 200 to 260 | 2.50x |" in text
    assert "| ours | 2.0 |  | 4.00x |" in text
    assert "training steps at 2.5 times its rate" in render.headline([read])


def test_a_figure_that_no_record_has_is_seen(record):
    read = render.read_records(record.parent)
    pages = render.pages(read)
    path = render.REPOSITORY / "docs/benchmarks.md"
    forged = pages[path].replace("2.50x", "2.60x")
    assert render.rendered(forged, "\n".join(map(render.section, read))) != forged


def test_no_record_above_a_load_of_one(monkeypatch, tmp_path):
    monkeypatch.setenv("MERLIN_SIM_RECORDS", str(tmp_path))
    monkeypatch.setattr(records, "commit", lambda: "0" * 40)
    monkeypatch.setattr(records, "load", lambda: 3.2)
    monkeypatch.setattr(records, "WAIT_SECONDS", 0)
    monkeypatch.setattr(records.time, "sleep", lambda seconds: None)
    with pytest.raises(NotQuietError, match=r"load is 3\.2, and nothing is recorded above 1"):
        records.wait_until_quiet(seconds=0)


def test_no_record_where_others_were_busy(record, monkeypatch):
    record.unlink()
    recording = Recording("sim-100", "SIM", {})
    monkeypatch.setattr(Recording, "_busy", lambda self: 1e6)
    with pytest.raises(NotQuietError, match="Other processes had"):
        recording.end()
    assert not record.exists()


def test_processes_of_a_benchmark_that_live_on_are_no_others():
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    before = own_seconds()
    words = [sys.executable, "-c", burn]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        while_it_lives = own_seconds()
        child.communicate(b"\n", timeout=100)
    assert while_it_lives >= before + 0.4 and own_seconds() >= before + 0.4


def test_no_page_shows_a_try(record, monkeypatch):
    monkeypatch.setenv("MERLIN_SIM_RECORDS_TRY", "1")
    monkeypatch.setattr(records, "load", lambda: 9.0)
    Recording("sim-1000", "SIM", {}).end()
    with pytest.raises(render.RecordError, match=r"sim-1000\.json is of a try"):
        render.read_records(record.parent)


def test_seconds_are_better_where_fewer():
    table = Table("run", "s", {"one": [4.0], "other": [8.0]}, "other")
    assert table.times_baseline("one") == 2.0
    assert Table("auc", "AUC", {"one": [0.9]}, "one").times_baseline("one") is None


def test_records_of_bytes_are_split_whole():
    split = published.split_whole(np.array_split)
    parts = split([b"a\0", b"b\0\0", b"c"], 2)
    assert [bytes(record) for part in parts for record in part] == [b"a\0", b"b\0\0", b"c"]
    assert [part.tolist() for part in split([1, 2, 3], 2)] == [[1, 2], [3]]


def test_the_published_log_is_a_line_for_each_entry(tmp_path):
    logger = published.log_lines()
    file = logger["JSONStreamBackend"](verbosity=1, filename=str(tmp_path / "log.json"))
    logger["init"]([file, logger["StdOutBackend"](verbosity=1)])
    logger["log"](step=(0, 1), data={"samples/s": 5.0})
    assert json.loads(file.read_text()) == {"step": [0, 1], "data": {"samples/s": 5.0}}
