"""A visit to a GPU, without one: its questions have answers, and its table keeps what came."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import in_process
import pytest
from gpu import first_questions, lines_of_datasets, visit
from gpu.visit import Part, first_parts, further_parts

SCRIPT = Path(__file__).parents[2] / "scripts/check_gpu.sh"
HANGS = "print('| a line | 5 |', flush=True); import signal; signal.pause()"


def test_a_part_that_fails_is_reported_and_one_that_hangs_is_ended_and_its_lines_are_kept(
    tmp_path, monkeypatch
):
    failing = "import sys; print(5); sys.exit('no such thing')"
    parts = [
        Part("a part", ("-c", "print(7)"), 60),
        Part("another", ("-c", failing), 60),
        Part("a third", ("-c", HANGS), 2, prints_table=True),
    ]
    table = tmp_path / "table.md"
    monkeypatch.setattr(visit, "first_parts", lambda small: parts if small else [])
    monkeypatch.setattr(sys, "argv", ["visit.py", str(table), "--small"])
    with pytest.raises(SystemExit, match="check_gpu: failed: another, a third"):
        visit.main()
    assert table.read_text().splitlines() == [
        "| what | measured |",
        "|---|---|",
        "| a part | 7 (0 s) |",
        "| another | failed: no such thing |",
        "| a line | 5 |",
        "| a third | ended after its 2 s |",
    ]


def test_the_script_starts_the_visit_and_ends_where_there_is_no_gpu(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$*"\nexit 1\n')
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python)}
    for words, code, said in (
        (["--small", "t.md"], 1, "benchmarks/gpu/visit.py t.md --small\n"),
        (["t.md"], 2, "-\n"),  # the program that looks for a GPU
    ):
        done = subprocess.run(
            [SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (code, said)


def test_what_is_worth_most_comes_first_and_takes_no_more_than_ten_minutes(monkeypatch):
    monkeypatch.setenv("GPU_TABLE_PUBLISHED", "code")  # the published code beside ours
    monkeypatch.setenv("GPU_TABLE_PUBLISHED_DATA", "data")
    first = first_parts(small=False)
    assert "published" in first[2].name
    assert sum(part.seconds for part in first) <= 10 * 60
    assert all(Path(part.words[0]).exists() or part.words[0] == "-m" for part in further_parts())


@pytest.mark.slow
def test_each_question_has_an_answer_on_a_cpu(tmp_path, monkeypatch, eagerly):
    def run(program, *words, **variables):
        """A command in this process, in no time."""
        in_process.run(*words)
        return 0.0

    monkeypatch.setattr(lines_of_datasets, "run", run)
    answers = []
    for part in first_parts(small=True)[1:]:  # the first is the second without its candidates
        script, question, *words = part.words
        assert script == first_questions.__file__
        answers.append(first_questions.QUESTIONS[question](tmp_path / question, *words))
    resident, users, graph = answers
    assert "samples/s" in resident
    assert users.endswith("; the same") and graph.endswith("; the same files")
