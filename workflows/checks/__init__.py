"""Checks of a dataset for what would spoil training, before any training."""
