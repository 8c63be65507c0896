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


def test_a_part_that_fails_is_told_and_one_that_hangs_is_ended_and_its_lines_are_kept():
    reported = []
    failing = "import sys; print(5); sys.exit('no such thing')"
    assert not answer(Part("a part", ("-c", failing), 60), reported.append)
    assert reported.pop() == "| a part | failed: no such thing |"
    part = Part("a part", ("-c", HANGS), 3, prints_table=True)
    assert not answer(part, reported.append)
    assert reported == ["| a line | 5 |", "| a part | ended after its 3 s |"]


@pytest.mark.slow
def test_a_small_visit_to_a_cpu(tmp_path, monkeypatch):
    with monkeypatch.context() as environment:  # the published code beside ours
        environment.setenv("GPU_TABLE_PUBLISHED", "code")
        environment.setenv("GPU_TABLE_PUBLISHED_DATA", "data")
        first = first_parts(small=False)
    assert "published" in first[2].name
    assert sum(part.seconds for part in first) <= 10 * 60
    assert all(Path(part.words[0]).exists() or part.words[0] == "-m" for part in further_parts())
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
