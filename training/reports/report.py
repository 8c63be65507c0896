"""One page about one run or several: figures, metrics, and which differences are noise."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ..statistics.settings import Setting, settings_of, shown_value
from .comparison import HOW_TO_READ, Differences, comparison_parts, spread_table
from .measures import MEASURES
from .page import Figures, Page, Table, Text
from .run_results import RunResults, read_results

TITLES = {
    "loss": "How well it fits what it is shown, step by step.",
    "auc": "How well it ranks: 0.5 is guessing, 1 is perfect.",
    "roc": "Clicks found for each share of non-clicks let through.",
    "calibration": "Whether a predicted 30% is clicked 30% of the time; on the line is right.",
    "throughput": "Rows trained on per second.",
}
SPREAD_OF = ("test_auc", "test_log_loss", "throughput", "time_to_train")
"""Of which measures a page tells the spread, where it is not told which."""
SIDE_BY_SIDE = 12
"""Runs that a table has room for, a column each; of more, the page shows settings alone."""


@dataclass(frozen=True)
class Report:
    """A page that was written."""

    page: Path
    sentences: Sequence[str]
    """What it says of differences, a line each."""


def write_report(
    results_dirs: list[Path], output: Path | None = None, narrator: Narrator | None = None
) -> Report:
    """Write the report of one run or several.

    Args:
        results_dirs: as given to ``--results_dir``; runs are named after them. Those that differ in
            their seed alone are one setting; the first setting is what others are compared with.
        output: directory of the report; by default ``report`` in the first results directory.
        narrator: hears of long work.

    Raises:
        MerlinSimError: where a directory holds no run or is named twice, or the report cannot be
            written.
    """
    _require_each_once(results_dirs)
    runs = _named_apart([read_results(path) for path in results_dirs])
    title = "Run " + runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    page = Page(title)
    sentences: Sequence[str] = ()
    if len(runs) > 1:
        sentences = add_settings(page, settings_of(runs), SPREAD_OF, narrator=narrator)
    add_runs(page, runs)
    return Report(page.write(output or results_dirs[0] / "report", "report"), sentences)


def add_runs(page: Page, runs: Sequence[RunResults]) -> None:
    """Tell of runs one by one: metrics, curves, and how their configurations differ."""
    from .figures import draw

    if len(runs) <= SIDE_BY_SIDE:
        page.add("Metrics", _metrics_table(runs))
    page.add("Figures", Figures(as_images(draw(list(runs)), TITLES)))
    if len(runs) <= SIDE_BY_SIDE:
        page.add("Configuration" if len(runs) == 1 else "What differs", _config_table(runs))


def add_settings(
    page: Page,
    settings: Sequence[Setting],
    measures: Iterable[str],
    reference: Setting | None = None,
    narrator: Narrator | None = None,
    where: str = "",
    most_compared: int | None = None,
) -> Sequence[str]:
    """Tell how runs spread and how settings differ; return a sentence for each difference.

    Args:
        page: what is added to.
        settings: at least one.
        measures: by name; the first that runs have is what settings are compared by.
        reference: what they are compared with; the first by default.
        narrator: hears of long work.
        where: on which of several datasets.
        most_compared: settings beside the reference, from the first on; all by default.
    """
    from .setting_figures import CAPTIONS, draw_settings

    tables = {name: spread_table(settings, name) for name in measures}
    found = {name: table for name, table in tables.items() if table is not None}
    if not found:
        page.add(f"Spread{where}", Text("No run measured anything."))
        return ()
    main = next(iter(found))
    page.add(f"Spread{where}", *found.values(), Text(HOW_TO_READ))
    compared = settings if most_compared is None else settings[: most_compared + 1]
    differences = Differences(compared, main, reference, narrator)
    if differences.found:
        page.add(f"Differences{where}", *comparison_parts(differences))
    images = as_images(draw_settings(settings, main), CAPTIONS)
    if images:
        suffix = re.sub(r"[^\w.-]+", "-", where)
        named = {f"{name}{suffix}": image for name, image in images.items()}
        page.add(f"Settings{where}", Figures(named))
    return [f"{said}{where}" for said in differences.sentences()] if differences.found else ()


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


def _metrics_table(runs: Sequence[RunResults]) -> Table:
    rows = []
    for name, measure in MEASURES.items():
        values = [run.metric(name) for run in runs]
        if any(value is not None for value in values):
            rows.append([measure.title, *map(measure.shown, values)])
    return Table(["", *(run.name for run in runs)], rows)


def _config_table(runs: Sequence[RunResults]) -> Table | Text:
    described = [
        {
            **run.config,
            "ranks": run.facts.get("ranks"),
            "dataset": (run.facts.get("dataset") or {}).get("fingerprint"),
            "started": run.facts.get("started"),
        }
        for run in runs
    ]
    rows = []
    for key in dict.fromkeys(name for config in described for name in config):
        values = [config.get(key) for config in described]
        if len(runs) == 1 or any(value != values[0] for value in values):
            rows.append([key, *("" if v is None else shown_value(v) for v in values)])
    return Table(["", *(run.name for run in runs)], rows) if rows else Text("Nothing.")
