"""A visit to a GPU, without one: its parts run, end at their limits, and tell what they know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.visit import Part, answer, first_parts, further_parts

SCRIPT = Path(__file__).parents[2] / "scripts/check_gpu.sh"
HANGS = "print('| a line | 5 |', flush=True); import signal; signal.pause()"
ENDS = {
    "print('5 samples/s')": ("| a part | 5 samples/s (", True),
    "import sys; print(5); sys.exit('no such thing')": (
        "| a part | failed: no such thing |",
        False,
    ),
}


@pytest.mark.parametrize("code", ENDS)
def test_a_part_is_one_line(code):
    reported = []
    begins, good = ENDS[code]
    assert answer(Part("a part", ("-c", code), 60), reported.append) is good
    assert len(reported) == 1
    assert reported[0].startswith(begins)


def test_a_part_that_hangs_is_ended_and_its_lines_are_kept():
    reported = []
    part = Part("a part", ("-c", HANGS), 3, prints_table=True)
    assert not answer(part, reported.append)
    assert reported == ["| a line | 5 |", "| a part | ended after its 3 s |"]


def test_the_first_parts_come_within_their_minutes_and_the_published_code_beside_ours(monkeypatch):
    monkeypatch.setenv("GPU_TABLE_PUBLISHED", "code")
    monkeypatch.setenv("GPU_TABLE_PUBLISHED_DATA", "data")
    first = first_parts(small=False)
    assert "published" in first[2].name
    assert sum(part.seconds for part in first) <= 10 * 60
    assert all(Path(part.words[0]).exists() or part.words[0] == "-m" for part in further_parts())


@pytest.mark.slow
def test_a_small_visit_to_a_cpu(tmp_path):
    table = tmp_path / "table.md"
    done = subprocess.run(
        [SCRIPT, "--small", table],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    what, dashes, *lines = table.read_text().splitlines()
    assert (what, dashes) == ("| what | measured |", "|---|---|")
    assert len(lines) == len(first_parts(small=True))
    assert sum("samples/s" in line for line in lines) == 2
    assert "the same files" in lines[-1]
