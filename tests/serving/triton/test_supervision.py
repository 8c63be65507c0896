"""A server that ends by itself is started again, within bounds; a small stand-in plays Triton."""

from __future__ import annotations

import sys

import psutil
import pytest
from held_server import until

pytest.importorskip("pytriton")
from triton_stand_in import StandIn  # noqa: E402

from merlin_sim.serving.settings import ServerOptions  # noqa: E402
from merlin_sim.serving.triton import replica, serve  # noqa: E402
from merlin_sim.serving.triton.replica import Idleness, work_of  # noqa: E402
from merlin_sim.serving.triton.triton_process import (  # noqa: E402
    NOISE,
    OwnProcess,
    ServerError,
    server_environment,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stand_in(servable, monkeypatch):
    monkeypatch.setattr(replica, "PROBE_EVERY", 0.05)
    monkeypatch.setattr(replica, "PROBE_SECONDS", 1.0)
    free = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    return StandIn(servable, ServerOptions(**free, standby=False))


@pytest.mark.slow
def test_one_that_ends_or_stands_still_at_start_is_tried_again(stand_in, monkeypatch):
    """And what it left behind is ended."""
    monkeypatch.setattr(replica, "STANDSTILL_SECONDS", 1.0)
    with stand_in.plays("abort", "leave", "hang", "serve") as server:
        assert (server.files / "starts").read_text() == "...."
        assert server.is_ready()
        left = int((server.files / "left").read_text())
        until(lambda: not psutil.pid_exists(left))
    said = [line.split("\n")[-1] for line in server.said if "starting it again" in line]
    for line, (reason, count) in zip(said, SAID_OF_STARTS, strict=True):
        assert reason in line and line.endswith(f"before it was ready: starting it again ({count})")
    assert not server.files.exists()


SAID_OF_STARTS = [
    ("Triton ended by signal 6 (SIGABRT)", "2 of 5"),
    ("Triton ended by signal 11 (SIGSEGV)", "3 of 5"),
    ("Triton did nothing for 1 s", "4 of 5"),
]


@pytest.mark.slow
def test_one_that_exits_says_why_and_is_not_tried_as_often(stand_in):
    message = r"with exit code 3 before it was ready, 3 times: .* \(its output stands above"
    with pytest.raises(ServerError, match=message), stand_in.plays("exit"):
        pass
    said = [line.split(": ")[-1] for line in stand_in.said if "starting it again" in line]
    assert said == ["starting it again (2 of 3)", "starting it again (3 of 3)"]


@pytest.mark.slow
def test_a_fork_server_that_cannot_be_started_is_tried_again(stand_in, monkeypatch):
    monkeypatch.setattr(serve, "FORK_PAUSE", 0.0)
    with stand_in.plays("serve") as server:
        start, before, errors = server._start_fork_server, server._fork_server, []

        def start_at_last():
            if len(errors) < 2:
                errors.append(OSError(12, "Cannot allocate memory"))
                raise errors[-1]
            start()

        monkeypatch.setattr(server, "_start_fork_server", start_at_last)
        before.kill()
        until(lambda: server._fork_server is not before, 30)
        assert server.is_ready()
    said = [line for line in server.said if "fork" in line]
    again = "the process that forks models ended with -9: starting it again"
    failed = "the process that forks models cannot be started: [Errno 12] Cannot allocate memory"
    assert said == [again, failed, again, failed, again]


def test_what_computes_reads_or_waits_for_its_turn_is_not_idle():
    now, done = [0.0], [(0.0, 0, False)]
    watched = Idleness(lambda: [0], lambda: now[0], lambda pids: done[0])
    for second, work, is_idle in [
        (59, (0.04, 0, False), False),
        (61, (0.06, 0, False), False),  # begins anew
        (120, (0.06, 1 << 19, False), False),
        (121.5, (0.06, 1 << 19, False), True),
        (122, (0.06, 2 << 20, False), False),
        (183, (0.01, 0, False), True),
        (184, (0.07, 0, False), False),
        (300, (0.07, 0, True), False),  # it runs, or waits for a processor or a disk
        (361, (0.07, 0, False), True),
    ]:
        now[0], done[0] = second, work
        assert watched.lasted(60) == is_idle


class Unreadable:
    """A process of which the system cannot say whether it lives."""

    pid = 1

    def ended(self):
        raise OSError(24, "Too many open files")

    def kill(self):
        pass


def test_one_that_cannot_be_watched_has_a_problem(tmp_path):
    watched = replica.Replica(tmp_path, ["events"], lambda *_: Unreadable(), ServerOptions())
    until(lambda: watched.problem is not None)
    assert watched.problem == "OSError: [Errno 24] Too many open files"
    assert not watched.is_ready and watched.is_worth_another
    watched.kill()
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    "error",
    [
        psutil.NoSuchProcess(7),
        OSError(24, "Too many open files"),
        RuntimeError("/proc/7/io file was empty"),
    ],
)
def test_what_cannot_be_read_of_a_process_is_not_counted(monkeypatch, error):
    def fail(process):
        raise error

    monkeypatch.setattr(psutil.Process, "cpu_times", fail)
    assert work_of([psutil.Process().pid]) == (0.0, 0, False)
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: fail(process))
    assert work_of([psutil.Process().pid]) == (0.0, 0, False)


WRITER = """
import sys
print("E1120 server.cc:241] \\"CudaDriverHelper has not been initialized.\\"", file=sys.stderr)
print("E1120 something that matters", file=sys.stderr)
"""


@pytest.mark.parametrize("hidden", [(), NOISE])
def test_standard_error_is_passed_on_but_for_what_means_nothing(hidden, capfd):
    process = OwnProcess([sys.executable, "-c", WRITER], None, 60.0, hidden)
    until(lambda: process.ended() is not None)
    assert process.end() == 0
    written = capfd.readouterr().err
    assert "E1120 something that matters\n" in written
    assert ("CudaDriverHelper" in written) == (not hidden)


def test_models_share_the_memory_of_a_gpu(monkeypatch, tmp_path):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
