"""Runs that are stopped, killed and resumed, in processes of their own; and a full disk."""

from __future__ import annotations

import os
import signal

import in_process
import pytest
from processes import Started, command, entries, horovodrun, losses, run
from warm import warm

from merlin_sim.parallel.ranks.run_lock import run_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def untouched(sim_dataset, tmp_path_factory):
    """A run of three epochs that nobody disturbs."""
    results = tmp_path_factory.mktemp("untouched")
    options = ["--global_batch_size", "16", "--dropout_rate", "0.2"]
    done = run(warm(*command(sim_dataset, results, *options)))
    assert done.returncode == 0, done.stderr
    return results


def test_a_run_that_is_stopped_and_killed_goes_on_as_if_nothing_had_happened(
    sim_dataset, untouched, tmp_path
):
    saved, results = tmp_path / "saved", tmp_path / "results"
    options = ["--global_batch_size", "16", "--dropout_rate", "0.2"]
    options += ["--save_checkpoint_path", str(saved), "--checkpoint_every", "5"]
    resume = ["--load_checkpoint_path", str(saved)]
    endless = command(sim_dataset, results, *options, "--epochs", "100000")
    expected = losses(untouched)
    with Started(endless, tmp_path / "log") as started:
        started.wait_for_steps(results, 3)
        started.ranks()[0].send_signal(signal.SIGTERM)
        assert started.wait(280) == 75
        assert "goes on" in started.log.read_text()
    stopped_after = max(losses(results))
    assert sorted(saved.glob("step-*"))[-1].name == f"step-{stopped_after:010}"
    with Started([*endless, *resume], tmp_path / "log of the second") as started:
        started.wait_for_steps(results, stopped_after + 7)
        started.ranks()[0].kill()
        assert started.wait(100) == -signal.SIGKILL
    killed_after = max(losses(results))
    done = run(warm(*command(sim_dataset, results, *options, *resume, "--epochs", "3")))
    received = losses(results)
    if killed_after < max(expected):
        assert done.returncode == 0, done.stderr
        assert received == expected  # to the bit: JSON keeps floats exactly
        last, wanted = entries(results, "epoch")[-1], entries(untouched, "epoch")[-1]
        timing = {"samples/s", "seconds", "throughput"}
        timing |= {name for name in wanted if name.startswith("latency")}
        assert {k: v for k, v in last.items() if k not in timing} == {
            k: v for k, v in wanted.items() if k not in timing
        }
    else:
        assert all(received[step] == expected[step] for step in expected)


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
    places = {name: tmp_path / name for name in ("results", "saved")}
    with run_in([places[shared]]):
        words = command(sim_dataset, places["results"], "--save_checkpoint_path")
        done = in_process.answer(*words[1:], str(places["saved"]))
    assert done.returncode == 2
    assert f"{places[shared]}: expected a directory in which no other run" in done.stderr
    assert f"process {os.getpid()} on " in done.stderr
    assert not list(tmp_path.glob("*/log.json")) and not list(tmp_path.glob("*/step-*"))


@pytest.mark.horovod
def test_ranks_of_one_run_share_its_directory(sim_dataset, tmp_path):
    saved = tmp_path / "saved"
    options = ["--global_batch_size", "100", "--epochs", "1", "--affinity", "disabled"]
    options += ["--save_checkpoint_path", str(saved)]
    words = [*horovodrun(2), *warm(*command(sim_dataset, tmp_path / "results", *options))]
    done = run(words)
    assert done.returncode == 0, done.stderr
    assert list(saved.glob("step-*"))
    with run_in([saved]):
        refused = run(words)
    assert refused.returncode != 0
    assert f"{saved}: expected a directory in which no other run" in refused.stderr + refused.stdout
