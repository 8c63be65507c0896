"""What `merlin-sim data check` takes on ten million samples, of users' rows and of stored ones.

    python benchmarks/checks/bench_check.py [--rows 5150000]

Makes a log, preprocesses it in both layouts, and checks each: processor seconds, start included,
and the peak memory of the process. The datasets go to the temporary directory, and are removed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from measuring.records import Recording  # noqa: E402

USERS_OF, ITEMS = 86, 200_000
COLUMNS = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
FEATURES = ("--item_feature_columns", "brand", "--user_feature_columns", "country")


def write_log(path: Path, rows: int) -> None:
    """Write the log, some items in many of its rows."""
    random = np.random.default_rng(0)
    who = random.integers(0, max(1, rows // USERS_OF), rows)
    what = np.minimum((random.pareto(1.1, rows) * 800).astype(np.int64), ITEMS - 1)
    when = random.integers(1_600_000_000, 1_700_000_000, rows)
    log = {"who": who, "what": what, "when": when, "brand": what % 997, "country": who % 50}
    pd.DataFrame(log).to_parquet(path, row_group_size=500_000)


def run(*words: str) -> tuple[float, float, float, str]:
    """Run a command; gives processor seconds, seconds, gigabytes at its peak, what it printed."""
    command = [str(Path(sys.executable).parent / "merlin-sim"), *words]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    seconds = time.perf_counter() - begin
    return usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss / 1e6, printed


def main() -> None:
    """Measure both layouts, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_150_000)
    rows = parser.parse_args().rows
    recording = Recording("check", "Checks", {"rows": rows})
    found: dict[str, dict[str, list[float]]] = {"processor s": {}, "s": {}, "GB": {}}
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.parquet"
        write_log(log, rows)
        for layout in ("users", "samples"):
            dataset = Path(name) / layout
            options = ("--layout", layout, "--scheduler", "single", "--output_path", str(dataset))
            *_, said = run("preprocess", "log", str(log), *COLUMNS, *FEATURES, *options)
            samples = next(line for line in said.splitlines() if line.startswith("rows: "))
            processor, seconds, memory, _ = run("data", "check", "--dataset_dir", str(dataset))
            print(f"{layout:8} {samples}", flush=True)
            for unit, value in zip(found, (processor, seconds, memory), strict=True):
                found[unit][layout] = [value]
    for unit, values in found.items():
        recording.table("peak memory" if unit == "GB" else "merlin-sim data check", unit, values)
    recording.end()


if __name__ == "__main__":
    main()
