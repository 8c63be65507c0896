"""What a run's log says and how, without TensorFlow."""

from __future__ import annotations

import io
import json
import math
import re
from types import SimpleNamespace

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.reports.run_results import read_results
from merlin_sim.training.run_log import PublishedLines, RunLog
from merlin_sim.training.studies.runner import EpochsOfLog


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """What stood in the terminal's line, one after the other."""
        return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()))


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
    return Terminal()


def test_a_terminal_has_one_live_line_that_fits(tmp_path, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    log = RunLog(tmp_path, stream=terminal)
    with log.progress("epoch 10/12", 12345, 9999) as line:
        line.update(10000, "loss 1.8088 (0.6936 + 1.1152)  3,756 samples/s")
    log.say("epoch 10/12  total_loss 1.8088")
    log.close()
    shown = terminal.lines()
    assert max(map(len, shown)) <= 80
    live = [text for text in shown if "10000/12345" in text]
    assert live and "loss 1.8088 (0.6936 + 1.1152)  3,756 samples/s" in live[-1]
    assert shown[-2] == "epoch 10/12  total_loss 1.8088"


@pytest.mark.parametrize("rest", ["", '{"type": "epoch", "epoch": 2, "st', '{"type": "note"}'])
def test_a_run_that_goes_on_cuts_off_the_line_that_a_killed_one_began(tmp_path, rest):
    log = RunLog(tmp_path, stream=io.StringIO())
    log.write("note", text="x" * 100_000)
    log.write("epoch", (0,), epoch=1, step=10, test_auc=0.5)
    log.close()
    with open(tmp_path / "log.json", "a") as file:
        file.write(rest)
    epochs = EpochsOfLog(tmp_path / "log.json")
    log = RunLog(tmp_path, append=True, stream=io.StringIO())
    log.write("epoch", (1,), epoch=2, step=20, test_auc=0.6)
    log.close()
    assert [entry["step"] for entry in read_results(tmp_path).epochs] == [10, 20]
    assert [entry["step"] for entry in epochs.new()] == [20]
    assert len((tmp_path / "log.json").read_text().splitlines()) == 3 + rest.endswith("}")


def test_a_file_has_plain_lines(tmp_path, monkeypatch):
    seconds = iter([0.0, 10.0, 20.0, 30.0, 40.0])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("merlin_sim.foundation.progress.time", clock)
    stream = io.StringIO()
    log = RunLog(tmp_path, stream=stream)
    with log.progress("epoch 1/1", 8) as line:
        for done in (1, 2, 3, 4):
            line.update(done, f"loss {done}")
    log.close()
    assert stream.getvalue().splitlines() == [
        "epoch 1/1 2/8  loss 2  60 s left",
        "epoch 1/1 4/8  loss 4  40 s left",
    ]


def test_ranks_of_mpirun_write_plain_lines(tmp_path, terminal, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    log = RunLog(tmp_path, stream=terminal)
    with log.progress("epoch 1/1", 8) as line:
        line.update(1, "loss 1")
    log.close()
    assert terminal.getvalue() == ""


def test_a_full_disk_is_said_when_writing_and_when_closing(tmp_path):
    (tmp_path / "log.json").symlink_to("/dev/full")
    log = RunLog(tmp_path, stream=io.StringIO())
    with pytest.raises(MerlinSimError, match="log.json: cannot be written: No space left"):
        log.write("step", step=1)
    with pytest.raises(MerlinSimError, match="log.json: cannot be written: No space left"):
        log.close()
    log.close()


def test_summaries_that_cannot_be_written_and_numbers_that_json_lacks(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(MerlinSimError, match="tensorboard: cannot be written: .*directory"):
        RunLog(tmp_path, tensorboard=True, stream=io.StringIO()).write("step", step=1, loss=0.5)
    (tmp_path / "other").mkdir()
    log = RunLog(tmp_path / "other", stream=io.StringIO())
    log.write("epoch", test_auc=float("nan"), epoch=1)
    log.close()
    entry = json.loads((tmp_path / "other/log.json").read_text())
    assert entry == {"type": "epoch", "test_auc": None, "epoch": 1}


def test_a_published_log_is_read_and_a_wrong_line_is_named(tmp_path):
    lines = PublishedLines()
    text = lines.head()
    for epoch in (0, 1):
        text += [lines.line((epoch, n), {"total_loss": 1.0 - n / 9}) for n in range(3)]
        values = {"train_auc": 0.7, "train_loss": 0.8, "test_auc": 0.6, "test_loss": 0.9}
        text.append(lines.line((epoch,), {"throughput": 9.0, "seconds": 3.0, **values}))
    text.append(lines.line((), {"time_to_train": 6.0, "test_auc": math.pi / 5}))
    (tmp_path / "log.json").write_text("\n".join(text) + "\n")
    found = read_results(tmp_path)
    assert [entry["step"] for entry in found.steps] == [1, 2, 3, 4, 5, 6]
    assert found.epochs[1]["seconds"] == 3.0 and found.last["test_auc"] == math.pi / 5
    text.insert(7, 'DLLL {"type": "LOG", "data": {}}')
    (tmp_path / "log.json").write_text("\n".join(text) + "\n")
    with pytest.raises(MerlinSimError, match="line 8: not an entry of a run's log"):
        read_results(tmp_path)
