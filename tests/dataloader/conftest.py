"""Poisoned memory for the feed's tests: a row that nobody filled shows."""

from poisoned_memory import poisoned_memory  # noqa: F401
