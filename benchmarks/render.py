"""Render docs/benchmarks.md, docs/quality.md and README.md from the records in benchmarks/records.

    .venv/bin/python benchmarks/render.py [--check]

What stands between the lines ``<!-- records -->`` and ``<!-- end of records -->`` is written anew.
With ``--check`` nothing is written: a page that the records do not give ends it with 1.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring.quality_logs import LOGS
from measuring.quality_models import MODELS, TRAINED
from measuring.quality_table import choosing_table, comparison, overview, read_outcomes
from measuring.records import MOST_LOAD, Table

REPOSITORY = Path(__file__).parents[1]
RECORDS = REPOSITORY / "benchmarks/records"
BEGIN, END = "<!-- records -->\n", "<!-- end of records -->"
CHOOSING = "purchases-light"
"""The log whose AUC stands in the table for choosing a model."""
NOTHING = "No record is kept of this version yet: `make bench-records` takes them.\n"
GPU_COMMAND = "`merlin-sim train --amp --xla --benchmark`, users"
"""The row of docs/gpu.md that README shows; that of rows follows it."""
HEADLINES = {
    "training step, the median one": "training steps at {} times its rate",
    "whole run with evaluation, from the start of the command": "whole runs in 1/{} of its time",
    "inference, 100 candidates a user": "inference at {} times its rate",
}

Record = dict[str, Any]


class RecordError(ValueError):
    """A record that no page may show."""


def read_records(folder: Path = RECORDS) -> list[Record]:
    """Read all records.

    Raises:
        RecordError: Naming one that is not for publication.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if not record["for_publication"] or record["load_before"] > MOST_LOAD:
            raise RecordError(f"{path.name} is of a try, at whatever load: no page shows it.")
        records.append(record)
    return sorted(records, key=lambda record: ("sim" not in record["name"], record["date"]))


def tables_of(record: Record) -> list[Table]:
    """Return a record's tables."""
    return [
        Table(table["title"], table["unit"], table["values"], table["baseline"])
        for table in record["tables"]
    ]


def number(value: float, unit: str) -> str:
    """Write a value as its unit is read."""
    digits = {"GB": 2, "s": 1, "processor s": 2}.get(unit, 0)
    return f"{value:,.{digits}f}"


def table_text(table: Table) -> str:
    """Write one table: the middle value, the least and the greatest, and times the baseline."""
    lines = [f"| {table.title} | {table.unit} | least to most | |", "|---|---:|---:|---:|"]
    for name, values in table.values.items():
        middle = number(statistics.median(values), table.unit)
        spread = " to ".join(number(v, table.unit) for v in (min(values), max(values)))
        times = table.times_baseline(name)
        reported = "" if times is None else f"{times:.2f}x"
        lines.append(f"| {name} | {middle} | {spread if len(values) > 1 else ''} | {reported} |")
    return "\n".join(lines) + "\n"


def section_head(record: Record) -> str:
    """Say how a record was measured."""
    machine = record["machine"]
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    return (
        f"`{record['command']}`, commit {record['commit'][:7]}, {record['date']}; "
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB; "
        f"load {record['load_before']} before, {record['load_after']} after with its own work; "
        f"others had {record['cores_of_others']} cores. {settings}.\n"
    )


def section(record: Record) -> str:
    """Write the section of one record; after its one epoch an AUC says nothing."""
    tables = "\n".join(table_text(table) for table in tables_of(record) if table.unit != "AUC")
    return f"### {record['title']}\n\n{section_head(record)}\n{tables}"


def headline(records: Sequence[Record]) -> str:
    """Write README's claim: from users, beside the published code itself."""
    lines = []
    for record in records:
        if not record["name"].startswith("sim-"):
            continue
        reported = []
        for table in tables_of(record):
            ways = [name for name in table.values if "users" in name]
            times = table.times_baseline(ways[0]) if ways else None
            if times is not None and table.title in HEADLINES:
                reported.append(HEADLINES[table.title].format(f"{times:.1f}"))
        if reported:
            machine = record["machine"]
            lines.append(
                f"- histories of {record['settings']['history']}: {', '.join(reported)} "
                f"({machine['cores']} cores, commit {record['commit'][:7]})\n"
            )
    if not lines:
        return NOTHING
    return f"Beside the published code itself, on the same samples and a CPU:\n\n{''.join(lines)}"


def gpu_headline(page: Path = REPOSITORY / "docs/gpu.md") -> str:
    """Write README's line on GPUs, of the table that docs/gpu.md has of its visits."""
    rows = [line.strip("| \n").split(" | ") for line in page.read_text().splitlines()]
    (cards,) = (row[1:] for row in rows if row[0] == "what" and len(row) > 2)
    (first,) = (index for index, row in enumerate(rows) if row[0].startswith(GPU_COMMAND))
    found = []
    for card, users, of_rows in zip(cards, rows[first][1:], rows[first + 1][1:], strict=True):
        samples, times = re.fullmatch(r"([\d,]+) \(([\d.]+)x\)", users).groups()
        slower = re.fullmatch(r"[\d,]+ \(([\d.]+)x\)", of_rows).group(1)
        found.append(
            f"{times} times its rate from users ({samples} samples/s) and {slower} times from rows "
            f"on an {card}"
        )
    said = ", ".join(found)
    return (
        "On a GPU, in float16 with XLA, one run each ([On a GPU](docs/gpu.md)): `train` at "
        f"{said}.\n"
    )


def rendered(page: str, text: str) -> str:
    """Put a text between the two marks of a page."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise RecordError(f"A page has no lines {BEGIN.strip()} and {END}.")
    return f"{before}{BEGIN}{text}{END}{after}"


def without_records(page: str) -> str:
    """Return what of a page is written by hand."""
    return re.sub(f"{BEGIN}.*?{END}", "", page, flags=re.DOTALL)


def quality(folder: Path = RECORDS / "quality") -> str:
    """Write the tables of docs/quality.md: what to choose by, then all logs."""
    outcomes = read_outcomes(folder)
    (costs,) = read_records(folder) or [None]
    if costs is None:
        choosing = "Cost and memory of scores were not run. The AUC stands in the next table.\n"
    else:
        choosing = f"AUC of the table below: {LOGS[CHOOSING].title}.\n\n{section_head(costs)}\n"
        choosing += choosing_table(outcomes, CHOOSING, costs, list(MODELS))
    logs = comparison(outcomes, {name: log.title for name, log in LOGS.items()}, TRAINED)
    return f"### Choosing a model\n\n{choosing}\n### All logs\n\n{logs}"


def models_overview(folder: Path = RECORDS / "quality") -> str:
    """Write README's results of models on logs, beside trees."""
    table = overview(read_outcomes(folder), list(LOGS), TRAINED)
    return f"On test samples of six logs, histories of 100 ([Quality](docs/quality.md)):\n\n{table}"


def pages(records: Sequence[Record]) -> dict[Path, str]:
    """Return the pages as the records give them."""
    texts = {
        "docs/benchmarks.md": "\n".join(map(section, records)) or NOTHING,
        "docs/quality.md": quality(),
        "README.md": f"{headline(records)}\n{gpu_headline()}\n{models_overview()}",
    }
    return {
        REPOSITORY / name: rendered((REPOSITORY / name).read_text(), text)
        for name, text in texts.items()
    }


def main() -> None:
    """Write the pages, or check them."""
    try:
        stale = {p: text for p, text in pages(read_records()).items() if p.read_text() != text}
    except RecordError as error:
        raise SystemExit(str(error)) from None
    if "--check" in sys.argv:
        if stale:
            raise SystemExit(f"{', '.join(path.name for path in stale)}: run benchmarks/render.py")
        return
    for path, text in stale.items():
        path.write_text(text)
        print(f"{path.relative_to(REPOSITORY)} is written")


if __name__ == "__main__":
    main()
