"""The page of a study: what its settings reached, by dataset, and which differences are noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter
from ...foundation.settings import shown_value
from ..reports.page import Page, PageTable, Text
from ..reports.report import WITH_SCORES, WrittenReport, add_settings
from ..reports.settings import RunGroup, name_of
from .runner import search_folder
from .search import STORAGE, SearchMemory
from .study_file import Search
from .trial import SettledStudy, Trial

Runs = tuple[str, Mapping[str, Any], Sequence[Trial]]
"""A setting's name, its values and its runs."""
Ended = tuple[int, str, dict[str, Any], float | None]
"""A trial of a search: its number, how it ended, values and AUC."""

REPORT = "report"
NAME = "study"
MEASURES_OF_A_STUDY = ("test_auc", "test_log_loss", "throughput", "latency_mean", "time_to_train")
MOST_COMPARED = 10
"""Trials of a search that are compared with its best."""


def write_study_report(study: SettledStudy, reporter: Reporter | None = None) -> WrittenReport:
    """Write report/study.html, study.md and the figures of what there is by now."""
    page = Page(study.file.title)
    search = study.file.search
    if search is None:
        named = ((name_of(values) or study.file.title, values, runs) for values, runs in study.grid)
        ended: list[Ended] = []
        trials: list[Runs] = list(named)
    else:
        ended = _ended(study, search)
        trials = [
            (f"trial {number}", values, study.trials(values, search_folder(number)))
            for number, how, values, _ in ended
            if how == "complete"
        ]
        page.add("Search", *_search_parts(study, search, ended))
    aucs = {f"trial {number}": auc or 0.0 for number, _, _, auc in ended}
    sentences: list[str] = []
    any_done = False
    for dataset in study.file.datasets:
        settings = _settings(trials, dataset)
        settings.sort(key=lambda setting: -aucs.get(setting.name, 0.0))  # a grid's stay as they are
        if not settings:
            continue
        any_done = True
        several = f" on {dataset}" if len(study.file.datasets) > 1 else ""
        sentences += add_settings(
            page,
            settings,
            study.file.measures or _measures(study, search is not None),
            _reference(study, settings, search is not None),
            reporter,
            where=several,
            most_compared=MOST_COMPARED if search is not None else None,
        )
    if not any_done:
        raise MerlinSimError(f"{study.root}: no run of this study has ended yet.")
    page.add("The study", *_described(study, trials))
    return WrittenReport(page.write(study.root / REPORT, NAME), sentences)


def _settings(trials: Sequence[Runs], dataset: str) -> list[RunGroup]:
    settings = []
    for name, values, runs in trials:
        found = [run.results() for run in runs if run.dataset == dataset and run.is_finished]
        done = [results for results in found if results is not None]
        if done:
            settings.append(RunGroup(name, values, done))
    return settings


def _measures(study: SettledStudy, searches: bool) -> Sequence[str]:
    if not searches or study.selected_by == "test":
        return MEASURES_OF_A_STUDY
    # By the first settings are compared: scores of test rows are those of a run's last epoch.
    return (WITH_SCORES, "best_test_auc", "best_validation_auc", *MEASURES_OF_A_STUDY)


def _reference(
    study: SettledStudy, settings: Sequence[RunGroup], searches: bool
) -> RunGroup | None:
    reference = study.file.reference
    if searches or not reference:
        return settings[0]
    fitting = [s for s in settings if all(s.values.get(n) == v for n, v in reference.items())]
    return fitting[0] if fitting else settings[0]


def _described(study: SettledStudy, trials: Sequence[Runs]) -> list[PageTable | Text]:
    runs = [run for _, _, runs in trials for run in runs]
    done = [results for run in runs if (results := run.results()) is not None and results.last]
    machines = sorted({shown_value(results.metadata.get("ranks")) for results in done})
    rows = [
        ["command", study.file.command],
        *([f"dataset {name}", str(path)] for name, path in study.file.datasets.items()),
        ["seeds", shown_value(list(study.file.seeds))],
        ["runs", f"{len(done)} ended of {len(runs)}"],
        ["ranks", ", ".join(machines)],
        *([name, shown_value(value)] for name, value in study.file.options.items()),
    ]
    return [PageTable(["", ""], rows)]


def _shortly(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shown_value(value)


def _ended(study: SettledStudy, search: Search) -> list[Ended]:
    """List the trials of a search that have ended."""
    if not (study.root / STORAGE).is_file():
        raise MerlinSimError(f"{study.root}: no run of this study has ended yet.")
    return SearchMemory(study.root, search).ended()


def _search_parts(
    study: SettledStudy, search: Search, ended: list[Ended]
) -> list[PageTable | Text]:
    selected_by = study.selected_by
    rows = [
        [
            str(number),
            how,
            *(_shortly(values.get(name)) for name in search.space),
            "" if auc is None else f"{auc:.4f}",
        ]
        for number, how, values, auc in sorted(
            ended, key=lambda entry: -(entry[3] or 0.0 if entry[1] == "complete" else -1.0)
        )
    ]
    text = f"The search maximizes the AUC of {selected_by} data."
    if selected_by == "test":
        text += (
            " The file asks for that (select_by: test): the best trial's AUC is chosen as the "
            "largest of many and is flattered by that."
        )
    return [Text(text), PageTable(["Trial", "", *search.space, f"{selected_by} AUC"], rows)]
