"""Commands of the command line in this process."""

from __future__ import annotations

from click.testing import CliRunner

from merlin_sim.scripts import main


def run(*arguments):
    """Run a command in this process; gives what it printed."""
    result = CliRunner().invoke(main.cli, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
