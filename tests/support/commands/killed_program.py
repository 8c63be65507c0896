"""Runs a command of the command line, which ends as `kill -9` ends it once a path is there.

python killed_program.py PATH WORD ...
"""

from __future__ import annotations

import os
import signal
import sys

from in_process import run

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove")
"""Before which a process looks whether it is time."""


def kill_once_there(path: str) -> None:
    def look(event: str, _: tuple) -> None:
        if event in EVENTS and os.path.exists(path):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


if __name__ == "__main__":
    kill_once_there(sys.argv[1])
    run(*sys.argv[2:])
