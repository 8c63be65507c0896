"""Measures this package on a GPU, and prints one markdown table: ``scripts/check_gpu.sh`` runs it.

Every line is a run of the command line, as a person would start it, or a few lines of Python in a
process of their own. These variables steer it:

    GPU_TABLE_LINES              only lines whose name has a match of this regular expression
    GPU_TABLE_ROWS               rows of the made-up dataset (default 262144)
    GPU_TABLE_STEPS              steps that are measured, after 20 (default 80)
    GPU_TABLE_USERS              users of the logs that are preprocessed (default 100000)
    GPU_TABLE_PUBLISHED          folder of the published implementation, to run beside ours
    GPU_TABLE_PUBLISHED_DATA     dataset of the same rows as its own preprocessing writes them
    GPU_TABLE_PUBLISHED_PACKAGES folder of packages that only it needs
    GPU_TABLE_PUBLISHED_OPTIONS  more of its options, such as --prebatch_train_size 8192
"""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

from gpu.lines_of_datasets import click_lines, precision_line, preprocessing_lines
from gpu.lines_of_histories import BATCHES, other_lines, training_lines, users_lines
from gpu.lines_of_published import published_lines
from gpu.measured_runs import ROWS, Failed, Line
from rows import sim_rows

from merlin_sim.foundation.gpus import Gpus, look

LINES = re.compile(os.environ.get("GPU_TABLE_LINES", ""))


def head(gpus: Gpus) -> list[Line]:
    """Machine, driver, versions, date."""
    versions = []
    for package in ("tensorflow", "merlin-models", "nvtabular", "cudf-cu12", "cupy-cuda12x"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return [
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")),
        ("GPU", ", ".join(gpu.name for gpu in gpus.visible)),
        ("driver", f"{gpus.driver}, CUDA {gpus.cuda[0]}.{gpus.cuda[1]}"),
        ("machine", f"{platform.machine()}, {os.cpu_count()} CPU cores"),
        ("versions", ", ".join(versions)),
    ]


def main() -> None:
    """Print the table line by line; what fails says so in its line."""
    gpus = look()
    if not gpus.visible:
        sys.exit(f"gpu table: there is no GPU: {gpus.problem or 'none visible'}")
    print("| what | measured |\n|---|---|")
    for name, value in head(gpus):
        print(f"| {name} | {value} |", flush=True)
    sim_rows.TEST_ROWS = max(BATCHES)  # one whole batch of the largest
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        dataset = root / "dataset"
        of_rows = [*training_lines(dataset), *other_lines(dataset)]
        if any(LINES.search(name) for name, _ in of_rows):
            sim_rows.write_dataset(dataset, ROWS)
        lines = itertools.chain(
            of_rows,
            users_lines(root),
            published_lines(),
            preprocessing_lines(root),
            precision_line(root),
            click_lines(root),
        )
        for name, figures in lines:
            if not LINES.search(name):
                continue
            try:
                print(f"| {name} | {figures()} |", flush=True)
            except Failed as error:
                print(f"| {name} | {error} |", flush=True)


if __name__ == "__main__":
    main()
