"""The tutorial of two weeks, shortened: three days of few users, its commands in this process."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from in_process import answer

pytest.importorskip("faiss")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[1]


@pytest.fixture
def two_weeks(monkeypatch):
    """The script, and what its commands were and said."""
    spec = importlib.util.spec_from_file_location("two_weeks", ROOT / "examples/two_weeks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    said = []

    def in_this_process(*words, may_end_with=(0,)):
        found = answer(*words)
        assert found.returncode in may_end_with, (words, found)
        said.append((words, found))
        return found.returncode

    monkeypatch.setattr(module, "merlin_sim", in_this_process)
    return module, said


@pytest.mark.usefixtures("eagerly")
def test_three_days_are_lived_through(two_weeks, tmp_path):
    module, said = two_weeks
    module.main([str(tmp_path / "weeks"), "--days", "3", "--users", "150", "--no_server"])
    verbs = [words[0] for words, _ in said]
    assert verbs.count("train") == 3 and verbs.count("drift") == 2 and verbs.count("gate") == 1
    log = [json.loads(line) for line in (tmp_path / "weeks/runs/day_01/log.json").open()]
    assert [entry for entry in log if entry["type"] == "warm_start"]
    assert json.loads((tmp_path / "weeks/registry/drift/drift.json").read_text())["new"]
    gate = json.loads((tmp_path / "weeks/gates/day_02/gate.json").read_text())
    (listed,) = [found.stdout for words, found in said if words[:2] == ("registry", "list")]
    current = 2 if gate["passed"] else 1
    assert [line.split()[0] for line in listed.splitlines() if line[0] == "*"] == ["*"]
    assert f"* {current}" in " ".join(listed.split())
    reported = said[-1][1].stdout
    assert said[-1][0][0] == "recommend" and "(nearest)" in reported, reported


def test_every_command_of_the_page_is_one_that_the_script_runs(two_weeks):
    """The page shows what the script does."""
    page = (ROOT / "docs/tutorial-daily.md").read_text()
    script = (ROOT / "examples/two_weeks.py").read_text()
    shown = {line.split()[2] for line in page.splitlines() if line.startswith("$ merlin-sim ")}
    assert {"preprocess", "train", "gate", "registry", "drift", "serve", "recommend"} <= shown
    assert all(f'"{verb}"' in script for verb in shown)
