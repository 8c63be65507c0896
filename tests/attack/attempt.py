"""Runs what is judged, and keeps what it said."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from merlin_sim.foundation.exceptions import MerlinSimError


@dataclass(frozen=True)
class Attempt:
    """What came of calling the product once."""

    result: Any = None
    refusal: str | None = None
    """The message that a person would have read, with exit code 2."""

    fault: str | None = None
    """The last lines of a traceback of any other kind."""

    said: str = ""
    """What was printed or warned of on the way."""


def attempt(function: Callable[[], Any]) -> Attempt:
    """Call ``function`` as the command line would: what it prints as a message is a refusal."""
    output = io.StringIO()
    refusal = fault = result = None
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        warnings.simplefilter("always")
        try:
            result = function()
        except (MerlinSimError, OSError) as error:
            refusal = str(error)
        except click.ClickException as error:
            refusal = error.format_message()
        except (MemoryError, RecursionError) as error:
            refusal = f"the input is too large ({type(error).__name__})"
        except Exception as error:
            fault = last_lines(error)
    own = [str(warning.message) for warning in caught if "merlin_sim" in warning.filename]
    return Attempt(result, refusal, fault, output.getvalue() + "\n".join(own))


def last_lines(error: Exception) -> str:
    """Say an error and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames[-4:]]
    return f"{type(error).__name__}: {str(error)[:300]} (at {' > '.join(places)})"
