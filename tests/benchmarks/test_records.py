"""Records of benchmarks: what is kept, and that pages show nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest
import render
from measuring import records
from measuring.records import NotQuietError, Recording, own_seconds

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
    monkeypatch.setattr(records, "own_seconds", lambda: 1e6 * time.monotonic())  # nobody else's
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


def test_a_page_has_medians_spread_and_multiples(record):
    (read,) = render.read_records(record.parent)
    text = render.section(read)
    assert "| merlin-sim, from users | 250 | 200 to 260 | 2.50x |" in text
    assert "| ours | 2.0 |  | 4.00x |" in text
    assert "training steps at 2.5 times its rate" in render.headline([read])
    reported = json.loads(record.read_text())
    assert reported["for_publication"] and reported["commit"].startswith("0123")
    assert reported["tables"][0]["values"]["published code"] == [100.0, 90.0, 300.0]
    page = render.pages([read])[render.REPOSITORY / "docs/benchmarks.md"]
    forged = page.replace("2.50x", "2.60x")
    assert render.rendered(forged, text) != forged


def test_models_are_listed_to_choose_from_where_their_scores_have_a_price(record, tmp_path):
    head = "| training step, the median one, samples/s | whole run, s |"
    assert head in render.quality(record.parent)
    (empty := tmp_path / "empty").mkdir()
    text = render.quality(empty)
    assert "Cost and memory of scores were not run." in text and "samples/s" not in text


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


def test_nothing_is_recorded_where_others_are_busy(record, monkeypatch):
    record.unlink()
    recording = Recording("sim-100", "SIM", {})
    monkeypatch.setattr(records, "own_seconds", lambda: 0.0)
    with pytest.raises(NotQuietError, match="Other processes had"):
        recording.end()
    assert not record.exists()
    monkeypatch.setattr(records, "load", lambda: 3.2)
    monkeypatch.setattr(records, "WAIT_SECONDS", 0)
    monkeypatch.setattr(records.time, "sleep", lambda seconds: None)
    with pytest.raises(NotQuietError, match=r"load is 3\.2, and nothing is recorded above 1"):
        records.wait_until_quiet(seconds=0)
