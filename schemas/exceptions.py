"""The errors that speak to the person at the keyboard."""

from __future__ import annotations


class MerlinSimError(Exception):
    """Something the user can put right; the command line prints it and exits with 2.

    The message names the file, key, column or option, what was expected and what came.
    """

    exit_code = 2
