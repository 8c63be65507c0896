"""Runs that are killed, stopped and resumed, in processes of their own."""

from __future__ import annotations

import signal

import pytest
from processes import Started, command, entries, losses, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def untouched(sim_dataset, tmp_path_factory):
    """A run of three epochs that nobody disturbs."""
    results = tmp_path_factory.mktemp("untouched")
    done = run(
        command(sim_dataset, results, *("--global_batch_size", "16", "--dropout_rate", "0.2"))
    )
    assert done.returncode == 0, done.stderr
    return results


def test_a_killed_run_goes_on_as_if_nothing_had_happened(sim_dataset, untouched, tmp_path):
    options = ["--global_batch_size", "16", "--dropout_rate", "0.2"]
    options += ["--save_checkpoint_path", str(tmp_path / "saved"), "--checkpoint_every", "5"]
    results = tmp_path / "results"
    endless = command(sim_dataset, results, *options, "--epochs", "100000")
    with Started(endless, tmp_path / "log") as started:
        started.wait_for_steps(results, 23)
        started.ranks()[0].kill()
        assert started.wait(20) == -signal.SIGKILL
    resume = ["--load_checkpoint_path", str(tmp_path / "saved")]
    expected = losses(untouched)
    killed_after = max(losses(results))
    done = run(command(sim_dataset, results, *options, *resume, "--epochs", "3"))
    if killed_after < max(expected):
        assert done.returncode == 0, done.stderr
        received = losses(results)
        assert received == expected  # to the bit: JSON keeps floats exactly
        last, wanted = entries(results, "epoch")[-1], entries(untouched, "epoch")[-1]
        timing = {"samples/s", "seconds", "throughput"}
        timing |= {name for name in wanted if name.startswith("latency")}
        assert {k: v for k, v in last.items() if k not in timing} == {
            k: v for k, v in wanted.items() if k not in timing
        }
    else:
        received = losses(results)
        assert all(received[step] == expected[step] for step in expected)


def test_sigterm_saves_and_leaves_with_its_own_code(sim_dataset, untouched, tmp_path):
    options = ["--global_batch_size", "16", "--dropout_rate", "0.2"]
    options += ["--save_checkpoint_path", str(tmp_path / "saved")]
    results = tmp_path / "results"
    endless = command(sim_dataset, results, *options, "--epochs", "100000")
    with Started(endless, tmp_path / "log") as started:
        started.wait_for_steps(results, 3)
        started.ranks()[0].send_signal(signal.SIGTERM)
        assert started.wait(30) == 75
        assert "goes on" in started.log.read_text()
    saved = sorted((tmp_path / "saved").glob("step-*"))[-1].name
    assert int(saved.removeprefix("step-")) == max(losses(results))
    received, expected = losses(results), losses(untouched)
    common = set(received) & set(expected)
    assert common and all(received[step] == expected[step] for step in common)


def test_a_full_disk_ends_the_command_with_one_line(sim_dataset, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "config.yaml").symlink_to("/dev/full")
    done = run(command(sim_dataset, results, "--global_batch_size", "16"))
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "merlin-sim: " in line]
    assert said == [f"merlin-sim: {results} cannot be written: No space left on device"]
    assert "Traceback" not in done.stderr
