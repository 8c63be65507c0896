"""Commands of the command line in this process."""

from __future__ import annotations

import os
from unittest import mock

from click.testing import CliRunner

from merlin_sim.scripts import main


def run(*arguments):
    """Run a command in this process; gives what it printed."""
    with mock.patch.dict(os.environ):  # a command may set what TensorFlow reads when it starts
        result = CliRunner().invoke(main.cli, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
