"""Results of a benchmark: printed, and where a machine is quiet kept as a JSON record.

With ``MERLIN_SIM_RECORDS=benchmarks/records`` in the environment what a benchmark measures is kept:
commit, date, machine, load, command, settings, and every single value. Nothing is kept that was
measured at a load above 1, or of files that no commit has. ``MERLIN_SIM_RECORDS_TRY=1`` is for
trying a benchmark out: it keeps a record whatever the load, and no page shows it.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LESS_IS_BETTER = ("s", "processor s", "GB")
MOST_LOAD = 1.0
WAIT_SECONDS = 240
FOLDER, TRY = "MERLIN_SIM_RECORDS", "MERLIN_SIM_RECORDS_TRY"
REPOSITORY = Path(__file__).parents[2]
RENDERED = ("benchmarks/records/", "docs/benchmarks.md", "docs/quality.md", "README.md")
"""What recording and rendering change: it may differ from the commit."""


class NotQuietError(SystemExit):
    """The machine does something else, or the files are of no commit."""


@dataclass
class Table:
    """One thing measured in several ways."""

    title: str
    unit: str
    values: dict[str, list[float]]
    baseline: str | None = None
    """The way that the others are given as multiples of."""

    def medians(self) -> dict[str, float]:
        """Return the middle value of each way."""
        return {name: statistics.median(found) for name, found in self.values.items()}

    def times_baseline(self, name: str) -> float | None:
        """Return how many times as good as the baseline a way is."""
        medians = self.medians()
        if self.baseline not in medians or self.unit == "AUC":
            return None
        way, other = medians[name], medians[self.baseline]
        return other / way if self.unit in LESS_IS_BETTER else way / other


def load() -> float:
    """Return the average of the last minute."""
    return os.getloadavg()[0]


def wait_until_quiet(most: float = MOST_LOAD, seconds: float = WAIT_SECONDS) -> float:
    """Wait for what ran before to be forgotten; return the load.

    Raises:
        NotQuietError: Where it stays above ``most``.
    """
    end = time.monotonic() + seconds
    while load() > most:
        if time.monotonic() > end:
            raise NotQuietError(
                f"The load is {load():.1f}, and nothing is recorded above {most:g}: end what else "
                f"runs on this machine, or leave {FOLDER} out to measure without a record."
            )
        time.sleep(5)
    return load()


def machine() -> dict[str, Any]:
    """Describe the processor, its cores and the memory."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }


def own_seconds() -> float:
    """Return the processor seconds of this process and of its own, those that live included."""
    own = os.times()
    living = sum(sum(child.cpu_times()[:4]) for child in psutil.Process().children())
    return own.user + own.system + own.children_user + own.children_system + living


def git(*words: str) -> str:
    """Ask git about this repository."""
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *words], check=True, capture_output=True, text=True
    ).stdout


def commit() -> str:
    """Return the commit that the files are of.

    Raises:
        NotQuietError: Naming a file that differs from it.
    """
    changed = [line[3:] for line in git("status", "--porcelain").splitlines()]
    changed = [name for name in changed if not name.startswith(RENDERED)]
    if changed:
        raise NotQuietError(f"Commit {changed[0]} first: a record names the commit it is of.")
    return git("rev-parse", "HEAD").strip()


@dataclass
class Recording:
    """The tables of one benchmark.

    Args:
        name: Of the record's file.
        title: Of the section that shows it.
        settings: What was measured with.
    """

    name: str
    title: str
    settings: dict[str, Any]
    tables: list[Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse to measure what could not be kept."""
        self.folder = os.environ.get(FOLDER)
        self.is_try = bool(os.environ.get(TRY))
        if self.folder is None:
            self.commit, self.load_before = "", load()
        elif self.is_try:
            self.commit, self.load_before = git("rev-parse", "HEAD").strip(), load()
        else:
            self.commit, self.load_before = commit(), wait_until_quiet()
        self.begin = time.monotonic(), self._busy()

    def _busy(self) -> float:
        """Return the processor seconds of this machine but those of this process and its own."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        return sum(times[: 7 if len(times) > 6 else None]) - idle - own_seconds()

    def table(
        self, title: str, unit: str, values: dict[str, list[float]], baseline: str | None = None
    ) -> None:
        """Keep one table, and print it."""
        made = Table(title, unit, {n: v for n, v in values.items() if v}, baseline)
        self.tables.append(made)
        print(f"{title}, {unit} (load {load():.1f})")
        for name, median in made.medians().items():
            times = made.times_baseline(name)
            reported = "" if times is None else f"{times:9,.2f}x"
            print(f"  {name:52} {median:>14,.4g}{reported}", flush=True)

    def end(self) -> None:
        """Write the record, where one is asked for."""
        if self.folder is None:
            return
        begin, busy = self.begin
        others = max(0.0, self._busy() - busy) / max(1e-9, time.monotonic() - begin)
        if others > MOST_LOAD and not self.is_try:
            raise NotQuietError(
                f"Other processes had {others:.1f} cores while this ran: {self.name} is not kept."
            )
        record = {
            "name": self.name,
            "title": self.title,
            "for_publication": not self.is_try,
            "commit": self.commit,
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "load_before": round(self.load_before, 2),
            "load_after": round(load(), 2),
            "cores_of_others": round(others, 2),
            "command": " ".join(
                ["python", os.path.relpath(sys.argv[0], REPOSITORY), *sys.argv[1:]]
            ),
            "settings": self.settings,
            "tables": [
                {
                    "title": table.title,
                    "unit": table.unit,
                    "baseline": table.baseline,
                    "values": table.values,
                }
                for table in self.tables
            ],
        }
        path = Path(self.folder) / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{path} is written", flush=True)
