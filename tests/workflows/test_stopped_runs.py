"""`preprocess` that is stopped, killed or out of disk leaves nothing half written."""

from __future__ import annotations

import json
import signal

import in_process
import killed_program
import processes
import pytest
from full_disk import written_at_most
from warm import warm

pytestmark = pytest.mark.slow

# The run stands still in the middle of its work, after it has said so. A shell that runs the
# suite in the background makes it deaf to Ctrl-C; the shell of a person does not.
HELD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from merlin_sim.scripts import main
from merlin_sim.workflows.preprocess import dataset_writer

def hold(*_):
    print("working", flush=True)
    signal.raise_signal(signal.SIGINT)

dataset_writer.write_item_changes = hold
main.main()
"""


def words(raw, output):
    given = ("--amazon_dataset_path", str(raw), "--output_path", str(output))
    return ["preprocess", "amazon-books", *given]


def test_ctrl_c_stops_the_run(raw, tmp_path):
    (tmp_path / "held.py").write_text(HELD)
    command = warm(str(tmp_path / "held.py"), *words(raw, tmp_path / "made" / "dataset"))
    (tmp_path / "made").mkdir()
    done = processes.run(command)
    assert done.stdout == "working\n"
    assert done.returncode == 75, done.stderr
    assert "merlin-sim: " in done.stderr
    assert "dataset: stopped on request (Ctrl-C)." in done.stderr
    assert "No output directory was made." in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "made").iterdir())


def test_a_full_disk_stops_the_run(raw, tmp_path):
    with written_at_most(100_000):
        done = in_process.answer(*words(raw, tmp_path / "dataset"))
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert "no output directory was made" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_nothing_half_written(raw, tmp_path, preprocess):
    output = tmp_path / "dataset"
    partial = tmp_path / "dataset.partial"
    done = processes.run(warm(killed_program.__file__, str(partial / "train"), *words(raw, output)))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not output.exists()
    assert partial.exists()
    result = preprocess(raw, output)
    assert not partial.exists()
    assert json.loads((result / "metadata.json").read_text())
