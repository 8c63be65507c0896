"""A server whose model `events` waits at a gate: what is in flight is known, not timed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

# What answers as the model: the real one, behind the gate.
MODEL = """
import os
import time
from pathlib import Path

from merlin_sim.serving.workers.events_model import EventsModel

GATE = Path({directory!r})


class HeldModel(EventsModel):
    def take(self, requests, reply):
        counted = [request for request in requests if not request.is_probe]
        if counted and not (GATE / "open").exists():
            (GATE / "held.writing").write_text(str(len(counted)))
            (GATE / "held.writing").rename(GATE / "held")
            server = os.getppid()
            while not (GATE / "open").exists() and os.getppid() == server:
                sum(range(20_000))  # it works: what does nothing is taken for one that hangs
                time.sleep(0.01)
            (GATE / "held").unlink()
        super().take(requests, reply)
"""
# The command line as it is, but for what answers as the model `events`.
MAIN = """
import os
import sys
from dataclasses import replace
from merlin_sim.scripts.main import main
from merlin_sim.serving.triton import replica, serve

own_models = serve.own_models
sys.path.insert(0, {directory!r})
os.environ["PYTHONPATH"] = {directory!r}

def held_models(servable, has_versions):
    ids, events = own_models(servable, has_versions)
    return [ids, replace(events, worker="held_model.HeldModel")]

serve.own_models = held_models
replica.PROBE_EVERY = 600.0  # its own probes wait at the gate too, and would be counted
main()
"""


class Gate:
    """Holds the model's calls until it is opened.

    Args:
        directory: An empty one, by which the test and the model's process talk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "held_model.py").write_text(MODEL.format(directory=str(directory)))
        self.command = (sys.executable, "-c", MAIN.format(directory=str(directory)))

    def held(self) -> int:
        """How many requests the model has in hand."""
        try:
            return int((self.directory / "held").read_text())
        except FileNotFoundError:
            return 0

    def open(self) -> None:
        """Let calls through from now on."""
        (self.directory / "open").touch()

    def close(self) -> None:
        """Hold calls again."""
        (self.directory / "open").unlink()


def until(condition, seconds: float = 200.0, between: float = 0.02) -> None:
    """Wait until a condition holds; that it ever does is the test's to be sure of."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(between)
