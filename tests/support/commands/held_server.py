"""A server whose model `events` waits at a gate: what is in flight is known, not timed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

# What Triton loads as the model: the real one, behind the gate.
MODEL = """
import os
import time
from pathlib import Path

from merlin_sim.serving.triton.python_models.events_model import TritonPythonModel as EventsModel

GATE = Path({directory!r})


class TritonPythonModel(EventsModel):
    def execute(self, requests):
        (GATE / "held.writing").write_text(str(len(requests)))
        (GATE / "held.writing").rename(GATE / "held")
        server = os.getppid()
        while not (GATE / "open").exists() and os.getppid() == server:
            time.sleep(0.01)
        (GATE / "held").unlink()
        return super().execute(requests)
"""
# The command line as it is, but for the file that it gives Triton as the model `events`.
MAIN = """
from merlin_sim.scripts.main import main
from merlin_sim.serving.triton import repository

write_model = repository.write_model

def write_held_model(directory, model, module, version=1):
    write_model(directory, model, module, version)
    if model.name == repository.EVENTS:
        (directory / model.name / str(version) / "model.py").write_text({model!r})

repository.write_model = write_held_model
main()
"""


class Gate:
    """Holds the model's calls until it is opened.

    Args:
        directory: An empty one, by which the test and the model's process talk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        model = MODEL.format(directory=str(directory))
        self.command = (sys.executable, "-c", MAIN.format(model=model))

    def held(self) -> int:
        """How many requests the model has in hand."""
        try:
            return int((self.directory / "held").read_text())
        except FileNotFoundError:
            return 0

    def open(self) -> None:
        """Let calls through from now on."""
        (self.directory / "open").touch()


def until(condition, seconds: float = 200.0, between: float = 0.02) -> None:
    """Wait until a condition holds; that it ever does is the test's to be sure of."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(between)
