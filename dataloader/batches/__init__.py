"""Batches: rows gathered to their places, in memory that is used again."""
