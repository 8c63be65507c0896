"""Alternatives that need threads of their own kind, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from merlin_sim.training.runs.affinity import choose_threads

Works = dict[str, Callable[[], int]]
"""What is measured, by name: each returns how many samples it went through."""


class OwnProcess:
    """Runs works in a process that has its own TensorFlow; one at a time, when asked to.

    Args:
        make: makes the works, in that process.
        arguments: its arguments.
        as_command: with the threads of ``merlin-sim train`` and ``inference``, or with those
            that TensorFlow chooses.
    """

    def __init__(self, make: Callable[..., Works], *arguments, as_command: bool = False) -> None:
        """Start the process, and wait until the works are made."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        target = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        with _threads(as_command):
            target.start()
        self._names = self._connection.recv()

    @property
    def works(self) -> Works:
        """The works, as functions of this process."""
        return {name: lambda name=name: self._ask(name) for name in self._names}

    def _ask(self, name: str) -> int:
        self._connection.send(name)
        return self._connection.recv()


@contextmanager
def _threads(as_command: bool) -> Iterator[None]:
    before = dict(os.environ)
    try:
        if as_command:
            choose_threads()
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(connection, make, arguments) -> None:
    works = make(*arguments)
    connection.send(list(works))
    while True:
        try:
            connection.send(works[connection.recv()]())
        except EOFError:
            return
