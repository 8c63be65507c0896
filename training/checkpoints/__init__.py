"""Checkpoints: what a run is at one moment, on disk and back."""

MEAN, RANDOM = NEW_ROWS = ("mean", "random")
"""How the rows of new keys begin: as the mean of trained ones, or as drawn."""
