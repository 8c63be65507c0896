"""A process that is killed while it writes leaves what was there, or what it was to write.

Another process writes datasets of what is in a directory. Before its n-th call that changes a file
system DIRECTORY/live is copied to DIRECTORY/n: what a kill there would leave. It changes in one
thread: a copy that is made while another one writes is of no moment at all.
"""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from killed_saves import before_each_change
from preprocess_runs import all_bytes
from processes import run
from warm import warm

from merlin_sim.scripts.main import cli

from .good_datasets import Good, make_table

LOG = """preprocess log {home}/log.csv --user_column who --item_column what --timestamp_column when
    --shortest_sequence_for_user 3 --scheduler single --output_path {home}/live/dataset"""
TRANSCODE = "data transcode --input {home}/clicks --output {home}/live/clicks --to"
WRITES = {
    "a dataset of a log": LOG,
    "tfrecord": f"{TRANSCODE} tfrecord",
    "parquet in its place": f"{TRANSCODE} parquet --overwrite",
}


def let_pools_have_one_thread() -> None:
    make = ThreadPoolExecutor.__init__

    def make_of_one(pool, max_workers=None, *arguments, **keywords) -> None:
        make(pool, 1, *arguments, **keywords)

    ThreadPoolExecutor.__init__ = make_of_one


def write_all(home: Path) -> None:
    let_pools_have_one_thread()
    live = home / "live"
    live.mkdir()
    before_each_change(lambda call: shutil.copytree(live, home / str(call), symlinks=True))
    (home / "first").open("w").close()  # from which on they are counted
    for name, words in WRITES.items():
        cli.main([word.format(home=home) for word in words.split()], standalone_mode=False)
        shutil.copytree(live, home / name)
    os._exit(0)  # what is changed at the end of a process does not count


@pytest.mark.slow
def test_nothing_half_written_is_taken_for_whole(tmp_path):
    lines = [f"u{n % 5},i{n * n % 7},{n}" for n in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["who,what,when", *lines]))
    names = ["train/part.0.parquet", "train/part.1.parquet", "test/part.0.parquet"]
    tables = {name: make_table("clicks", 9, 1) for name in names}
    Good("clicks", tables, {}).write(tmp_path / "clicks")
    (tmp_path / "write.py").write_text(
        f"import sys\nsys.path[:0] = {sys.path}\n"
        f"from attack.test_kills import Path, write_all\nwrite_all(Path({str(tmp_path)!r}))\n"
    )
    done = run(warm(str(tmp_path / "write.py")))
    assert done.returncode == 0, done.stderr
    whole = [all_bytes(tmp_path / name) for name in WRITES]
    killed = [path for path in tmp_path.iterdir() if path.name.isdigit()]
    assert len(killed) > 50
    seen = set()
    for directory in killed:
        for name in ("dataset", "clicks"):
            left, *states = (
                {path: content for path, content in state.items() if path.startswith(f"{name}/")}
                for state in (all_bytes(directory), *whole)
            )
            assert not left or left in states, f"{directory.name}: {sorted(left)}"
            seen.add((name, states.index(left) if left else None))
    ends = {("dataset", None), ("dataset", 0), ("clicks", None), ("clicks", 1)}
    assert ends <= seen <= ends | {("clicks", 2)}
