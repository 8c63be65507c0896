"""Commands of the command line in this process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import click
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


class Answer(NamedTuple):
    """What a program's end looks like from outside."""

    returncode: int
    stdout: str
    stderr: str


def answer(*arguments) -> Answer:
    """Start the program as a shell does, but in this process: its exit code and what it printed.

    What it does about warnings and loggers is undone.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(sys, "argv", ["merlin-sim", *map(str, arguments)]),
        mock.patch("merlin_sim.scripts.main.hide_tensorflow"),  # other tests need it
        warnings.catch_warnings(),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            main.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return Answer(code, *(stream.buffer.getvalue().decode() for stream in streams))


def instead_of_processes(started: list[list[str]]) -> SimpleNamespace:
    """Stands for the module ``subprocess`` where a command of ours is started: it runs here.

    Args:
        started: Gets the words of each command.
    """

    class Popen:
        def __init__(self, line, **options):
            self._words = line[3:]  # behind Python, -c and the program

        def wait(self):
            started.append(self._words)
            run(*self._words)
            return 0

    return SimpleNamespace(Popen=Popen)


def parsed(*words, mode="train", then=lambda context, config: config):
    """What the options of a run mean, without the run; and what was said of them."""
    from merlin_sim.scripts.options.run_options import run_options, to_run_config

    found = []

    @click.command()
    @run_options(mode)
    @click.pass_context
    def command(ctx, /, **values):
        found.append(then(ctx, to_run_config(ctx, values)))

    result = CliRunner().invoke(command, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0], result.output
