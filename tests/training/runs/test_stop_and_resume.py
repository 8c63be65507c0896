"""Runs that are stopped, killed and resumed, in processes of their own; and a full disk."""

from __future__ import annotations

import os
import signal

import in_process
import killed_rank_worker
import pytest
from processes import Started, command, entries, losses, run
from warm import warm

from merlin_sim.parallel.ranks.run_lock import run_in

pytestmark = pytest.mark.slow


def test_a_run_that_is_stopped_and_killed_goes_on_as_if_nothing_had_happened(
    sim_dataset, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as of the processes
    whole, saved, results = (tmp_path / name for name in ("whole", "saved", "results"))
    options = ["--global_batch_size", "16", "--dropout_rate", "0.2"]
    done = in_process.answer(*command(sim_dataset, whole, *options)[1:])
    assert done.returncode == 0, done.stderr
    expected = losses(whole)

    options += ["--save_checkpoint_path", str(saved), "--checkpoint_every", "5"]
    resume = ["--load_checkpoint_path", str(saved)]
    endless = command(sim_dataset, results, *options, "--epochs", "100000")
    with Started(endless, tmp_path / "log") as started:  # cold, as a person starts it
        started.wait_for_steps(results, 3)
        started.ranks()[0].send_signal(signal.SIGTERM)
        assert started.wait(280) == 75
        assert "goes on" in started.log.read_text()
    stopped_after = max(losses(results))
    assert sorted(saved.glob("step-*"))[-1].name == f"step-{stopped_after:010}"

    killed_at = stopped_after - stopped_after % 5 + 10
    kill = ["0", str(killed_at), "fsync", "SIGKILL"]
    killed = run(warm(killed_rank_worker.__file__, *kill, *endless[1:], *resume))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    of_epoch = len(expected) // 3  # there is a checkpoint at the end of each epoch too
    before = max(killed_at - 5, (killed_at - 1) // of_epoch * of_epoch)
    assert sorted(saved.glob("step-*"))[-1].name == f"step-{before:010}"

    last_step = max(*expected, killed_at) + 1
    done = in_process.answer(*endless[1:], *resume, "--max_steps", str(last_step))
    assert done.returncode == 0, done.stderr
    received = losses(results)
    assert list(received) == list(range(1, last_step + 1))
    # To the bit: JSON keeps floats exactly.
    assert {step: received[step] for step in expected} == expected
    ours, theirs = ({e["epoch"]: e for e in entries(p, "epoch")} for p in (results, whole))
    timing = {"samples/s", "seconds", "throughput"}
    timing |= {name for name in theirs[3] if name.startswith("latency")}
    for epoch, wanted in theirs.items():
        for name in wanted.keys() - timing:
            assert ours[epoch][name] == wanted[name], (epoch, name)


def test_a_full_disk_ends_the_command_with_one_line(sim_dataset, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "config.yaml").symlink_to("/dev/full")
    words = command(sim_dataset, results, "--global_batch_size", "16")
    done = in_process.answer(*words[1:])
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "merlin-sim: " in line]
    assert len(said) == 1
    assert said[0].startswith(
        f"merlin-sim: {results}: cannot be written: No space left on device. "
    )
    assert f" MiB are free in {results}. Make room" in said[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shared", ["results", "saved"])
def test_a_second_run_in_the_same_directory_is_refused(sim_dataset, tmp_path, shared):
    folders = {name: tmp_path / name for name in ("results", "saved")}
    with run_in([folders[shared]]):
        words = command(sim_dataset, folders["results"], "--save_checkpoint_path")
        done = in_process.answer(*words[1:], str(folders["saved"]))
    assert done.returncode == 2
    assert f"{folders[shared]}: expected a directory in which no other run" in done.stderr
    assert f"process {os.getpid()} on " in done.stderr
    assert not list(tmp_path.glob("*/log.json")) and not list(tmp_path.glob("*/step-*"))
