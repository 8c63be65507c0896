"""What the command line says of errors, and what of them --debug shows beside it."""

from __future__ import annotations

import errno

import pytest
from in_process import answer

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.scripts.commands import doctor


@pytest.fixture
def failing(monkeypatch):
    """Have `merlin-sim doctor` raise an error."""

    def fail_with(error: BaseException) -> None:
        def callback(**values):
            raise error

        monkeypatch.setattr(doctor.command, "callback", callback)

    return fail_with


OTHERS = [
    (OSError(errno.EIO, "Input/output error", "a/file"), "Input/output error: 'a/file'"),
    (RecursionError("too deep here"), "nested too deeply, or this is a fault of merlin-sim"),
    (MemoryError("no room"), "out of memory"),
]


@pytest.mark.parametrize(("error", "said"), OTHERS)
def test_an_error_that_is_not_ours_is_one_line_that_names_debug(failing, error, said):
    failing(error)
    found = answer("doctor")
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.startswith("merlin-sim: ") and found.stderr.count("\n") == 1
    assert said in found.stderr and str(error) in found.stderr and "--debug" in found.stderr


@pytest.mark.parametrize("arguments", [("--debug", "doctor"), ("doctor", "--debug")])
@pytest.mark.parametrize("error", [OTHERS[0][0], OTHERS[1][0], MerlinSimError("wrong option")])
def test_debug_shows_the_traceback_before_or_after_the_command(failing, error, arguments):
    failing(error)
    found = answer(*arguments)
    assert found.returncode == 2
    assert "Traceback (most recent call last)" in found.stderr
    assert "in callback" in found.stderr
    *_, last = found.stderr.splitlines()
    assert last.startswith("merlin-sim: ") and str(error) in last and "--debug" not in last


def test_our_own_error_is_its_message_alone(failing):
    failing(MerlinSimError("`x` should be 1."))
    assert answer("doctor") == (2, "", "merlin-sim: `x` should be 1.\n")


def test_debug_is_an_option_that_help_shows():
    assert "--debug" in answer("--help").stdout
    found = answer("doctor", "--", "--debug")  # an argument, not the option
    assert found.returncode == 2 and "unexpected extra argument" in found.stderr
