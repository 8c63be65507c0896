"""Ctrl-C ends `preprocess` with a message, exit code 75 and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# The run stands still in the middle of its work, after it has said so. A shell that runs the
# suite in the background makes it deaf to Ctrl-C; the shell of a person does not.
HELD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from merlin_sim.scripts import main
from merlin_sim.workflows.preprocess import dataset_writer

def hold(*_):
    print("working", flush=True)
    while True:
        signal.pause()

dataset_writer.write_item_changes = hold
main.main()
"""


@pytest.mark.slow
def test_ctrl_c_stops_the_run(raw, tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-c", HELD, "preprocess", "amazon-books",
            "--amazon_dataset_path", str(raw), "--output_path", str(tmp_path / "dataset"),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "working\n"
        assert (tmp_path / "dataset.partial").is_dir()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=280)
    finally:
        process.kill()
    assert process.returncode == 75, errors
    assert "merlin-sim: " in errors and "dataset: stopped on request (Ctrl-C)." in errors
    assert "No output directory was made." in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
