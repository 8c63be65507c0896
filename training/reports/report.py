"""One self-contained HTML page about one run or several, and its figures as PNG files."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from .run_results import RunResults, read_results

METRICS = {
    "test_auc": ("Test AUC", ".4f"),
    "test_gauc": ("Test AUC within users", ".4f"),
    "test_log_loss": ("Test log loss", ".4f"),
    "test_calibration_error": ("Test calibration error", ".4f"),
    "train_auc": ("Training AUC", ".4f"),
    "total_loss": ("Training loss", ".4f"),
    "throughput": ("Throughput (samples/s)", ",.0f"),
    "latency_p99": ("Step latency, 99% below (ms)", ".1f"),
    "time_to_train": ("Time to train (s)", ",.1f"),
    "peak_memory_gib": ("Peak memory (GiB)", ".2f"),
    "peak_gpu_memory_gib": ("Peak GPU memory (GiB)", ".2f"),
}
TITLES = {
    "loss": "How well it fits what it is shown, step by step.",
    "auc": "How well it ranks: 0.5 is guessing, 1 is perfect.",
    "roc": "Clicks found for each share of non-clicks let through.",
    "calibration": "Whether a predicted 30% is clicked 30% of the time; on the line is right.",
    "throughput": "Rows trained on per second.",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: left;
  border-bottom: 1px solid #ddd; vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
.best { font-weight: 700; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: auto; } figcaption { color: #555; }
"""


def write_report(results_dirs: list[Path], output: Path | None = None) -> Path:
    """Write the report of one run or several.

    Args:
        results_dirs: as given to ``--results_dir``; runs are named after them.
        output: directory of the report; by default ``report`` in the first results directory.

    Returns:
        The page.

    Raises:
        MerlinSimError: where a directory holds no run, or the report cannot be written.
    """
    runs = _named_apart([read_results(path) for path in results_dirs])
    output = output or results_dirs[0] / "report"
    from .figures import draw

    figures = draw(runs)
    try:
        output.mkdir(parents=True, exist_ok=True)
        images = {}
        for name, figure in figures.items():
            image = _png(figure)
            (output / f"{name}.png").write_bytes(image)
            images[name] = image
        page = output / "report.html"
        page.write_text(_page(runs, images), encoding="utf-8")
    except OSError as error:
        raise MerlinSimError(f"{output} cannot be written: {error.strerror}") from error
    return page


def _named_apart(runs: list[RunResults]) -> list[RunResults]:
    """Give runs whose directories have one name in common their whole path as name."""
    from dataclasses import replace

    names = [run.name for run in runs]
    return [replace(run, name=str(run.path)) if names.count(run.name) > 1 else run for run in runs]


def _png(figure: Any) -> bytes:
    from matplotlib import pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    plt.close(figure)
    return buffer.getvalue()


def _page(runs: list[RunResults], images: dict[str, bytes]) -> str:
    title = "Run " + runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    figures = "".join(_figure(name, image) for name, image in images.items())
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>"
        f"<h2>Metrics</h2>{_metrics_table(runs)}"
        f"<h2>Figures</h2><div class='figures'>{figures}</div>"
        f"<h2>{'Configuration' if len(runs) == 1 else 'What differs'}</h2>{_config_table(runs)}"
        "</html>\n"
    )


def _figure(name: str, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    caption = html.escape(TITLES[name])
    return (
        f"<figure><img alt='{caption}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _metrics_table(runs: list[RunResults]) -> str:
    rows = []
    for key, (title, form) in METRICS.items():
        values = [_metric(run, key) for run in runs]
        if any(value is not None for value in values):
            cells = ["" if value is None else format(value, form) for value in values]
            rows.append([title, *cells])
    return _table(["", *(run.name for run in runs)], rows)


def _metric(run: RunResults, key: str) -> float | None:
    last_epoch = run.epochs[-1] if run.epochs else {}
    value = run.last.get(key, last_epoch.get(key))
    return None if value is None else float(value)


def _config_table(runs: list[RunResults]) -> str:
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
            rows.append([key, *("" if value is None else str(value) for value in values)])
    return _table(["", *(run.name for run in runs)], rows) if rows else "<p>Nothing.</p>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
