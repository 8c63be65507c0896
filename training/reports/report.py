"""One page about one run or several: figures, metrics, and which differences are noise."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter, Silence
from ...foundation.settings import shown_value
from ..evaluation.scored_rows import TEST_SCORES, ScoredRows
from .difference import BEYOND_USERS, NOISE, UNKNOWN, Difference, difference, normality
from .page import Figures, Page, PageTable, Text
from .run_results import MEASURES, RunResults, read_results
from .settings import RunGroup, settings_of
from .user_bootstrap import UserBootstrap

WITH_SCORES = "test_auc"
"""The measure that scores of test rows give."""
HOW_TO_READ = (
    "Std is by one less than the runs. The p of normality is Kolmogorov and Smirnov's, with mean "
    "and deviation of the values themselves (Lilliefors): how often normal values would be as far "
    "from normal; below 0.05, mean and deviation say little."
)
HOW_TO_READ_DIFFERENCES = (
    "An interval holds the difference in 95 of 100 such comparisons: that over users is what other "
    "test users would change (1,000 sets of them drawn with replacement, the same sets for both "
    "settings), that over seeds what other seeds would change as well. The last column follows the "
    "last of them that is there: what holds 0 is noise. Without other seeds nothing is called "
    "better or worse: it is beyond what users change. p is of the two-sample Kolmogorov-Smirnov "
    "test. Of many comparisons one in twenty is beyond its interval by chance alone."
)


def spread_table(settings: Sequence[RunGroup], measure: str) -> PageTable | None:
    """Tabulate what runs measured, one row a setting; None where no run measured it."""
    form = MEASURES[measure]
    rows = []
    for setting in settings:
        values = setting.measured(measure)
        if not values:
            continue
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        spread = (float(np.mean(values)), deviation, min(values), max(values))
        tested = normality(values)
        normal = "" if tested is None else f"{tested.p:.3f}"
        rows.append([setting.name, str(len(values)), *map(form.shown, spread), normal])
    head = [form.title, "Runs", "Mean", "Std", "Min", "Max", "Normal: p"]
    return PageTable(head, rows) if rows else None


class Differences:
    """Compares settings with one of them, by default the first.

    The reporter reports progress of the draws of test users, which take a while.
    """

    def __init__(
        self,
        settings: Sequence[RunGroup],
        measure: str,
        reference: RunGroup | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.measure = MEASURES[measure]
        self.notes: list[str] = []
        measured = [setting for setting in settings if setting.measured(measure)]
        first = measured[0] if measured else None
        self.reference = reference if reference in measured else first
        self.found: dict[str, Difference] = {}
        if self.reference is None or len(measured) < 2:
            return
        drawn = self._draw(measured, measure, reporter or Silence())
        for setting in measured:
            if setting is not self.reference:
                self.found[setting.name] = difference(
                    setting.measured(measure),
                    self.reference.measured(measure),
                    drawn.get(setting.name),
                    drawn.get(self.reference.name),
                )
        if any(found.over_seeds is None for found in self.found.values()):
            self.notes.append(
                "A setting of one run says nothing of what another seed would change, which is "
                "often more than what other users would: run each with several seeds."
            )

    def _draw(self, settings: list[RunGroup], measure: str, reporter: Reporter) -> dict[str, Any]:
        """Compute the AUCs on drawn users of each setting whose runs all have kept scores."""
        if measure != WITH_SCORES:
            return {}
        kept = [s for s in settings if all((r.path / TEST_SCORES).is_file() for r in s.runs)]
        if len(kept) < len(settings):
            self.notes.append(
                "Runs without --save_scores kept no scores of test rows: what other test users "
                "would change is not in their intervals."
            )
        if len(kept) < 2:
            return {}
        drawn: dict[str, Any] = {}
        bootstrap: UserBootstrap | None = None
        runs = sum(len(setting.runs) for setting in kept)
        with reporter.phase("drawing test users", runs) as report:
            for setting in kept:
                aucs = []
                for run in setting.runs:
                    rows = ScoredRows.read(run.path / TEST_SCORES)
                    bootstrap = bootstrap or UserBootstrap(rows)
                    try:
                        aucs.append(bootstrap.aucs(rows))
                    except MerlinSimError as error:
                        self.notes.append(f"{setting.name}: {error}")
                        break
                    report(1, len(rows.users))
                else:
                    drawn[setting.name] = np.stack(aucs)
        return drawn

    def verdict(self, name: str) -> str:
        """Say what to make of the difference of a setting."""
        return self.found[name].verdict(self.measure.more_is_better)

    def table(self) -> PageTable:
        """Tabulate the differences, one row a setting."""
        rows = []
        for name, found in self.found.items():
            p = "" if found.distributions is None else f"{found.distributions.p:.4f}"
            intervals = map(self._shown, (found.over_users, found.over_seeds))
            mean = format(found.mean, "+" + self.measure.form)
            rows.append([name, mean, *intervals, p, self.verdict(name)])
        head = ["", "Difference", "95% over users", "95% over users and seeds", "KS: p", ""]
        return PageTable(head, rows)

    def _shown(self, interval: tuple[float, float] | None) -> str:
        if interval is None:
            return ""
        return " to ".join(format(end, "+" + self.measure.form) for end in interval)

    def sentences(self) -> list[str]:
        """Say what stands in the table, one line a setting."""
        sentences = []
        assert self.reference is not None
        for name, found in self.found.items():
            verdict = self.verdict(name)
            mean = format(found.mean, "+" + self.measure.form)
            if verdict == UNKNOWN:
                what = "whether that is noise is not known from single runs without scores"
            elif verdict == BEYOND_USERS:
                what = (
                    f"more than other test users would change: 95% {self._shown(found.interval)}; "
                    "what other seeds would, single runs do not show"
                )
            elif verdict == NOISE:
                what = f"noise: 95% {self._shown(found.interval)}"
            else:
                what = f"{verdict}: 95% {self._shown(found.interval)}"
            sentences.append(f"{self.measure.title} of {name}: {mean}, {what}")
        return sentences


def comparison_parts(differences: Differences) -> list[Text | PageTable]:
    """Return what a page says of differences."""
    assert differences.reference is not None
    lead = f"{differences.measure.title}, compared with {differences.reference.name}."
    notes = [Text(note) for note in differences.notes]
    return [Text(lead), differences.table(), *notes, Text(HOW_TO_READ_DIFFERENCES)]


TITLES = {
    "loss": "How well it fits what it is shown, step by step.",
    "auc": "How well it ranks: 0.5 is guessing, 1 is perfect.",
    "roc": "Clicks found for each share of non-clicks let through.",
    "calibration": "Whether a predicted 30% is clicked 30% of the time; on the line is right.",
    "throughput": "Rows trained on per second.",
}
SPREAD_OF = ("test_auc", "test_log_loss", "throughput", "time_to_train")
"""Of which measures a page shows the spread, unless others are given."""
SIDE_BY_SIDE = 12
"""Runs that a table has room for, a column each; of more, the page shows settings alone."""


@dataclass(frozen=True)
class WrittenReport:
    """A page that was written."""

    page: Path
    sentences: Sequence[str]
    """What it says of differences, a line each."""


def write_report(
    results_dirs: list[Path], output: Path | None = None, reporter: Reporter | None = None
) -> WrittenReport:
    """Write the report of one run or several, by default to ``report`` in the first directory.

    Runs are named after their results directories. Those that differ in their seed alone are one
    setting; the first setting is what others are compared with.
    """
    _require_each_once(results_dirs)
    runs = _named_apart([read_results(path) for path in results_dirs])
    title = "Run " + runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    page = Page(title)
    sentences: Sequence[str] = ()
    if len(runs) > 1:
        sentences = add_settings(page, settings_of(runs), SPREAD_OF, reporter=reporter)
    add_runs(page, runs)
    return WrittenReport(page.write(output or results_dirs[0] / "report", "report"), sentences)


def add_runs(page: Page, runs: Sequence[RunResults]) -> None:
    """Report runs one by one: metrics, curves, and how their configurations differ."""
    from .figures import draw

    if len(runs) <= SIDE_BY_SIDE:
        page.add("Metrics", _metrics_table(runs))
    page.add("Figures", Figures(as_images(draw(list(runs)), TITLES)))
    if len(runs) <= SIDE_BY_SIDE:
        page.add("Configuration" if len(runs) == 1 else "What differs", _config_table(runs))


def add_settings(
    page: Page,
    settings: Sequence[RunGroup],
    measures: Iterable[str],
    reference: RunGroup | None = None,
    reporter: Reporter | None = None,
    where: str = "",
    most_compared: int | None = None,
) -> Sequence[str]:
    """Report how runs spread and how settings differ; return a sentence for each difference.

    Settings are compared by the first of the measures that runs have, with the reference, by
    default the first setting; ``most_compared`` of them at most. ``where`` is on which of several
    datasets.
    """
    from .figures import CAPTIONS, draw_settings

    tables = {name: spread_table(settings, name) for name in measures}
    found = {name: table for name, table in tables.items() if table is not None}
    if not found:
        page.add(f"Spread{where}", Text("No run measured anything."))
        return ()
    main = next(iter(found))
    page.add(f"Spread{where}", *found.values(), Text(HOW_TO_READ))
    compared = settings if most_compared is None else settings[: most_compared + 1]
    differences = Differences(compared, main, reference, reporter)
    if differences.found:
        page.add(f"Differences{where}", *comparison_parts(differences))
    images = as_images(draw_settings(settings, main), CAPTIONS)
    if images:
        suffix = re.sub(r"[^\w.-]+", "-", where)
        named = {f"{name}{suffix}": image for name, image in images.items()}
        page.add(f"Settings{where}", Figures(named))
    return [f"{one}{where}" for one in differences.sentences()] if differences.found else ()


def as_images(
    figures: Mapping[str, Any], captions: Mapping[str, str]
) -> dict[str, tuple[bytes, str]]:
    """Turn drawn figures into PNGs with their captions."""
    return {name: (_png(figure), captions[name]) for name, figure in figures.items()}


def _require_each_once(results_dirs: Sequence[Path]) -> None:
    """Refuse a run that would count as two."""
    seen: dict[Path, Path] = {}
    for path in results_dirs:
        before = seen.setdefault(path.resolve(), path)
        if before is not path:
            raise MerlinSimError(f"runs should be named once each. Received: {before} and {path}.")


def _named_apart(runs: list[RunResults]) -> list[RunResults]:
    """Give runs whose directories have one name in common their whole path as name."""
    names = [run.name for run in runs]
    return [replace(run, name=str(run.path)) if names.count(run.name) > 1 else run for run in runs]


def _png(figure: Any) -> bytes:
    from matplotlib import pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    plt.close(figure)
    return buffer.getvalue()


def _metrics_table(runs: Sequence[RunResults]) -> PageTable:
    rows = []
    for name, measure in MEASURES.items():
        values = [run.metric(name) for run in runs]
        if any(value is not None for value in values):
            rows.append([measure.title, *map(measure.shown, values)])
    return PageTable(["", *(run.name for run in runs)], rows)


def _config_table(runs: Sequence[RunResults]) -> PageTable | Text:
    described = [
        {
            **run.config,
            "ranks": run.metadata.get("ranks"),
            "dataset": (run.metadata.get("dataset") or {}).get("fingerprint"),
            "ids fitted on rows": (run.metadata.get("dataset") or {}).get("fitted_on"),
            "started": run.metadata.get("started"),
        }
        for run in runs
    ]
    rows = []
    for key in dict.fromkeys(name for config in described for name in config):
        values = [config.get(key) for config in described]
        if len(runs) == 1 or any(value != values[0] for value in values):
            rows.append([key, *("" if v is None else shown_value(v) for v in values)])
    return PageTable(["", *(run.name for run in runs)], rows) if rows else Text("Nothing.")
