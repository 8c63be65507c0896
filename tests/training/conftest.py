"""Poisoned memory for the training tests: a row that nobody filled shows."""

from poisoned_memory import poisoned_memory  # noqa: F401
