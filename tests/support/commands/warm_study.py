"""Runs a study whose runs are forked as it is: from one process that has imported TensorFlow.

    python warm_study.py SOCKET WORD ...

Neither hears signals, but both end by SIGKILL with what asked for them.
"""

from __future__ import annotations

import sys

from processes import BIN
from warm import forked

from merlin_sim.scripts.main import main
from merlin_sim.training.studies import runner

COMMAND_LINE = runner.command_line


def fork_trials(socket: str, started: list[str]) -> None:
    """Have the runs of a study forked, and their titles noted; patches the package."""

    def line(trial, command, config):
        started.append(trial.title)
        launch = COMMAND_LINE(trial, command, config)
        index = launch.index(sys.executable)
        return [*launch[:index], *forked(socket, str(BIN / "merlin-sim"), *launch[index + 3 :])]

    runner.command_line = line


if __name__ == "__main__":
    fork_trials(sys.argv[1], [])
    sys.argv[1:] = sys.argv[2:]
    main()
