"""What the command line does about Python's search for garbage."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, gc
from merlin_sim.foundation.process_wide import collect_less_often

atexit.register(lambda: print(gc.get_freeze_count()))
collect_less_often()
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count()))
"""


def test_less_often_and_not_at_all_once_every_other_handler_of_the_end_has_run():
    words = [sys.executable, "-c", CODE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=True)
    before, after = done.stdout.splitlines()
    assert before == "50000 0" and int(after) > 1000
