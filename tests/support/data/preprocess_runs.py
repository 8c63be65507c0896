"""Small raw logs, and the command lines that preprocess them in many tasks."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from merlin_sim.scripts.main import cli
from merlin_sim.workflows import amazon, schedulers, text_lines
from merlin_sim.workflows.criteo import build_criteo
from merlin_sim.workflows.preprocess import user_buckets, write_samples
from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize
from merlin_sim.workflows.synthetic.click_days import PlantedClicks, synthesize_days

LOG = (
    "preprocess", "log", "{raw}/log.parquet", "--user_column", "user", "--item_column", "item",
    "--timestamp_column", "time", "--item_feature_columns", "category", "--label_column", "taken",
)  # fmt: skip
REVIEWS = ("preprocess", "amazon-books", "--amazon_dataset_path", "{raw}/books", "--output_path")
CLICKS = ("preprocess", "criteo", "--criteo_path", "{raw}/days", "--output_path")
COMMANDS = {
    "amazon-books, users": (*REVIEWS[:2], "--layout", "users", *REVIEWS[2:]),
    "log": (*LOG, "--output_path"),
    "criteo": (*CLICKS[:2], "--frequency_threshold", "3", *CLICKS[2:]),
}
"""By name, a command line that ends before the output directory; ``{raw}`` has the logs."""


def write_raw_logs(directory: Path) -> None:
    """Write ``books``, ``log.parquet`` and ``days``, which COMMANDS read."""
    behaviour = PlantedBehaviour(users=40, items=90, categories=6, mean_length=30, seed=5)
    (directory / "books").mkdir()
    (directory / "days").mkdir()
    synthesize(directory / "books", behaviour, missing_metadata=0.1)
    synthesize_days(directory / "days", PlantedClicks(150, most_keys=60, seed=4), 3)
    random = np.random.default_rng(3)
    users, items = random.integers(0, 30, 900), random.integers(0, 50, 900)
    table = {
        "user": pa.array([f"u{user}" for user in users]),
        "item": pa.array([f"i{item}" for item in items]),
        "time": pa.array(np.arange(900)),
        "category": pa.array([f"c{item % 7}" for item in items]),
        "taken": pa.array(random.integers(0, 2, 900)),
    }
    pq.write_table(pa.table(table), directory / "log.parquet", row_group_size=250)


def cut_small(monkeypatch) -> None:
    """Have each phase of these small logs cut into several tasks."""
    cut = text_lines.line_blocks
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(amazon, "line_blocks", lambda path, _=None: cut(path, 30_000))
    monkeypatch.setattr(build_criteo, "ROWS_PER_COUNT", 120)
    monkeypatch.setattr(user_buckets, "BYTES_PER_BUCKET", 40_000)
    monkeypatch.setattr(write_samples, "ROWS_PER_FILE", 500)


def preprocess(monkeypatch, raw: Path, name: str, output: Path, scheduler) -> None:
    """Run a command of COMMANDS with a scheduler; its error is raised here."""

    @contextmanager
    def opened(*_):
        yield scheduler

    with monkeypatch.context() as patched:
        patched.setattr(schedulers, "open_scheduler", opened)
        command = [word.format(raw=raw) for word in COMMANDS[name]]
        result = CliRunner().invoke(cli, [*command, str(output)])
    if result.exception:
        raise result.exception


def all_bytes(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by its name there."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
