"""Logs with planted behaviour, so that what a model learns is known."""
