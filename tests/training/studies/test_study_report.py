from __future__ import annotations

import json
from pathlib import Path

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.studies.runner import search_folder
from merlin_sim.training.studies.search import SearchMemory
from merlin_sim.training.studies.study_file import Range, Search, StudyFile
from merlin_sim.training.studies.study_report import write_study_report
from merlin_sim.training.studies.trial import SettledStudy

BOTH = {"books": Path("data/books"), "news": Path("data/news")}


def study(tmp_path, validated=(), **changes):
    file = StudyFile(tmp_path / "s.yaml", "Question", BOTH, seeds=(1, 2), **changes)
    return SettledStudy(file, tmp_path, frozenset(), frozenset(validated))


def end(trial, auc, **more):
    """Leave what a run leaves."""
    trial.prepare()
    result = {"type": "result", "test_auc": auc, "throughput": 100.0, "time_to_train": 9.0, **more}
    (trial.directory / "log.json").write_text(json.dumps(result) + "\n")


@pytest.mark.slow
def test_settings_are_compared_within_a_dataset(tmp_path):
    given = study(tmp_path, grid={"lr": (0.1, 0.2)}, reference={"lr": 0.2})
    for values, trials in given.grid:
        for trial in trials:
            level = 0.6 if trial.dataset == "books" else 0.8
            gain = 0.1 * (values["lr"] == 0.1 and trial.dataset == "news")
            end(trial, level + gain + trial.seed / 1000)
    report = write_study_report(given)
    books, news = report.sentences
    assert books == "Test AUC of lr 0.1: +0.0000, noise: 95% -0.0030 to +0.0030 on books"
    assert news.startswith("Test AUC of lr 0.1: +0.1000, better: 95% ") and "on news" in news
    markdown = report.page.with_suffix(".md").read_text()
    assert "## Spread on books" in markdown and "## Differences on news" in markdown
    assert "![Each run by its setting; the line is the mean.](spread-on-news.png)" in markdown
    assert "| runs | 8 ended of 8 |" in markdown
    assert {p.name for p in report.page.parent.glob("spread*.png")} == {
        "spread-on-books.png",
        "spread-on-news.png",
    }


@pytest.mark.slow
def test_a_search_by_validation_data_reports_what_it_reaches_on_test_data(tmp_path):
    search = Search(2, {"lr": Range(0.1, 0.2)})
    given = study(tmp_path, validated=BOTH, search=search)
    memory = SearchMemory(tmp_path, search)
    for gain in (0.0, 0.1):
        number = memory.ask()
        trials = given.trials(memory.values(number), search_folder(number))
        for trial, chance in zip(trials, (0.0, 0.001, 0.0, 0.001), strict=True):
            found = {"best_validation_auc": 0.7 + gain, "best_test_auc": 0.65 + gain}
            end(trial, 0.6 + gain + chance, **found)
        memory.end(number, 0.7 + gain)
    report = write_study_report(given)
    markdown = report.page.with_suffix(".md").read_text()
    assert "The search maximizes the AUC of validation data.\n" in markdown
    assert "flattered" not in markdown
    first, second = [line for line in markdown.splitlines() if "| complete |" in line]
    assert first.startswith("| 1 |") and first.endswith("| 0.8000 |") and second.startswith("| 0 |")
    said = "Test AUC of trial 0: -0.1000, worse"
    assert all(sentence.startswith(said) for sentence in report.sentences)
    assert "| Test AUC where validation AUC was best | Runs |" in markdown
    assert "| trial 1 | 2 | 0.7500 |" in markdown


def test_what_a_search_chooses_by_and_what_has_nothing_to_tell(tmp_path):
    assert study(tmp_path, validated=BOTH).selected_by == "validation"
    assert study(tmp_path, validated=["books"]).selected_by == "validation"
    assert study(tmp_path, options={"select_by": "test"}).selected_by == "test"
    for changes in ({}, {"search": Search(1, {"lr": (1,)})}):
        with pytest.raises(MerlinSimError, match="no run of this study has ended yet"):
            write_study_report(study(tmp_path, **changes))
