"""Interactions become histories, and histories become samples."""
